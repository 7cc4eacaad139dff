"""Answers: from a request's parameters to bytes, computed once for each version of a partition.

Two ways lead here. The long way (``Answers.reply``, on the pool) may sync a view, list a
partition and compress. The short way (``Answers.ready``, on the loop) never waits: it finds what
is held, makes what takes little, or gives up. Both take their bytes from the same
place, so they answer alike.

**Ready bytes** of a whole partition, and of one file group, lie with the ``PartitionVersion``
they were made from, under the query, its arguments, the snapshot's epoch and the spelling of the
base path. A commit makes new versions of the partitions it names; every other partition's bytes
stay good. They are dropped oldest first when all together exceed the budget, and die with their
version besides.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from sys import getsizeof
from typing import Any, Final, TypeVar

from fsview.files.partition import PartitionVersion
from fsview.local_view import HeldView, LocalView, NotHeldError
from fsview.metrics import Metrics
from fsview.query.latest_json import NEWEST
from fsview.snapshot.snapshot import Snapshot
from fsview.store.budget import Account, Budget
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from fsview.wire.json_form import PathForms
from fsview.wire.param import (
    BASE_PATH,
    LAST_INSTANT,
    NO_INSTANT,
    PARTITION,
    REFRESH_OFF,
    TIMELINE_HASH,
)
from fsview.wire.route import Route
from fsview.wire.routes import BY_NAME
from strandline.service.http.reply import Reply, pretty, streamed, success
from timeline.errors import InputError

T = TypeVar("T")

AnswerKey = tuple[Any, ...]
"""What tells apart the answers that one version of a partition gives: texts, numbers, ``None``."""

REQUESTS: Final = "requests"
"""The counter of requests, by table, route and way (computed or ready)."""

AS_OF_INSTANT: Final = "strandline-last-instant"
AS_OF_HASH: Final = "strandline-timeline-hash"
"""Headers of answers to who says no timeline; what they say may be asked for again."""

TARGET_BYTES: Final = 4096
"""The longest query that ready answers are looked up for."""

_LOAD: Final = BY_NAME["load_partitions"]
_SPELLINGS: Final = 1024
_SPELLED_CHARACTERS: Final = 1024
"""Longer spellings of base paths aren't remembered: a thousand would take memory nobody counts."""
_ON_LOOP_BYTES: Final = 12 * 1024
"""Partitions whose packed files take more aren't answered on the loop: a hundred groups of three
files take so much, and 0.3 ms."""
_LARGEST: Final = 8
"""An answer that takes more than one in so many parts of the budget isn't kept, and of the whole
table is sent as it is made."""
_GROUP_ON_LOOP_BYTES: Final = 2 * 1024
"""Groups whose packed files take more aren't answered on the loop: sixty logs take so much, and
0.4 ms."""
_ENTRY_BYTES: Final = 512
"""What a kept answer costs beyond its bytes and its key's: dictionary slots, objects."""


class Kept:
    """The order in which ready answers were kept, and their size; the lock guards both.

    An entry keeps its version's dictionary alive until the budget drops it, which bounds what
    versions that nobody else remembers can hold.
    """

    def __init__(self, account: Account, budget: Budget) -> None:
        self._account = account
        self._budget = budget
        account.evict = self._evict
        self._lock = threading.Lock()
        self._order: deque[tuple[dict[Any, Any], AnswerKey, int]] = deque()

    @property
    def largest(self) -> int:
        """Bytes of the largest answer that is kept, or held whole while it is sent."""
        return self._budget.limit_bytes // _LARGEST

    def put(self, answers: dict[Any, Any], key: AnswerKey, response: bytes) -> None:
        """Keep a whole response; the oldest ones go when the budget is exceeded.

        Its key is counted with it: a client chooses what is in it, and may choose it long.
        """
        size = len(response) + _ENTRY_BYTES + sum(map(getsizeof, key))
        if size > self.largest:
            return
        with self._lock:
            if key in answers:
                return
            answers[key] = response
            self._order.append((answers, key, size))
        self._account.add(size)
        self._budget.make_room()

    def _evict(self, wanted: int) -> int:
        """Drop the oldest answers; see ``Budget``."""
        freed = 0
        with self._lock:
            while freed < wanted and self._order:
                oldest, key, size = self._order.popleft()
                oldest.pop(key, None)
                freed += size
        self._account.add(-freed)
        return freed

    def status(self) -> dict[str, int]:
        """Return how many answers are kept and their bytes."""
        with self._lock:
            return {"answers": len(self._order), "bytes": self._account.used}


class Answers:
    """Answers the routes of ``fsview.wire.routes`` from the views of a service."""

    def __init__(self, views: ViewManager, metrics: Metrics, *, gzip: bool = True) -> None:
        self._views = views
        self._metrics = metrics
        self._gzip = gzip
        self._tables: dict[str, TableView] = {}
        self.kept = Kept(views.stores.answers, views.stores.budget)

    def known_table(self, base_path: str) -> TableView | None:
        """Return the table that a base path of this very spelling meant before; never waits."""
        return self._tables.get(base_path)

    def _table(self, base_path: str) -> TableView:
        """Return the table that a base path means, which may look at the file system (links)."""
        table = self._views.view(base_path)
        if len(base_path) <= _SPELLED_CHARACTERS:
            if len(self._tables) >= _SPELLINGS and base_path not in self._tables:
                self._tables = {}  # in one step: the loop reads beside
            self._tables[base_path] = table
        return table

    def reply(
        self,
        route: Route,
        params: Mapping[str, str],
        *,
        zipped: bool,
        indented: bool,
        has_left: Callable[[], bool] = lambda: False,
    ) -> Reply:
        """Answer a request; may sync, list and compress.

        Args:
            route: What is asked.
            params: With what.
            zipped: Whether the client takes gzip.
            indented: Whether it wants the body indented.
            has_left: Whether it has left; nobody goes through a whole table, or a long list of
                partitions, for it then.

        Raises:
            StrandlineError: What the request or the storage did.
        """
        base_path = params.get(BASE_PATH, "")
        if not base_path:
            raise InputError(f"{route.path} needs the parameter {BASE_PATH!r}, which is missing")
        route.arguments(params)  # what is missing is said before a view is opened
        table = self._table(base_path)
        self._metrics.add(REQUESTS, table=str(table.table_id), route=route.name, way="computed")
        view = self._view_for(table, route, params)
        reply = self._reply(view, route, params, zipped, indented, has_left)
        if route.synced and TIMELINE_HASH not in params:
            return replace(reply, headers={**reply.headers, **_as_of(view.snapshot)})
        return reply

    def _reply(
        self,
        view: LocalView,
        route: Route,
        params: Mapping[str, str],
        zipped: bool,
        indented: bool,
        has_left: Callable[[], bool],
    ) -> Reply:
        if route.part_form is not None and not indented:
            parts = view.in_parts(route.name, **route.arguments(params))
            paths = PathForms.of(params[BASE_PATH])
            said = route.encode_parts(_while_wanted(parts, has_left), paths)
            return streamed(said, self.kept.largest, zipped=zipped and self._gzip)
        if route is _LOAD:
            view.load_partitions(**route.arguments(params), go_on=partial(_check_wanted, has_left))
            body = route.encode(None, PathForms.of(params[BASE_PATH]))
        else:
            body = self._body(view, route, params)
        if indented:
            return success(pretty(body), zipped=zipped and self._gzip)
        reply = success(body, zipped=zipped and self._gzip)
        version = _version(view.snapshot, params)
        may_be_asked_again = (route.hot or is_of_group(route)) and _is_short(params)
        if may_be_asked_again and version is not None:
            self.kept.put(version.answers, _key(view.snapshot, route, params, zipped), whole(reply))
        return reply

    def _body(self, view: LocalView, route: Route, params: Mapping[str, str]) -> bytes:
        paths = PathForms.of(params[BASE_PATH])
        body = None
        if route.name in NEWEST:
            arguments = route.arguments(params)
            body = view.newest_as_json(route.name, paths, plain_only=False, **arguments)
        return route.encode(route.answer(view, params), paths) if body is None else body

    def _view_for(self, table: TableView, route: Route, params: Mapping[str, str]) -> LocalView:
        if not route.synced or params.get(REFRESH_OFF, "").lower() == "true":
            return LocalView.newest(table)
        if TIMELINE_HASH not in params:  # somebody with curl; Hudi's clients always send one
            return LocalView.synced(table)
        return LocalView.at(table, params.get(LAST_INSTANT, NO_INSTANT), params[TIMELINE_HASH])

    def ready(
        self, route: Route, params: Mapping[str, str], table: TableView, *, zipped: bool
    ) -> bytes | None:
        """Return a response that needs no waiting, or ``None``; runs on the loop.

        What isn't made yet is made here when the snapshot and the partition are held and it takes
        less than to hand the request on: of one file group, or of a partition with few files.
        """
        timeline_hash = params.get(TIMELINE_HASH)
        if timeline_hash is None:  # the newest state, for which storage is looked at
            return None
        snapshot = table.held(params.get(LAST_INSTANT, NO_INSTANT), timeline_hash)
        if snapshot is None:
            return None
        version = _version(snapshot, params)
        if version is None:
            return None
        key = _key(snapshot, route, params, zipped)
        response: bytes | None = version.answers.get(key)
        if response is None:
            try:
                body = self._made_on_loop(HeldView(table, snapshot), version, route, params)
            except NotHeldError:  # a part of the archive, say: the long way reads it
                return None
            if body is None:
                return None
            response = whole(success(body, zipped=zipped and self._gzip))
            self.kept.put(version.answers, key, response)
        if not route.name.endswith("_stateless"):
            table.mark_loaded((version.partition,))
        return response

    def _made_on_loop(
        self, view: LocalView, version: PartitionVersion, route: Route, params: Mapping[str, str]
    ) -> bytes | None:
        if is_of_group(route):
            file_id = route.arguments(params)["file_id"]
            if version.group_bytes(file_id) > _GROUP_ON_LOOP_BYTES:
                return None
            return self._body(view, route, params)
        if route.name not in NEWEST or version.size_bytes > _ON_LOOP_BYTES:
            return None
        paths = PathForms.of(params[BASE_PATH])
        return view.newest_as_json(route.name, paths, plain_only=True, **route.arguments(params))


def _while_wanted(parts: Iterable[T], has_left: Callable[[], bool]) -> Iterator[T]:
    """Yield parts as long as the client is there; what it doesn't wait for isn't made."""
    for part in parts:
        _check_wanted(has_left)
        yield part


def _check_wanted(has_left: Callable[[], bool]) -> None:
    """Raise an error, which nobody will read, once the client has left."""
    if has_left():
        raise InputError("the client has left")


def is_of_group(route: Route) -> bool:
    """Whether a route asks for one file group of a partition."""
    return any(param.argument == "file_id" for param in route.params)


def _version(snapshot: Snapshot, params: Mapping[str, str]) -> PartitionVersion | None:
    """Return the version that a request's answer comes from alone, if it is held.

    A version with ghosts isn't: what it answers may come from a newer snapshot, or be refused.
    """
    version = snapshot.files.versions.get(_partition(params))
    return None if version is None or version.has_ghosts else version


def _as_of(snapshot: Snapshot) -> dict[str, str]:
    """Return headers that say which timeline an answer is of, as a client would send it."""
    timeline = snapshot.client_timeline
    last = NO_INSTANT if timeline.last is None else timeline.last.requested_time
    return {AS_OF_INSTANT: last, AS_OF_HASH: timeline.hash}


def _partition(params: Mapping[str, str]) -> str:
    return params.get(PARTITION.name, "").removesuffix("/")


def _is_short(params: Mapping[str, str]) -> bool:
    """Whether the hot path would find an answer again: what is longer isn't even read there."""
    return sum(map(len, params.values())) <= TARGET_BYTES


def whole(reply: Reply) -> bytes:
    """Return the bytes of a whole response."""
    return reply.head() + reply.body


def _key(snapshot: Snapshot, route: Route, params: Mapping[str, str], zipped: bool) -> AnswerKey:
    """Return what tells apart the answers that one version of a partition gives."""
    return (
        route.name,
        zipped,
        snapshot.epoch,
        params[BASE_PATH],
        *(params.get(param.name) for param in route.params[1:]),
    )

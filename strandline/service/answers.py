"""Answers: from a request's parameters to bytes, computed once for each version of a partition.

Two ways lead here. The long way (``Answers.reply``, on the pool) may sync a view, list a
partition and compress. The short way (``Answers.ready``, on the loop) never waits: it finds what
is held or gives up. Both take their bytes from the same place, so they answer alike.

**Ready bytes** of a whole partition, and of one file group, lie with the ``PartitionVersion``
they were made from, under the query, its arguments, the snapshot's epoch and the spelling of the
base path. A commit makes new versions of the partitions it names; every other partition's bytes
stay good. They are dropped oldest first when all together exceed the budget, and die with their
version besides.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fsview.local import LocalView
from fsview.managed import ViewManager
from fsview.metrics import Metrics
from fsview.packed import PartitionVersion
from fsview.routes import (
    BASE_PATH,
    LAST_INSTANT,
    NO_INSTANT,
    PARTITION,
    REFRESH_OFF,
    TIMELINE_HASH,
    Route,
)
from fsview.snapshot import Snapshot
from fsview.store.budget import Account, Budget
from fsview.table_view import TableView
from fsview.wire import PathForms
from strandline.service.replies import Reply, pretty, streamed, success
from timeline.errors import InputError

REQUESTS: Final = "requests"
"""The counter of requests, by table, route and way (computed or ready)."""

_SPELLINGS: Final = 1024
_ON_LOOP_BYTES: Final = 32 * 1024
"""Longer bodies aren't compressed on the loop; one group's are never that long in practice."""
_LARGEST: Final = 8
"""An answer that takes more than one in so many parts of the budget isn't kept, and of the whole
table is sent as it is made."""
_ENTRY_BYTES: Final = 512
"""What a kept answer costs beyond its bytes: keys, dictionary slots, objects."""


@dataclass(frozen=True, slots=True)
class Ready:
    """An answer that is made: the whole response, plain and compressed.

    Attributes:
        plain: Status line, headers and body.
        zipped: The same with the body compressed; ``plain`` when it is too short to gain.
    """

    plain: bytes
    zipped: bytes

    @classmethod
    def of(cls, body: bytes, *, gzip: bool) -> Ready:
        """Make both forms; compresses, so not on the loop when the body is long."""
        return cls.of_replies(success(body), success(body, zipped=gzip))

    @classmethod
    def of_replies(cls, plain: Reply, zipped: Reply) -> Ready:
        """Take both forms as they were made; of a short body they are alike."""
        made = _response(plain)
        return cls(made, made if zipped.body is plain.body else _response(zipped))

    @property
    def size_bytes(self) -> int:
        """Bytes that it holds."""
        twice = 0 if self.zipped is self.plain else len(self.zipped)
        return len(self.plain) + twice + _ENTRY_BYTES


def _response(reply: Reply) -> bytes:
    return reply.head() + reply.body


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
        self._order: deque[tuple[dict[Any, Any], Hashable, int]] = deque()

    @property
    def largest(self) -> int:
        """Bytes of the largest answer that is kept, or held whole while it is sent."""
        return self._budget.limit_bytes // _LARGEST

    def put(self, answers: dict[Any, Any], key: Hashable, ready: Ready) -> None:
        """Keep an answer; the oldest ones go when the budget is exceeded."""
        size = ready.size_bytes
        if size > self.largest:
            return
        with self._lock:
            if key in answers:
                return
            answers[key] = ready
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
    """Answers the routes of ``fsview.routes`` from the views of a service."""

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
        if len(self._tables) < _SPELLINGS:
            self._tables[base_path] = table
        return table

    def reply(
        self, route: Route, params: Mapping[str, str], *, zipped: bool, indented: bool
    ) -> Reply:
        """Answer a request; may sync, list and compress.

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
        if route.part_to_dto is not None and not indented:
            parts = view.in_parts(route.name, **route.arguments(params))
            said = route.encode_parts(parts, PathForms.of(base_path))
            return streamed(said, self.kept.largest, zipped=zipped and self._gzip)
        body = route.encode(route.answer(view, params), PathForms.of(base_path))
        plain = success(body)
        small = success(body, zipped=self._gzip) if zipped or route.hot else plain
        if route.hot:
            self._keep(view.snapshot, route, params, Ready.of_replies(plain, small))
        if indented:
            return success(pretty(body), zipped=zipped and self._gzip)
        return small if zipped else plain

    def _view_for(self, table: TableView, route: Route, params: Mapping[str, str]) -> LocalView:
        if not route.synced or params.get(REFRESH_OFF, "").lower() == "true":
            return table.newest()
        return table.at(params.get(LAST_INSTANT, NO_INSTANT), params.get(TIMELINE_HASH, ""))

    def ready(self, route: Route, params: Mapping[str, str], table: TableView) -> Ready | None:
        """Return an answer that needs no waiting, or ``None``; runs on the loop.

        A whole partition's answer is there or not. One file group's is also made here when the
        snapshot and the partition are held: that is cheaper than handing the request on.
        """
        snapshot = table.held(params.get(LAST_INSTANT, NO_INSTANT), params.get(TIMELINE_HASH, ""))
        if snapshot is None:
            return None
        version = _version(snapshot, params)
        if version is None:
            return None
        key = _key(snapshot, route, params)
        ready: Ready | None = version.answers.get(key)
        if ready is None and is_of_group(route):
            view = LocalView(table, snapshot)
            body = route.encode(route.answer(view, params), PathForms.of(params[BASE_PATH]))
            ready = Ready.of(body, gzip=self._gzip and len(body) < _ON_LOOP_BYTES)
            self.kept.put(version.answers, key, ready)
        if ready is not None and not route.name.endswith("_stateless"):
            table.mark_loaded((version.partition,))
        return ready

    def _keep(
        self, snapshot: Snapshot, route: Route, params: Mapping[str, str], ready: Ready
    ) -> None:
        version = _version(snapshot, params)
        if version is not None:
            self.kept.put(version.answers, _key(snapshot, route, params), ready)


def is_of_group(route: Route) -> bool:
    """Whether a route asks for one file group of a partition."""
    return any(param.argument == "file_id" for param in route.params)


def _version(snapshot: Snapshot, params: Mapping[str, str]) -> PartitionVersion | None:
    """Return the version that a request's answer comes from alone, if it is held.

    A version with ghosts isn't: what it answers may come from a newer snapshot, or be refused.
    """
    version = snapshot.files.versions.get(_partition(params))
    return None if version is None or version.has_ghosts else version


def _partition(params: Mapping[str, str]) -> str:
    return params.get(PARTITION.name, "").removesuffix("/")


def _key(snapshot: Snapshot, route: Route, params: Mapping[str, str]) -> Hashable:
    """Return what tells apart the answers that one version of a partition gives."""
    return (
        route.name,
        snapshot.epoch,
        params[BASE_PATH],
        *(params.get(param.name) for param in route.params[1:]),
    )

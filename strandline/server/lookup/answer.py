"""``Answers``: from a request's ``Question`` to bytes, computed once per version of a partition.

There are two ways. ``Answers.reply`` runs on a thread and may sync a view, list a partition and
compress. ``Answers.ready`` runs on the loop and never waits: it returns cached bytes, computes a
cheap answer, or returns ``None``. Both compute and cache in the same way, so their answers are
equal.

**Ready bytes** of a partition or of one file group are cached in the ``PartitionVersion`` that they
were computed from, so they need no invalidation: a commit makes new versions of the partitions it
names, and the bytes of all others stay valid. The key is the query, its arguments, the snapshot's
epoch and the spelling of the base path. ``AnswerCache`` has the budget of all of them: when they
exceed it, the oldest are dropped (FIFO).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from sys import getsizeof
from typing import Any, Final, NamedTuple, TypeVar

from fsview.files.partition import PartitionVersion
from fsview.local_view import HeldView, LocalView, NotHeldError
from fsview.metrics import Metrics
from fsview.query.latest_json import NEWEST
from fsview.snapshot.snapshot import Snapshot
from fsview.store.budget import Account, Budget
from fsview.table_view import Lease, TableView
from fsview.view_manager import ViewManager, not_served
from fsview.wire.column_form import COLUMNS
from fsview.wire.json_form import PathForms
from fsview.wire.param import (
    BASE_PATH,
    LAST_INSTANT,
    NO_INSTANT,
    PARTITION,
    PRETTY,
    REFRESH_OFF,
    TIMELINE_HASH,
)
from fsview.wire.routes import BY_NAME, Route
from strandline.server.http.reply import SUCCESS, TEXT, Accepted, Reply, pretty, streamed, success
from timeline.errors import InputError, StrandlineError

AnswerKey = tuple[Any, ...]
"""Identifies an answer among those of one version of a partition: texts, numbers, ``None``."""

_LARGEST: Final = 8
"""Answers larger than an eighth of the budget aren't cached, and those about a whole table are
streamed."""
_ENTRY_BYTES: Final = 512
"""Memory of a cached answer beyond its own bytes and its key's: dictionary slots, objects."""


_Entries = deque[tuple[dict[Any, Any], AnswerKey, int]]
"""The answers of one table in the order of their caching: version's dictionary, key, bytes."""


class AnswerCache:
    """The ready bytes of all partition versions, dropped first in, first out.

    ``_by_table`` has the entries of each table. ``_order`` has one reference to its table's entries
    for each answer of any table: the oldest answer of all is the first entry of the first
    reference. So a table's answers are dropped without a pass over those of the others; its
    references stay as stale ones until they are the majority.

    ``_lock`` guards both and ``_stale``, the number of stale references. An entry refers to its
    version's dictionary, so bytes of versions that are otherwise forgotten stay counted until they
    are dropped.
    """

    def __init__(self, account: Account, budget: Budget) -> None:
        self._account = account
        self._budget = budget
        account.evict = self._evict
        self._lock = threading.Lock()
        self._by_table: dict[TableView, _Entries] = {}
        self._order: deque[_Entries] = deque()
        self._stale = 0

    @property
    def largest(self) -> int:
        """Largest answer, in bytes, that is cached, or held as a whole while it is sent."""
        return self._budget.limit_bytes // _LARGEST

    def put(
        self, table: TableView, answers: dict[Any, Any], key: AnswerKey, response: bytes
    ) -> None:
        """Cache a whole response unless its table is closed; drop the oldest beyond the budget.

        The key counts, too: its content and length are the client's choice.

        Args:
            table: The table of the version.
            answers: Of the version.
            key: Of the answer.
            response: The response.
        """
        size = len(response) + _ENTRY_BYTES + sum(map(getsizeof, key))
        if size > self.largest:
            return
        with self._lock:
            # Loop and threads may compute the same answer; it is counted once.
            # After ``forget_closed`` the answer of a request that ends late would never be dropped.
            if key in answers or table.is_closed:
                return
            answers[key] = response
            entries = self._by_table.get(table)
            if entries is None:
                entries = self._by_table[table] = deque()
            entries.append((answers, key, size))
            self._order.append(entries)
        # Outside the lock, which ``make_room`` may take in ``_evict``.
        self._account.add(size)
        self._budget.make_room()

    def _evict(self, wanted: int) -> int:
        """Drop the oldest answers until ``wanted`` bytes are free; see ``Budget``."""
        freed = 0
        with self._lock:
            while freed < wanted and self._order:
                entries = self._order.popleft()
                if not entries:  # of a table that was closed
                    self._stale -= 1
                    continue
                answers, key, size = entries.popleft()
                answers.pop(key, None)
                freed += size
        self._account.add(-freed)
        return freed

    def forget_closed(self) -> None:
        """Drop the answers of the tables that were closed.

        Cost: one step for each table, and for each answer of the closed ones.
        """
        with self._lock:
            closed = [table for table in self._by_table if table.is_closed]
        self._drop(closed)

    def forget(self, table: TableView) -> None:
        """Drop the answers of one table that was closed."""
        self._drop([table])

    def _drop(self, closed: list[TableView]) -> None:
        with self._lock:
            dropped = [self._take(table) for table in closed if table in self._by_table]
            # Amortized: each pass removes at least as many references as it keeps.
            if self._stale > len(self._order) // 2:
                self._order = deque(filter(None, self._order))
                self._stale = 0
        # Outside the lock, for which the loop would wait: nobody else refers to these entries.
        freed = 0
        for answers, key, size in chain.from_iterable(dropped):
            answers.pop(key, None)
            freed += size
        self._account.add(-freed)

    def _take(self, table: TableView) -> _Entries:
        """Return a table's entries, and leave stale references to them; ``_lock`` is held."""
        entries = self._by_table.pop(table)
        taken = entries.copy()
        # Emptied, not replaced, as ``_order`` refers to it.
        entries.clear()
        self._stale += len(taken)
        return taken

    def status(self) -> dict[str, int]:
        """Return how many answers are cached, and their bytes."""
        with self._lock:
            return {"answers": len(self._order) - self._stale, "bytes": self._account.used}


T = TypeVar("T")

REQUESTS: Final = "requests"
"""Counter of requests, by table, route and way (computed or ready)."""
REQUESTS_CPU_US: Final = "requests_cpu_us"
"""Counter of the CPU time of threads that compute answers, by table, in microseconds."""

AS_OF_INSTANT: Final = "strandline-last-instant"
AS_OF_HASH: Final = "strandline-timeline-hash"
"""Headers of answers to requests without a timeline: the timeline they were answered at."""

TARGET_BYTES: Final = 4096
"""Longest query that may be answered from ready bytes."""

_NEWEST: Final = BY_NAME["latest_base_files"]
_LOAD: Final = BY_NAME["load_partitions"]
_SPELLINGS: Final = 1024
_SPELLED_CHARACTERS: Final = 1024
"""Longer spellings of base paths aren't cached: no budget counts their memory."""
_ON_LOOP_BYTES: Final = 12 * 1024
"""Partitions with more bytes of packed files aren't answered on the loop: a hundred groups of three
files are as many, and take 0.3 ms."""
_GROUP_ON_LOOP_BYTES: Final = 2 * 1024
"""Groups with more bytes of packed files aren't answered on the loop: sixty logs are as many, and
take 0.4 ms."""


class Question(NamedTuple):
    """What a request asks of a table's view: made once of its parameters, and passed on.

    Attributes:
        route: The route.
        base_path: The table's base path in the client's spelling.
        arguments: Of the view's method.
        partition: Which it is about, without a slash at the end; empty if it is of none.
        pin: Last instant and hash of the client's timeline; ``None``: it names none.
        wants_held: Whether the newest snapshot that is held will do.
        accepted: The forms that the client accepts.
        indented: Whether to indent the body, which is then never in columns.
        key: Identifies the answer among those of a version and an epoch.
    """

    route: Route
    base_path: str
    arguments: Mapping[str, Any]
    partition: str
    pin: tuple[str, str] | None
    wants_held: bool
    accepted: Accepted
    indented: bool
    key: AnswerKey

    @classmethod
    def of(cls, route: Route, params: Mapping[str, str], accepted: Accepted) -> Question:
        """Return the question of a request.

        Args:
            route: The route.
            params: The request's parameters.
            accepted: The forms that the client accepts.

        Raises:
            InputError: A parameter is missing or can't be read.
        """
        base_path = params.get(BASE_PATH, "")
        if not base_path:
            raise InputError(f"{route.path} needs the parameter {BASE_PATH!r}, which is missing")
        pin = None
        if TIMELINE_HASH in params:
            pin = params.get(LAST_INSTANT, NO_INSTANT), params[TIMELINE_HASH]
        arguments = route.arguments(params)
        return cls(
            route,
            base_path,
            arguments,
            arguments.get(PARTITION.argument, "").removesuffix("/"),
            pin,
            not route.synced or params.get(REFRESH_OFF, "").lower() == "true",
            accepted,
            PRETTY in params,
            # As text, which hashes and compares faster than the arguments.
            (route.name, accepted, base_path, *[params.get(param.name) for param in route.params]),
        )


class Answers:
    """Answers the routes of ``fsview.wire.routes`` from the views of a service."""

    def __init__(self, views: ViewManager, metrics: Metrics, *, gzip: bool = True) -> None:
        self._views = views
        self._metrics = metrics
        self._gzip = gzip
        self._tables: dict[str, TableView] = {}
        self.cache = AnswerCache(views.stores.answers, views.stores.budget)

    def known_table(self, base_path: str) -> TableView | None:
        """Return the table that ``reply`` resolved this base path to before; never waits."""
        table = self._tables.get(base_path)
        # Its root may have been removed since, and its ready bytes must not be sent any more.
        return None if table is None or table.is_closed else table

    def newest_hash(self, base_path: str) -> str | None:
        """Return the timeline hash of the newest snapshot of a known table; never waits."""
        table = self.known_table(base_path)
        history = None if table is None else table.state.held
        return None if history is None else history.newest.timeline.hash

    def forget_unserved(self) -> None:
        """Drop the answers of closed tables, and have all base paths resolved again.

        Call it after a root was removed or resolves elsewhere: a spelling may no longer be served
        although its table still is, under another root.
        """
        self._tables = {}
        self.cache.forget_closed()

    def forget(self, table: TableView) -> None:
        """Drop the cached answers of a table that was closed."""
        tables = self._tables
        # Copied in one step: requests add to it meanwhile.
        for spelled, known in list(tables.items()):
            if known is table:
                tables.pop(spelled, None)
        self.cache.forget(table)

    def _leased(self, base_path: str) -> Lease:
        """Resolve a base path to a lease of its table; may read the file system (links)."""
        # Read before the roots: a path resolved by roots that have changed meanwhile goes into a
        # mapping that ``forget_unserved`` has replaced.
        tables = self._tables
        lease = self._views.lease(base_path)
        if len(tables) >= _SPELLINGS and base_path not in tables:
            self._tables = {}  # replaced, not cleared: the loop reads it concurrently
        elif len(base_path) <= _SPELLED_CHARACTERS:
            tables[base_path] = lease.table
        return lease

    def reply(
        self,
        question: Question,
        *,
        has_left: Callable[[], bool] = lambda: False,
    ) -> Reply:
        """Answer a request; may sync, list and compress.

        Args:
            question: What it asks.
            has_left: Whether the client has disconnected, which ends work on a whole table or on a
                long list of partitions.

        Raises:
            StrandlineError: The request is refused, or storage fails.
        """
        began_s = time.thread_time()
        route, lease = question.route, self._leased(question.base_path)
        table = lease.table
        self._metrics.add(REQUESTS, table=str(table.table_id), route=route.name, way="computed")
        with refusing_if_closed(table):
            view = _view_for(table, question)
            # A streamed reply holds the view.
            view.lease = lease
            reply = self._reply(view, question, has_left)
        took_us = round(1e6 * (time.thread_time() - began_s))
        self._metrics.add(REQUESTS_CPU_US, took_us, table=str(table.table_id))
        self._views.close_excess()
        if route.synced and question.pin is None:
            return replace(reply, headers={**reply.headers, **as_of(view.snapshot)})
        return reply

    def view_for(self, name: str, params: Mapping[str, str]) -> LocalView:
        """Return the view at a client's timeline; may sync.

        Args:
            name: Under which the request is counted.
            params: The request's parameters.

        Raises:
            StrandlineError: The request is refused, or storage fails.
        """
        base_path = params.get(BASE_PATH, "")
        if not base_path:
            raise InputError(f"{name} needs the parameter {BASE_PATH!r}, which is missing")
        question = Question.of(_NEWEST, params, Accepted())
        lease = self._leased(base_path)
        table = lease.table
        self._metrics.add(REQUESTS, table=str(table.table_id), route=name, way="computed")
        with refusing_if_closed(table):
            view = _view_for(table, question)
        view.lease = lease
        return view

    def _reply(self, view: LocalView, question: Question, has_left: Callable[[], bool]) -> Reply:
        route, zipped = question.route, question.accepted.zipped and self._gzip
        if route.part_form is not None and not question.indented:
            parts = view.in_parts(route.name, **question.arguments)
            paths = PathForms.of(question.base_path)
            encoded = route.encode_parts(while_wanted(parts, has_left), paths)
            return streamed(encoded, self.cache.largest, zipped=zipped)
        if route is _LOAD:
            view.load_partitions(**question.arguments, go_on=partial(check_wanted, has_left))
            return success(route.encode(None, PathForms.of(question.base_path)))
        if question.indented:
            return success(pretty(_body(view, question)), zipped=zipped)
        reply = self._made(view, question)
        version = _version(view.snapshot, question)
        # The hot path skips longer queries, so it would never find their answers.
        is_short = sum(map(len, filter(None, question.key[2:]))) <= TARGET_BYTES
        if is_short and (route.hot or is_of_group(route)) and version is not None:
            key = (view.snapshot.epoch, *question.key)
            self.cache.put(view.table, version.answers, key, whole(reply))
        return reply

    def _made(self, view: LocalView, question: Question) -> Reply:
        """Return the answer in the best form that the client accepts."""
        route, zipped = question.route, question.accepted.zipped and self._gzip
        if question.accepted.columns and route.has_columns:
            body = view.newest_in_columns(route.name, **question.arguments)
            if body is None:
                body = route.encode_columns(route.answer(view, question.arguments))
            return success(body, zipped=zipped, content_type=COLUMNS)
        return success(_body(view, question), zipped=zipped)

    def ready(self, question: Question, table: TableView) -> bytes | None:
        """Return a response as of ``whole`` without waiting, or ``None``; runs on the loop.

        A response that isn't cached is computed if snapshot and partition are in memory and that
        costs less than handing the request to a thread: for one file group, or a small partition.
        """
        if question.pin is None:  # a request for the newest state needs a sync
            return None
        # One snapshot for key and answer: a sync may publish another meanwhile.
        snapshot = table.held(*question.pin)
        if snapshot is None:
            return None
        version = _version(snapshot, question)
        if version is None:
            return None
        key = (snapshot.epoch, *question.key)
        response: bytes | None = version.answers.get(key)
        if response is None:
            try:
                reply = self._made_on_loop(HeldView(table, snapshot), version, question)
            except NotHeldError:  # ``reply`` reads the archive, or reports data that the store lost
                return None
            if reply is None:
                return None
            response = whole(reply)
            self.cache.put(table, version.answers, key, response)
        if not question.route.name.endswith("_stateless"):
            table.loaded.mark((version.partition,))
        table.was_used = True
        return response

    def _made_on_loop(
        self, view: LocalView, version: PartitionVersion, question: Question
    ) -> Reply | None:
        route, arguments, accepted = question.route, question.arguments, question.accepted
        if is_of_group(route):
            if version.group_bytes(arguments["file_id"]) > _GROUP_ON_LOOP_BYTES:
                return None
            return self._made(view, question)
        if route.name not in NEWEST or version.size_bytes > _ON_LOOP_BYTES:
            return None
        if accepted.columns and route.has_columns:
            body = view.newest_in_columns(route.name, plain_only=True, **arguments)
            kind = COLUMNS
        else:
            paths = PathForms.of(question.base_path)
            body = view.newest_as_json(route.name, paths, plain_only=True, **arguments)
            kind = TEXT
        zipped = accepted.zipped and self._gzip
        return None if body is None else success(body, zipped=zipped, content_type=kind)


def _body(view: LocalView, question: Question) -> bytes:
    route, paths, body = question.route, PathForms.of(question.base_path), None
    if route.name in NEWEST:
        arguments = question.arguments
        body = view.newest_as_json(route.name, paths, plain_only=False, **arguments)
    return route.encode(route.answer(view, question.arguments), paths) if body is None else body


def _view_for(table: TableView, question: Question) -> LocalView:
    if question.wants_held:
        return LocalView.newest(table)
    if question.pin is None:  # a person with curl: Hudi's clients always send it
        return LocalView.synced(table)
    return LocalView.at(table, *question.pin)


@contextmanager
def refusing_if_closed(table: TableView) -> Iterator[None]:
    """Map the failure of a request whose table was closed to the refusal of an unserved table.

    Raises:
        RootNotAllowedError: The request failed after the table was closed.
    """
    try:
        yield
    except StrandlineError as exc:
        if table.is_closed:
            raise not_served(table.table_id) from exc
        raise


def while_wanted(parts: Iterable[T], has_left: Callable[[], bool]) -> Iterator[T]:
    """Yield parts until the client has disconnected; then raise."""
    for part in parts:
        check_wanted(has_left)
        yield part


def check_wanted(has_left: Callable[[], bool]) -> None:
    """Raise an error, to end the work, if the client has disconnected."""
    if has_left():
        raise InputError("the client has left")


def is_of_group(route: Route) -> bool:
    """Whether a route is about one file group of a partition."""
    return any(param.argument == "file_id" for param in route.params)


def _version(snapshot: Snapshot, question: Question) -> PartitionVersion | None:
    """Return the version that alone decides a request's answer, if it is in memory.

    A version with files of unknown size doesn't: its answers may come from a newer snapshot, or be
    refused.
    """
    try:
        version = snapshot.files.versions[question.partition]
    except KeyError:
        return None
    return None if version.has_ghosts else version


def as_of(snapshot: Snapshot) -> dict[str, str]:
    """Return headers with the timeline of an answer, in the form in which clients send it."""
    timeline = snapshot.client_timeline
    last = NO_INSTANT if timeline.last is None else timeline.last.requested_time
    return {AS_OF_INSTANT: last, AS_OF_HASH: timeline.hash}


def whole(reply: Reply) -> bytes:
    """Return the bytes of a whole response after its status line; see ``SUCCESS``."""
    return reply.head()[len(SUCCESS) :] + reply.body

"""``Answers``: from a request's parameters to bytes, computed once per version of a partition.

There are two ways. ``Answers.reply`` runs on a thread and may sync a view, list a partition and
compress. ``Answers.ready`` runs on the loop and never waits: it returns cached bytes, computes a
cheap answer, or returns ``None``. Both compute and cache in the same way, so their answers are
equal.

**Ready bytes** of a partition or of one file group are cached in the ``PartitionVersion`` that they
were computed from, so they need no invalidation: a commit makes new versions of the partitions it
names, and the bytes of all others stay valid. The key is the query, its arguments, the snapshot's
epoch and the spelling of the base path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from fsview.files.partition import PartitionVersion
from fsview.local_view import HeldView, LocalView, NotHeldError
from fsview.metrics import Metrics
from fsview.query.latest_json import NEWEST
from fsview.snapshot.snapshot import Snapshot
from fsview.table_view import Lease, TableView
from fsview.view_manager import ViewManager, not_served
from fsview.wire.column_form import COLUMNS
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
from strandline.server.http.reply import TEXT, Accepted, Reply, pretty, streamed, success
from strandline.server.lookup.answer_cache import AnswerCache, AnswerKey
from timeline.errors import InputError, StrandlineError

T = TypeVar("T")

REQUESTS: Final = "requests"
"""Counter of requests, by table, route and way (computed or ready)."""

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
        route: Route,
        params: Mapping[str, str],
        accepted: Accepted,
        *,
        indented: bool = False,
        has_left: Callable[[], bool] = lambda: False,
    ) -> Reply:
        """Answer a request; may sync, list and compress.

        Args:
            route: The route.
            params: The request's parameters.
            accepted: The forms that the client accepts.
            indented: Whether to indent the body, which is then never in columns.
            has_left: Whether the client has disconnected, which ends work on a whole table or on a
                long list of partitions.

        Raises:
            StrandlineError: The request is refused, or storage fails.
        """
        base_path = params.get(BASE_PATH, "")
        if not base_path:
            raise InputError(f"{route.path} needs the parameter {BASE_PATH!r}, which is missing")
        route.arguments(params)  # refuse missing arguments before a view is opened
        lease = self._leased(base_path)
        table = lease.table
        self._metrics.add(REQUESTS, table=str(table.table_id), route=route.name, way="computed")
        with refusing_if_closed(table):
            view = self._view_for(table, route, params)
            # A streamed reply holds the view.
            view.lease = lease
            reply = self._reply(view, route, params, accepted, indented, has_left)
        self._views.close_excess()
        if route.synced and TIMELINE_HASH not in params:
            return replace(reply, headers={**reply.headers, **as_of(view.snapshot)})
        return reply

    def view_for(self, name: str, params: Mapping[str, str]) -> LocalView:
        """Return the view at a client's timeline; may sync.

        Args:
            name: Under which the request is counted.
            params: As for ``reply``.

        Raises:
            StrandlineError: The request is refused, or storage fails.
        """
        base_path = params.get(BASE_PATH, "")
        if not base_path:
            raise InputError(f"{name} needs the parameter {BASE_PATH!r}, which is missing")
        lease = self._leased(base_path)
        table = lease.table
        self._metrics.add(REQUESTS, table=str(table.table_id), route=name, way="computed")
        with refusing_if_closed(table):
            view = self._view_for(table, _NEWEST, params)
        view.lease = lease
        return view

    def _reply(
        self,
        view: LocalView,
        route: Route,
        params: Mapping[str, str],
        accepted: Accepted,
        indented: bool,
        has_left: Callable[[], bool],
    ) -> Reply:
        if route.part_form is not None and not indented:
            parts = view.in_parts(route.name, **route.arguments(params))
            paths = PathForms.of(params[BASE_PATH])
            encoded = route.encode_parts(while_wanted(parts, has_left), paths)
            return streamed(encoded, self.cache.largest, zipped=accepted.zipped and self._gzip)
        if route is _LOAD:
            view.load_partitions(**route.arguments(params), go_on=partial(check_wanted, has_left))
            return success(route.encode(None, PathForms.of(params[BASE_PATH])))
        if indented:
            body = pretty(self._body(view, route, params))
            return success(body, zipped=accepted.zipped and self._gzip)
        reply = self._made(view, route, params, accepted)
        version = _version(view.snapshot, params)
        # The hot path skips longer queries, so it would never find their answers.
        is_short = sum(map(len, params.values())) <= TARGET_BYTES
        if is_short and (route.hot or is_of_group(route)) and version is not None:
            key = _key(view.snapshot, route, params, accepted)
            self.cache.put(view.table, version.answers, key, whole(reply))
        return reply

    def _made(
        self, view: LocalView, route: Route, params: Mapping[str, str], accepted: Accepted
    ) -> Reply:
        """Return the answer in the best form that the client accepts."""
        zipped = accepted.zipped and self._gzip
        if accepted.columns and route.has_columns:
            body = view.newest_in_columns(route.name, **route.arguments(params))
            if body is None:
                body = route.encode_columns(route.answer(view, params))
            return success(body, zipped=zipped, content_type=COLUMNS)
        return success(self._body(view, route, params), zipped=zipped)

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
        if TIMELINE_HASH not in params:  # a person with curl: Hudi's clients always send it
            return LocalView.synced(table)
        return LocalView.at(table, params.get(LAST_INSTANT, NO_INSTANT), params[TIMELINE_HASH])

    def ready(
        self, route: Route, params: Mapping[str, str], table: TableView, accepted: Accepted
    ) -> bytes | None:
        """Return a whole response without waiting, or ``None``; runs on the loop.

        A response that isn't cached is computed if snapshot and partition are in memory and that
        costs less than handing the request to a thread: for one file group, or a small partition.
        """
        timeline_hash = params.get(TIMELINE_HASH)
        if timeline_hash is None:  # a request for the newest state needs a sync
            return None
        # One snapshot for key and answer: a sync may publish another meanwhile.
        snapshot = table.held(params.get(LAST_INSTANT, NO_INSTANT), timeline_hash)
        if snapshot is None:
            return None
        version = _version(snapshot, params)
        if version is None:
            return None
        key = _key(snapshot, route, params, accepted)
        response: bytes | None = version.answers.get(key)
        if response is None:
            try:
                view = HeldView(table, snapshot)
                reply = self._made_on_loop(view, version, route, params, accepted)
            except NotHeldError:  # ``reply`` reads the archive, or reports data that the store lost
                return None
            if reply is None:
                return None
            response = whole(reply)
            self.cache.put(table, version.answers, key, response)
        if not route.name.endswith("_stateless"):
            table.loaded.mark((version.partition,))
        table.was_used = True
        return response

    def _made_on_loop(
        self,
        view: LocalView,
        version: PartitionVersion,
        route: Route,
        params: Mapping[str, str],
        accepted: Accepted,
    ) -> Reply | None:
        if is_of_group(route):
            file_id = route.arguments(params)["file_id"]
            if version.group_bytes(file_id) > _GROUP_ON_LOOP_BYTES:
                return None
            return self._made(view, route, params, accepted)
        if route.name not in NEWEST or version.size_bytes > _ON_LOOP_BYTES:
            return None
        arguments, zipped = route.arguments(params), accepted.zipped and self._gzip
        if accepted.columns and route.has_columns:
            body = view.newest_in_columns(route.name, plain_only=True, **arguments)
            kind = COLUMNS
        else:
            paths = PathForms.of(params[BASE_PATH])
            body = view.newest_as_json(route.name, paths, plain_only=True, **arguments)
            kind = TEXT
        return None if body is None else success(body, zipped=zipped, content_type=kind)


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


def _version(snapshot: Snapshot, params: Mapping[str, str]) -> PartitionVersion | None:
    """Return the version that alone decides a request's answer, if it is in memory.

    A version with files of unknown size doesn't: its answers may come from a newer snapshot, or be
    refused.
    """
    version = snapshot.files.versions.get(params.get(PARTITION.name, "").removesuffix("/"))
    return None if version is None or version.has_ghosts else version


def as_of(snapshot: Snapshot) -> dict[str, str]:
    """Return headers with the timeline of an answer, in the form in which clients send it."""
    timeline = snapshot.client_timeline
    last = NO_INSTANT if timeline.last is None else timeline.last.requested_time
    return {AS_OF_INSTANT: last, AS_OF_HASH: timeline.hash}


def whole(reply: Reply) -> bytes:
    """Return the bytes of a whole response."""
    return reply.head() + reply.body


def _key(
    snapshot: Snapshot, route: Route, params: Mapping[str, str], accepted: Accepted
) -> AnswerKey:
    """Return the key of an answer in its version's cache."""
    return (
        route.name,
        accepted,
        snapshot.epoch,
        params[BASE_PATH],
        *(params.get(param.name) for param in route.params[1:]),
    )

"""``RemoteView``: the timeline service's view of a table at one instant.

Requests are built from the service's own route table (``fsview.wire.routes``). The view is pinned:
each request carries the hash of its timeline, and the answer is that of this timeline, whatever has
been committed since, or a ``ViewBehindError``. Any server that has the table may give it. Requests
at no instant go to the service's first address; any other address must sync first.

Source: Hudi 1.2.0 ``RemoteHoodieTableFileSystemView``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from itertools import chain
from operator import ne
from typing import Any, Final

from executor_proxy.failover import ServiceClient
from executor_proxy.http import HttpSession
from executor_proxy.worker_state import LookupCache, memory_of
from fsview.model.file_system_view import FileSystemView, LookupQuery
from fsview.wire.json_form import PathForms
from fsview.wire.lookup_form import LOOKUP_PATH, MOST_LOOKUPS, read_answers, write_queries
from fsview.wire.param import BASE_PATH, LAST_INSTANT, TIMELINE_HASH
from fsview.wire.routes import BY_NAME, FIXED_BY_TIMELINE, JSON, Route
from timeline.encoding.json_text import dumps
from timeline.errors import RemoteFailureError, ViewBehindError
from timeline.timeline import Timeline

_NO_CACHE: Final = LookupCache(0)
_SYNC: Final = BY_NAME["sync"]

MOST_BYTES: Final = 1 << 20
"""Longest body of a request: the service's default (``strandline.service.body.max.bytes``)."""
Batch = list[tuple[int, LookupQuery]]
"""Queries of one request, each with the number of the original query that it is (a part of)."""


@dataclass(frozen=True, slots=True)
class _Pin:
    """The timeline a view is pinned to; ``timeline`` is ``None`` if only its hash is known."""

    last_instant: str
    timeline_hash: str
    timeline: Timeline | None


class RemoteView(FileSystemView):
    """The service's view of one table.

    Thread-safe; ``_takes_batches``, whether the server has the route of batched look-ups, only
    turns false.

    Args:
        service: The service that is asked.
        base_path: The table's base path in the caller's spelling, which answers use, too.
        last_instant: Requested time of the caller's last instant, ``""`` if there is none.
        timeline_hash: Hash of the caller's timeline.
        answers: Returns the cache of answers that the timeline's hash determines.
    """

    def __init__(
        self,
        service: ServiceClient,
        base_path: str,
        last_instant: str,
        timeline_hash: str,
        answers: Callable[[], LookupCache] = lambda: _NO_CACHE,
    ) -> None:
        self._service = service
        self._answers = answers
        self._base_path = base_path
        self._paths = PathForms.of(base_path)
        self._pin = _Pin(last_instant, timeline_hash, None)
        self._takes_batches = True

    def __repr__(self) -> str:
        pin = self._pin
        return f"RemoteView({self._service}, {self._base_path!r}, at={pin.last_instant!r})"

    @property
    def urls(self) -> tuple[str, ...]:
        """The service's addresses."""
        return self._service.urls

    @property
    def pin(self) -> tuple[str, str]:
        """The last instant and the timeline hash that requests carry."""
        return self._pin.last_instant, self._pin.timeline_hash

    def close(self) -> None:
        """Do nothing: connections are shared by views and outlive them."""

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the service; the view's own timeline is requested at most once.

        Raises:
            ServiceError: No valid answer came.
            ViewBehindError: The service can't answer at this view's timeline.
        """
        if name == "timeline":
            return self._timeline()
        if name == "last_instant":
            return self._timeline().last
        # Read once: another thread's ``sync`` must not put this answer under the new pin's key.
        pin = self._pin
        answer, body = self._call(pin, BY_NAME[name], arguments)
        key = self._key(pin, name, arguments)
        if key is not None:
            self._answers().put(key, answer, memory_of(body, answer))
        if name == "sync":
            self.pin_to(self._call(pin, BY_NAME["timeline"], {})[0])
        return answer

    def pin_to(self, timeline: Timeline) -> None:
        """Move the view to a timeline of clients."""
        # Replaced as a whole: another thread's request has the old pin or the new one.
        self._pin = _Pin(timeline.last_time, timeline.hash, timeline)

    def cached(self, name: str, arguments: Mapping[str, Any]) -> tuple[Any] | None:
        """Return an answer from the cache, in a tuple; ``None`` if it isn't cached."""
        return self._cached(self._pin, name, arguments)

    def _cached(self, pin: _Pin, name: str, arguments: Mapping[str, Any]) -> tuple[Any] | None:
        key = self._key(pin, name, arguments)
        return None if key is None else self._answers().get(key)

    def look_up(self, queries: Sequence[LookupQuery]) -> tuple[tuple[Any, ...], ...]:
        """See ``FileSystemView``: as few requests as possible, for the uncached look-ups.

        Raises:
            ServiceError: No valid answer came.
            ViewBehindError: The service can't answer at this view's timeline.
        """
        if not self._takes_batches:
            return super().look_up(queries)
        # Read once, so that cached and new answers are of one timeline.
        pin = self._pin
        found: dict[Hashable, Any] = {}
        missing = self._missing(pin, queries, found)
        if missing:
            try:
                self._look_up(pin, missing, found)
            except RemoteFailureError as error:
                if error.answered not in (
                    HTTPStatus.NOT_FOUND,
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                ):
                    raise
                if error.answered == HTTPStatus.NOT_FOUND:
                    self._takes_batches = False  # a server of Hudi
                return super().look_up(queries)
        return tuple(_collected(query, found) for query in queries)

    def _missing(
        self, pin: _Pin, queries: Sequence[LookupQuery], found: dict[Hashable, Any]
    ) -> list[LookupQuery]:
        """Return queries for uncached answers, each once; add cached answers to ``found``."""
        queries_to_send = []
        asked: set[Hashable] = set()
        for query in map(LookupQuery.without_repeats, queries):
            partitions = []
            for unit in _units(query):
                key, cached = _unit_key(query, unit), self._cached(pin, query.name, unit)
                if cached is not None:
                    found[key] = cached[0]
                elif key not in asked and query.answers:
                    asked.add(key)
                    partitions.append(unit["partition"])
            if partitions:
                queries_to_send.append(replace(query, partitions=tuple(partitions)))
        return queries_to_send

    def _look_up(
        self, pin: _Pin, queries: Sequence[LookupQuery], found: dict[Hashable, Any]
    ) -> None:
        """Ask the service; add the answers to ``found``, and cache them."""
        collected: list[list[Any]] = [[] for _ in queries]
        memory = 0
        for batch in batches(queries):
            asked = [part for _, part in batch]
            is_pinned = bool(pin.timeline_hash)
            body = self._send(
                pin, "POST", LOOKUP_PATH, {}, write_queries(asked), is_pinned=is_pinned
            )
            batch_answers = read_answers(asked, body)
            memory += memory_of(body, _files_in(asked, batch_answers))
            for (number, _), part in zip(batch, batch_answers, strict=True):
                collected[number] += part
        size = memory // sum(query.parts for query in queries)
        for query, answers in zip(queries, map(tuple, collected), strict=True):
            parts = (answers,) if query.is_of_groups else answers
            for unit, answer in zip(_units(query), parts, strict=True):
                found[_unit_key(query, unit)] = answer
                key = self._key(pin, query.name, unit)
                if key is not None:
                    self._answers().put(key, answer, size)

    def _key(self, pin: _Pin, name: str, arguments: Mapping[str, Any]) -> Hashable | None:
        """Return the cache key of an answer; ``None`` if the timeline doesn't determine it."""
        if name not in FIXED_BY_TIMELINE or not pin.timeline_hash:
            return None
        at = (self._service.urls, self._base_path, pin.last_instant, pin.timeline_hash)
        return (*at, name, *sorted(arguments.items()))

    def _call(self, pin: _Pin, route: Route, arguments: dict[str, Any]) -> tuple[Any, bytes]:
        """Return the service's answer at a pin, decoded and as its body."""
        query = route.query(**arguments)
        is_pinned = route.synced and bool(pin.timeline_hash)
        body = self._send(
            pin, route.method, route.path, query, accept=route.accept, is_pinned=is_pinned
        )
        answer = route.decode(body, self._paths, partition=arguments.get("partition"))
        return answer, body

    def _send(
        self,
        pin: _Pin,
        method: str,
        path: str,
        arguments: Mapping[str, str],
        content: bytes = b"",
        accept: str = JSON,
        *,
        is_pinned: bool,
    ) -> bytes:
        """Return the body of the service's answer; ``is_pinned``: the pin determines it."""
        params = {BASE_PATH: self._base_path, TIMELINE_HASH: pin.timeline_hash, **arguments}
        if pin.last_instant:
            params[LAST_INSTANT] = pin.last_instant

        def send(session: HttpSession, within_s: float) -> bytes:
            if not is_pinned and path != _SYNC.path and session.url != self.urls[0]:
                # Only the owner is notified of commits; other servers may lag.
                within_s /= 2
                session.request(_SYNC.method, _SYNC.path, params, is_safe=True, within_s=within_s)
            # Look-ups change nothing, and a repeated ``refresh/`` or load does no harm.
            return session.request(
                method, path, params, content, accept=accept, is_safe=True, within_s=within_s
            )

        return self._service.ask(send, is_shared=is_pinned)

    def _timeline(self) -> Timeline:
        """Return the pinned timeline, found among earlier states of the service's newest timeline.

        Raises:
            ViewBehindError: It wasn't found: instants of it were archived or rolled back.
        """
        pin = self._pin
        if pin.timeline is not None:
            return pin.timeline
        newest: Timeline = self._call(pin, BY_NAME["timeline"], {})[0]
        for timeline in _earlier(newest):
            if timeline.hash == pin.timeline_hash:
                if self._pin is pin:  # else another thread has moved the view since
                    self._pin = _Pin(pin.last_instant, pin.timeline_hash, timeline)
                return timeline
        raise ViewBehindError(
            f"the service's timeline ends with {newest.last} and no longer contains the view's,"
            f" which ends with {pin.last_instant or 'nothing'}"
        )


def _units(query: LookupQuery) -> Iterator[dict[str, Any]]:
    """Yield the arguments of each answer that is cached as one: a partition's, or all groups'.

    A partition's arguments are those of the single query, which shares the cached answer.
    """
    if query.is_of_groups:
        yield {"partition": query.partitions[0], "file_ids": query.file_ids}
    else:
        yield from query.arguments()


def _files_in(queries: Sequence[LookupQuery], answers: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return the base files and slices in the answers to queries."""
    files: list[Any] = []
    for query, parts in zip(queries, answers, strict=True):
        files.extend(parts if query.is_of_groups else chain.from_iterable(parts))
    return files


def _unit_key(query: LookupQuery, unit: Mapping[str, Any]) -> Hashable:
    return (query.name, *sorted(unit.items()))


def _collected(query: LookupQuery, found: Mapping[Hashable, Any]) -> tuple[Any, ...]:
    """Return the answers of a query, whose units may occur repeatedly."""
    if not query.is_of_groups:
        return tuple(found[_unit_key(query, unit)] for unit in _units(query))
    if not query.file_ids:
        return ()
    unique = query.without_repeats()
    answers = found[_unit_key(unique, next(_units(unique)))]
    by_id = dict(zip(unique.file_ids, answers, strict=True))
    return tuple(by_id[file_id] for file_id in query.file_ids)


def _earlier(newest: Timeline) -> Iterator[Timeline]:
    """Yield the timeline, then without the instant that completed last, and so on."""
    completed = sorted(newest.completed(), key=lambda i: i.completion_time or i.requested_time)
    timeline = newest
    while True:
        yield timeline
        yield timeline.client_timeline()
        if not completed:
            return
        timeline = timeline.filter(partial(ne, completed.pop()))


def batches(
    queries: Sequence[LookupQuery],
    *,
    most_lookups: int = MOST_LOOKUPS,
    most_bytes: int = MOST_BYTES,
) -> Iterator[Batch]:
    """Yield the queries in as few requests as fit; a query may be split between two.

    Args:
        queries: The queries.
        most_lookups: Most partitions, file groups and queries of one request together.
        most_bytes: Longest body. A single longer name is sent nevertheless.
    """
    count = len(queries) + sum(query.answers for query in queries)
    if count <= most_lookups and len(write_queries(queries)) <= most_bytes:
        yield list(enumerate(queries))
        return
    batch: Batch = []
    left_lookups, left_bytes = most_lookups, most_bytes - len(write_queries([]))
    for number, query in enumerate(queries):
        names = query.file_ids if query.is_of_groups else query.partitions
        # Includes the comma between two queries.
        frame_bytes = len(write_queries([_part(query, ())])) + 1
        first = 0
        while first < len(names):
            end, lookups, size = first, 1, frame_bytes
            while end < len(names) and lookups < left_lookups:
                size += len(dumps(names[end])) + 1
                if size > left_bytes and (batch or end > first):
                    size -= len(dumps(names[end])) + 1
                    break
                end, lookups = end + 1, lookups + 1
            if end > first:
                batch.append((number, _part(query, names[first:end])))
                left_lookups, left_bytes = left_lookups - lookups, left_bytes - size
            if end < len(names):
                yield batch
                batch = []
                left_lookups, left_bytes = most_lookups, most_bytes - len(write_queries([]))
            first = end
    if batch:
        yield batch


def _part(query: LookupQuery, names: tuple[str, ...]) -> LookupQuery:
    """Return a query of some of its partitions or file groups."""
    if query.is_of_groups:
        return replace(query, file_ids=names)
    return replace(query, partitions=names)

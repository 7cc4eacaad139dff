"""``BatchedAnswers``: many look-ups in one request, all answered from one snapshot.

The parts of an answer are cached with the versions of the partitions that they were computed from,
as single answers are (``strandline.server.lookup.answer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from fsview.local_view import LocalView
from fsview.model.file_system_view import LookupQuery
from fsview.wire.column_form import pick_groups, write_columns
from fsview.wire.lookup_form import join_parts
from fsview.wire.param import TIMELINE_HASH
from strandline.server.http.reply import Reply, streamed
from strandline.server.lookup.answer import (
    Answers,
    as_of,
    check_wanted,
    refusing_if_closed,
    while_wanted,
)
from timeline.errors import InputError

LOOKUP: Final = "lookup"
"""Name of these requests in the metrics."""
_WHOLE_BYTES: Final = 1000
"""Bytes of a whole partition's files that are read in the time of one query of a file group."""

MOST_BYTES: Final = 256 << 20
"""Longest answer; clients refuse longer ones (``executor_proxy.exchange.MAX_BODY_BYTES``)."""


class BatchedAnswers:
    """Answers batched look-ups from the views of a service."""

    def __init__(self, answers: Answers, *, gzip: bool = True) -> None:
        self._answers = answers
        self._gzip = gzip

    def reply(
        self,
        queries: Sequence[LookupQuery],
        params: Mapping[str, str],
        *,
        zipped: bool,
        has_left: Callable[[], bool],
    ) -> Reply:
        """Answer queries at one instant; may sync, list and compress.

        Args:
            queries: The queries.
            params: The request's parameters, with the table and the client's timeline.
            zipped: Whether the client accepts gzip.
            has_left: Whether the client has disconnected, which ends the work.

        Raises:
            StrandlineError: The request is refused, or storage fails.
        """
        view = self._answers.view_for(LOOKUP, params)
        with refusing_if_closed(view.table):
            return self._reply(view, queries, params, zipped, has_left)

    def _reply(
        self,
        view: LocalView,
        queries: Sequence[LookupQuery],
        params: Mapping[str, str],
        zipped: bool,
        has_left: Callable[[], bool],
    ) -> Reply:
        held = view.snapshot.files.versions
        names = dict.fromkeys(name for query in queries for name in query.partitions)
        if any(name.removesuffix("/") not in held for name in names):
            # All of them: paths that are no partitions may be forgotten while others are listed.
            view.load_partitions(names, go_on=partial(check_wanted, has_left))
        parts = (part for query in queries for part in self._parts(view, query))
        body = bounded(join_parts(queries, while_wanted(parts, has_left)))
        reply = streamed(body, self._answers.cache.largest, zipped=zipped and self._gzip)
        if TIMELINE_HASH in params:
            return reply
        return replace(reply, headers={**reply.headers, **as_of(view.snapshot)})

    def _parts(self, view: LocalView, query: LookupQuery) -> Iterator[bytes]:
        """Yield the parts of a query's answer, one for each partition."""
        if not query.is_of_groups:
            for arguments in query.arguments():
                yield self._part(view, query, arguments)
            return
        (partition,) = query.partitions
        if _is_whole_cheaper(view, query):
            whole = LookupQuery(f"{query.name}s", query.partitions)
            part = self._part(view, whole, {"partition": partition})
            yield pick_groups(query.name, query.file_ids, part)
        else:
            found = [view.ask(query.name, **each) for each in query.arguments()]
            yield write_columns(query.name, found)

    def _part(self, view: LocalView, query: LookupQuery, arguments: Mapping[str, Any]) -> bytes:
        """Return the part of a query's answer about one partition, cached if possible."""
        name = arguments["partition"].removesuffix("/")
        version = view.snapshot.files.versions.get(name)
        if version is None or version.has_ghosts:  # such a version doesn't decide its answers alone
            return write_columns(query.name, view.ask(query.name, **arguments))
        key = (LOOKUP, query.name, query.max_instant, view.snapshot.epoch)
        part: bytes | None = version.answers.get(key)
        if part is None:
            part = view.newest_in_columns(query.name, **arguments)
            if part is None:
                part = write_columns(query.name, view.ask(query.name, **arguments))
            self._answers.cache.put(view.table, version.answers, key, part)
        else:
            view.table.loaded.mark((name,))
        return part


def bounded(body: Iterable[bytes], most_bytes: int = MOST_BYTES) -> Iterator[bytes]:
    """Yield a body in parts, up to a length.

    Raises:
        InputError: It is longer. Once the answer's head is sent, this closes the connection.
    """
    size = 0
    for part in body:
        size += len(part)
        if size > most_bytes:
            raise InputError(
                f"the answer to these queries is longer than {most_bytes} bytes; ask for less"
            )
        yield part


def _is_whole_cheaper(view: LocalView, query: LookupQuery) -> bool:
    """Whether one query of the whole partition costs less than one for each file group."""
    version = view.snapshot.files.versions.get(query.partitions[0].removesuffix("/"))
    # With files of unknown size the whole partition may be refused, but not the queried groups.
    if version is None or version.has_ghosts:
        return False
    return len(query.file_ids) * _WHOLE_BYTES >= version.size_bytes

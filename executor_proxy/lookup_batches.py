"""Splits batched look-ups into requests that the service takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from fsview.model.lookup_query import LookupQuery
from fsview.wire.lookup_form import MOST_LOOKUPS, write_queries
from timeline.encoding.json_text import dumps

MOST_BYTES: Final = 1 << 20
"""Longest body of a request: the service's default (``strandline.service.body.max.bytes``)."""

Batch = list[tuple[int, LookupQuery]]
"""Queries of one request, each with the number of the query that it is all or a part of."""


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
        most_bytes: Longest body. A single name that is longer is sent all the same.
    """
    count = len(queries) + sum(query.answers for query in queries)
    if count <= most_lookups and len(write_queries(queries)) <= most_bytes:
        yield list(enumerate(queries))
        return
    batch: Batch = []
    left_lookups, left_bytes = most_lookups, most_bytes - len(write_queries([]))
    for number, query in enumerate(queries):
        names = query.file_ids if query.is_of_groups else query.partitions
        # With the comma between two queries.
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

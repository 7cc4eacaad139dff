"""``batches``: requests within the service's bounds, which together ask everything in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from executor_proxy.remote_view import batches
from fsview.model.file_system_view import LookupQuery
from fsview.wire.lookup_form import write_queries

NAMES = st.lists(st.text(max_size=20).filter(str.isprintable), min_size=1, max_size=12).map(tuple)
QUERIES = st.one_of(
    NAMES.map(lambda names: LookupQuery("latest_base_files", names)),
    NAMES.map(lambda names: LookupQuery("latest_file_slice", ("p",), names)),
    NAMES.map(lambda names: LookupQuery("latest_base_files_before_or_on", names, max_instant="1")),
)


def names_of(query: LookupQuery) -> tuple[str, ...]:
    return query.file_ids if query.is_of_groups else query.partitions


@given(st.lists(QUERIES, max_size=6), st.integers(3, 20), st.integers(300, 900))
def test_batches_are_within_their_bounds_and_ask_everything_in_order(queries, lookups, size):
    collected = [()] * len(queries)
    for batch in batches(queries, most_lookups=lookups, most_bytes=size):
        parts = [part for _, part in batch]
        assert len(write_queries(parts)) <= size
        assert len(parts) + sum(part.answers for part in parts) <= lookups
        for number, part in batch:
            collected[number] += names_of(part)
    assert collected == [names_of(query) for query in queries]


def test_what_fits_is_one_request():
    queries = [LookupQuery("latest_base_files", ("a", "b")), LookupQuery("latest_base_files", ())]
    assert list(batches(queries)) == [list(enumerate(queries))]


def test_a_name_longer_than_a_request_is_sent_alone():
    query = LookupQuery("latest_base_files", ("a", "b" * 999, "c"))
    found = [names_of(part) for ((_, part),) in batches([query], most_bytes=200)]
    assert found == [("a",), ("b" * 999,), ("c",)]

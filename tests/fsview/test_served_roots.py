"""A table's id below its root as it was given."""

from __future__ import annotations

import pytest

from fsview.served_roots import ServedRoots
from timeline.storage.table_id import TableId


@pytest.mark.parametrize(
    ("roots", "resolved", "given"),
    [
        ({}, "/mnt/lake/t", "/mnt/lake/t"),
        ({"/lake": "/lake"}, "/lake/t", "/lake/t"),
        ({"/lake": "/mnt/lake"}, "/mnt/lake/hot/t", "/lake/hot/t"),
        ({"/lake": "/mnt/lake"}, "/mnt/lake", "/lake"),
        ({"/lake": "/mnt/lake"}, "/mnt/lakes/t", "/mnt/lakes/t"),
        ({"/b": "/mnt", "/a": "/mnt"}, "/mnt/t", "/a/t"),
        ({"/lake": "/mnt", "/mnt": "/mnt"}, "/mnt/t", "/mnt/t"),
        ({"/lake": "/mnt", "/mnt/hot": "/mnt/hot"}, "/mnt/hot/t", "/mnt/hot/t"),
        ({"/lake": "/mnt", "s3a://b": "s3a://b"}, "s3://b/t", "s3://b/t"),
    ],
)
def test_a_table_is_named_below_its_root_as_that_was_given(
    roots: dict[str, str], resolved: str, given: str
) -> None:
    served = ServedRoots()
    for root, real in roots.items():
        served = served.with_root(root, TableId.of(real))
    table_id = TableId.of(resolved)
    assert served.as_given(table_id) == TableId.of(given)
    if table_id.family == "file" and served.serve(table_id):
        assert served.place_of(TableId.of(given).path) == table_id.path

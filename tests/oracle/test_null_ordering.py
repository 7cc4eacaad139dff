"""Ordering values that are null, and dates: real Hudi reads both as Java's ``Integer``."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from strandline.records.meta_fields import IS_DELETED
from strandline.table_api.table import Table
from tests.oracle.hudi import Hudi, rows_of

STORED: Final = (None, -9, 0, 9)
RECORDS: Final = (None, -5, 0, 5)
"""Deletes have a test of their own: Hudi fails to write those with a date, or to read them."""
DELETES: Final[tuple[tuple[str, str, int | None, str, set[str]], ...]] = (
    ("int", "ts", 5, "", {"9"}),
    ("int", "ts", None, "", set()),
    ("int", "ts", 0, "", set()),
    ("int", "ts", -5, "", {"None", "0", "9"}),
    ("date", "ts", None, "", set()),
    ("date", "ts", 5, "UnresolvedUnionException", {"None", "-9", "0", "9"}),
    ("date", "ts,seq", 5, "ClassCastException", {"9"}),
    ("date", "ts,seq", -5, "ClassCastException", {"None", "0", "9"}),
    ("date", "ts,seq", None, "Union is malformed", {"9"}),
)
"""Type of ``ts``, ordering fields, a delete's ``ts``, Hudi's error, the rows that it leaves."""


def day(number: int) -> datetime.date:
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=number)


KINDS: Final[dict[str, tuple[pa.DataType, Callable[[int], Any]]]] = {
    "int": (pa.int32(), int),
    "date": (pa.date32(), day),
}


def options(operation: str, fields: str) -> dict[str, str]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": fields,
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
        ),
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.bulkinsert.shuffle.parallelism": "1",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.clean.automatic": "false",
    }


@pytest.mark.oracle
@pytest.mark.parametrize("fields", ["ts", "ts,seq"])
@pytest.mark.parametrize("kind", KINDS)
def test_nulls_are_read_as_hudi_reads_them(
    hudi: Hudi, tmp_path: Path, kind: str, fields: str
) -> None:
    """A stored row, and one or two records of logs, of which each is a commit."""
    type_, value = KINDS[kind]
    schema = pa.schema(
        [("id", pa.string()), ("ts", type_), ("seq", pa.int32()), ("v", pa.string())]
    )

    def row(key: str, number: int | None, v: str) -> dict[str, Any]:
        ts = None if number is None else value(number)
        return {"id": key, "ts": ts, "seq": 0, "v": v}

    cases = [
        (f"{old}: {first}, {second}", old, first, second)
        for old, first, second in itertools.product(STORED, RECORDS, (*RECORDS, "none"))
    ]
    path = tmp_path / "t"
    batches = (
        ("bulk_insert", [row(key, old, "stored") for key, old, _, _ in cases]),
        ("upsert", [row(key, first, "1") for key, _, first, _ in cases]),
        ("upsert", [row(key, second, "2") for key, _, _, second in cases if second != "none"]),
    )
    for operation, rows in batches:
        table = pa.Table.from_pylist(rows, schema)
        hudi.write(table, path, options(operation, fields), partitions=1)
    found = {row["id"]: row["v"] for row in rows_of(Table(str(path)).to_arrow())}
    assert found == {row["id"]: row["v"] for row in hudi.read(path)}


@pytest.mark.oracle
@pytest.mark.parametrize(("kind", "fields", "number", "error", "kept"), DELETES)
def test_flagged_deletes_leave_what_hudi_leaves_as_far_as_it_can(
    hudi: Hudi,
    tmp_path: Path,
    kind: str,
    fields: str,
    number: int | None,
    error: str,
    kept: set[str],
) -> None:
    """Hudi fails to write a delete with a date, or with two fields to read what it wrote. (#32)"""
    type_, value = KINDS[kind]
    schema = pa.schema(
        [("id", pa.string()), ("ts", type_), ("seq", pa.int32()), (IS_DELETED, pa.bool_())]
    )

    def rows(ts: Callable[[int | None], int | None], *, deleted: bool) -> pa.Table:
        days = ((old, ts(old)) for old in STORED)
        made = [
            {"id": str(old), "ts": None if day is None else value(day), "seq": 0}
            for old, day in days
        ]
        return pa.Table.from_pylist([{**row, IS_DELETED: deleted} for row in made], schema)

    path, failure = tmp_path / "t", ""
    stored = rows(lambda old: old, deleted=False)
    hudi.write(stored, path, options("bulk_insert", fields), partitions=1)
    try:
        deletes = rows(lambda _: number, deleted=True)
        hudi.write(deletes, path, options("upsert", fields), partitions=1)
        assert {row["id"] for row in hudi.read(path)} == kept
    except Py4JJavaError as caught:
        failure = str(caught)
    assert error in failure
    assert bool(failure) == bool(error)
    assert {row["id"] for row in rows_of(Table(str(path)).to_arrow())} == kept

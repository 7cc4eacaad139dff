"""Ordering values that are null, and dates: real Hudi reads both as Java's ``Integer``."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from strandline.table_api.table import Table
from tests.oracle.hudi import Hudi, rows_of

STORED: Final = (None, -9, 0, 9)
RECORDS: Final = (None, -5, 0, 5)
"""No deletes: Hudi fails to write one with a date, and to merge one whose value is null."""


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

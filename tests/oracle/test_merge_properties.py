"""Tables that real Hudi creates with payloads of partial updates and of change data.

Hudi stores what such a payload means as properties of the table, and obeys them from then on.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from strandline.table_api.table import Table
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.oracle.hudi import Hudi, rows_of
from timeline.storage.local import LocalStorage
from timeline.table.config_file import read_table_config

UNAVAILABLE: Final = "__debezium_unavailable_value"
STEPS: Final = 3
_INNER: Final = pa.struct([("a", pa.int32()), ("b", pa.string())])
_COLUMNS: Final = [
    ("id", pa.string()),
    ("v", pa.string()),
    ("n", pa.int32()),
    ("flag", pa.bool_()),
    ("inner", _INNER),
    ("tags", pa.list_(pa.string())),
]


@dataclass(frozen=True)
class Kind:
    """A payload, its ordering column, and the column and value that mark deletes."""

    payload: str
    ordering: str = "ts"
    field: str = "_hoodie_is_deleted"
    marker: Any = True
    options: tuple[tuple[str, str], ...] = ()


KINDS: Final = {
    "partial": Kind("PartialUpdateAvroPayload"),
    "non-defaults": Kind("OverwriteNonDefaultsWithLatestAvroPayload"),
    "dms": Kind("AWSDmsAvroPayload", field="Op", marker="D"),
    "postgres": Kind(
        "debezium.PostgresDebeziumAvroPayload", "_event_lsn", "_change_operation_type", "d"
    ),
    "own marker": Kind(
        "DefaultHoodieRecordPayload",
        field="status",
        marker="gone",
        options=(
            ("hoodie.payload.delete.field", "status"),
            ("hoodie.payload.delete.marker", "gone"),
        ),
    ),
}


def options(kind: Kind, table_type: str, operation: str) -> dict[str, str]:
    """Return Hudi's options of a table without partitions, written by one task."""
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.{kind.payload}",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": kind.ordering,
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
        ),
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.bulkinsert.shuffle.parallelism": "1",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.clean.automatic": "false",
        "hoodie.parquet.small.file.limit": "0",
        **dict(kind.options),
    }


def batches(kind: Kind, seed: int) -> Iterator[pa.Table]:
    """Yield random rows: first to be stored, then of one write each, in their order."""
    rng = random.Random(seed)
    marked = pa.bool_() if kind.marker is True else pa.string()
    schema = pa.schema([*_COLUMNS, (kind.ordering, pa.int64()), (kind.field, marked)])

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.45 else value

    def row(key: int, *, deletes: float) -> dict[str, Any]:
        plain = False if kind.marker is True else "c"
        return {
            "id": f"k{key:02}",
            "v": maybe(rng.choice([UNAVAILABLE, f"v{rng.randrange(99)}"])),
            "n": maybe(rng.randrange(5)),
            "flag": maybe(rng.random() < 0.5),
            "inner": maybe({"a": maybe(rng.randrange(5)), "b": maybe(UNAVAILABLE)}),
            "tags": maybe([UNAVAILABLE, "t"]),
            kind.ordering: rng.randrange(1, 9),
            kind.field: kind.marker if rng.random() < deletes else plain,
        }

    yield pa.Table.from_pylist([row(key, deletes=0) for key in range(30)], schema)
    for _ in range(STEPS):
        keys = [rng.randrange(40) for _ in range(30)]
        yield pa.Table.from_pylist([row(key, deletes=0.2) for key in keys], schema)


def our_rows(path: Path) -> list[dict[str, Any]]:
    return rows_of(Table(str(path)).to_arrow())


def changed(path: Path) -> set[str]:
    """Return the keys of the rows that the newest commit has written, as readers see it."""
    rows = Table(str(path)).to_arrow().to_pylist()
    newest = max(row["_hoodie_commit_time"] for row in rows)
    return {row["id"] for row in rows if row["_hoodie_commit_time"] == newest}


@pytest.mark.oracle
@pytest.mark.parametrize("name", KINDS)
def test_our_writer_merges_as_hudi(hudi: Hudi, tmp_path: Path, name: str) -> None:
    """The same rows, from the same batches, and the same of them have changed."""
    kind, theirs, ours = KINDS[name], tmp_path / "theirs", tmp_path / "ours"
    stored, *updates = batches(kind, 7)
    first = options(kind, "COPY_ON_WRITE", "bulk_insert")
    hudi.write(stored, theirs, first, partitions=1)
    shutil.copytree(theirs, ours)
    properties = read_table_config(LocalStorage(str(ours))).properties
    assert any("partial.update" in key or "merge.property" in key for key in properties)
    client = WriteClient(
        LocalEngine(tasks=1, cores=1), str(ours), {"hoodie.embed.timeline.server": "false"}
    )
    with client:
        for batch in updates:
            hudi.write(batch, theirs, options(kind, "COPY_ON_WRITE", "upsert"), partitions=1)
            client.upsert(batch)
            expected = hudi.read(theirs)
            assert our_rows(ours) == expected
            assert our_rows(theirs) == expected
            assert changed(ours) == changed(theirs)
    assert hudi.read(ours) == expected
    hudi.write(updates[0], ours, options(kind, "COPY_ON_WRITE", "upsert"), partitions=1)
    hudi.write(updates[0], theirs, options(kind, "COPY_ON_WRITE", "upsert"), partitions=1)
    assert hudi.read(ours) == hudi.read(theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("name", KINDS)
def test_our_reader_merges_logs_as_hudi(hudi: Hudi, tmp_path: Path, name: str) -> None:
    kind, path = KINDS[name], tmp_path / "t"
    stored, *updates = batches(kind, 8)
    hudi.write(stored, path, options(kind, "MERGE_ON_READ", "bulk_insert"), partitions=1)
    for batch in updates:
        hudi.write(batch, path, options(kind, "MERGE_ON_READ", "upsert"), partitions=1)
        assert our_rows(path) == hudi.read(path)


@pytest.mark.oracle
@pytest.mark.parametrize("name", KINDS)
def test_our_logs_are_merged_as_hudis(hudi: Hudi, tmp_path: Path, name: str) -> None:
    """The same batches into two tables: each reader gets the same rows from both."""
    kind, theirs, ours = KINDS[name], tmp_path / "theirs", tmp_path / "ours"
    stored, *updates = batches(kind, 9)
    hudi.write(stored, theirs, options(kind, "MERGE_ON_READ", "bulk_insert"), partitions=1)
    shutil.copytree(theirs, ours)
    own = {"hoodie.embed.timeline.server": "false", "hoodie.parquet.small.file.limit": "0"}
    with WriteClient(LocalEngine(tasks=1, cores=1), str(ours), own) as client:
        for batch in updates:
            hudi.write(batch, theirs, options(kind, "MERGE_ON_READ", "upsert"), partitions=1)
            client.upsert(batch)
            expected = hudi.read(theirs)
            assert hudi.read(ours) == expected
            assert our_rows(ours) == expected

"""Merge-on-read tables: real Hudi and our writer read each other's logs.

After each step rows equal a plain model's, in Hudi's snapshot query, in hudi-rs and in our reader;
the read-optimised query of both gives the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiReadOptions, HudiTableBuilder
from py4j.protocol import Py4JJavaError

from strandline import Table
from strandline.records.meta_fields import IS_DELETED
from strandline.records.schema.avro_schema import arrow_to_avro
from strandline.table_services.rollback.policy import FOREIGN
from tests.oracle.hudi import HUDI_0, Hudi, Rows, rows_of
from tests.oracle.tables import SCHEMA, die_before_completion, ours, rides, theirs, writer
from tests.oracle.turns.table_form import PAYLOADS
from tests.oracle.view.walk import REFUSE_COMMIT
from timeline.encoding.log_block import COMMAND, INSTANT_TIME, TARGET_INSTANT_TIME, read_blocks

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).parents[2]

MOR = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
NO_COMPACTION = {"hoodie.compact.inline": "false"}
COMPACTION = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}
COMMIT_TIME = "COMMIT_TIME_ORDERING"
FORMS = [
    pytest.param(version, more, id=f"{version}, {name}")
    for version in (6, 8, 9)
    for name, more in {
        "event time": {},
        "Parquet": {"hoodie.logfile.data.block.format": "parquet"},
        "commit time": {"hoodie.record.merge.mode": COMMIT_TIME},
        "Bloom": {"hoodie.index.type": "BLOOM"},
        "global": {"hoodie.index.type": "GLOBAL_SIMPLE"},
        "buckets": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
        "new files": {"hoodie.parquet.small.file.limit": "0"},
        "small logs": {
            "hoodie.logfile.max.size": "1",
            "hoodie.logfile.data.block.max.size": "1",
        },
    }.items()
]


class Shared:
    """A table that both writers write, and the rows that it must have.

    Args:
        hudi: The session.
        path: The table's base path.
        version: Its version.
        more: Options for both writers.
    """

    def __init__(
        self, hudi: Hudi, path: Path, version: int, more: Mapping[str, str] | None = None
    ) -> None:
        self.hudi, self.path, self.version = hudi, path, version
        self.more = {**MOR, **(more or {})}
        self.by_time = self.more.get("hoodie.record.merge.mode") != COMMIT_TIME
        self.is_bucket = self.more.get("hoodie.index.type") == "BUCKET"
        self.rows: dict[str, dict[str, Any]] = {}

    @property
    def expected(self) -> Rows:
        return [self.rows[key] for key in sorted(self.rows)]

    @property
    def ours(self) -> dict[str, str]:
        return {**ours(self.version), **self.more}

    def we(self, operation: str, data: pa.Table, **options: str) -> None:
        more = {name.replace("__", "."): value for name, value in options.items()}
        with writer(self.path, self.ours | more) as client:
            getattr(client, operation)(data)
        self.happened(operation, data)
        self.check()

    def they(self, operation: str, data: pa.Table, *, checks: bool = True, **options: str) -> None:
        self.hudi.write(data, self.path, self.theirs(operation, **options), partitions=1)
        self.happened(operation, data)
        if checks:
            self.check()

    def theirs(self, operation: str, **options: str) -> dict[str, str]:
        named = theirs(self.version, operation)
        mode = self.more.get("hoodie.record.merge.mode")
        if mode:
            named["hoodie.write.record.merge.mode"] = mode
        if not self.hudi.is_1:
            mode = named.pop("hoodie.write.record.merge.mode")
            named["hoodie.datasource.write.payload.class"] = PAYLOADS[mode]
        more = {k: v for k, v in self.more.items() if k != "hoodie.record.merge.mode"}
        given = {name.replace("_", "."): value for name, value in options.items()}
        index = {} if "hoodie.index.type" in more else {"hoodie.index.type": "SIMPLE"}
        return {**named, **NO_COMPACTION, **index, **more, **given}

    def happened(self, operation: str, data: pa.Table) -> None:
        for row in rows_of(data):
            flagged, key = row.pop(IS_DELETED, False), row["id"]
            held = self.rows.get(key)
            if operation == "delete":
                self.rows.pop(key, None)
            elif held is not None and self.by_time and row["ts"] < held["ts"]:
                continue
            elif flagged:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row

    def check(self) -> None:
        assert _plain(rows_of(Table(self.path).to_arrow())) == self.expected
        assert _plain(self.hudi.read(self.path)) == self.expected
        # Of version 6 hudi-rs leaves out logs on top of a planned compaction, Hudi's own, too.
        planned = list((self.path / ".hoodie").glob("*.compaction.requested"))
        if all(each.with_name(f"{each.name[:17]}.commit").exists() for each in planned):
            assert _plain(rows_of(_by_hudi_rs(self.path))) == self.expected
        optimized = self.hudi.read(self.path, hoodie_datasource_query_type="read_optimized")
        own = Table(self.path).scan(read_optimized=True).to_arrow()
        # Without logs a record that has moved is in both partitions.
        found, theirs = (
            sorted(repr(sorted(row.items())) for row in _plain(each))
            for each in (rows_of(own), optimized)
        )
        assert found == theirs

    def logs(self) -> list[str]:
        found = (file.name for file in self.path.rglob(".*.log.*"))
        return sorted(name for name in found if not name.endswith(".crc"))


def _plain(rows: Iterable[dict[str, Any]]) -> Rows:
    return [{k: v for k, v in row.items() if k != IS_DELETED} for row in rows]


def _by_hudi_rs(path: Path) -> pa.Table:
    table = HudiTableBuilder.from_base_uri(path.as_uri()).build()
    return pa.Table.from_batches(map(pa.record_batch, table.read(HudiReadOptions())))


def flagged(data: pa.Table, deletes: Iterable[bool]) -> pa.Table:
    """Return rows with the column that marks deletes."""
    return data.append_column(IS_DELETED, pa.array(list(deletes), pa.bool_()))


@pytest.mark.parametrize(("version", "more"), FORMS)
def test_taking_turns(hudi: Hudi, tmp_path: Path, version: int, more: dict[str, str]) -> None:
    table = Shared(hudi, tmp_path / "rides", version, more)
    table.we("insert", rides(range(30), ts=5))
    assert table.logs() == []
    # New keys go to the one small file of each partition, and updates join its rewrite.
    table.we("upsert", rides(range(0, 40, 3), ts=6))
    table.we("upsert", rides(range(0, 20, 2), ts=4, note="late"))
    assert table.logs()
    table.they("upsert", rides(range(5, 45, 4), ts=7))
    table.we("delete", rides(range(0, 30, 10), ts=1))
    table.we("upsert", rides(range(0, 30, 5), ts=8, note="again"))
    table.they("delete", rides(range(3, 40, 9), ts=1))
    data = rides(range(6, 26), ts=7)
    table.we("upsert", flagged(data, (number % 3 == 0 for number in range(20))))
    table.they("upsert", rides(range(0, 50, 7), ts=9), **_named(COMPACTION))
    table.we("upsert", rides(range(0, 50, 6), ts=10))
    table.we("insert", rides(range(100, 110), ts=1))
    table.they("upsert", rides(range(0, 110, 9), ts=11))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_records_move_between_partitions(hudi: Hudi, tmp_path: Path, version: int) -> None:
    """Each finds the places of records that the other has moved or deleted in logs."""
    table = Shared(hudi, tmp_path / "rides", version, {"hoodie.index.type": "GLOBAL_BLOOM"})
    table.we("insert", rides(range(12), ts=2))
    table.we("upsert", rides(range(4), ts=3, city="new"))
    assert len(table.logs()) == 3
    table.they("upsert", rides(range(2, 7), ts=4, city="other"))
    table.we("upsert", rides(range(6), ts=5))
    table.we("upsert", rides(range(4, 12), ts=1, city="late"))
    table.we("delete", rides(range(3), ts=0, city="unknown"))
    table.they("upsert", rides(range(1, 9), ts=6, city="new"))
    table.we("upsert", rides(range(12), ts=7, city="other"))
    table.they("upsert", rides(range(0, 12, 2), ts=8), **_named(COMPACTION))
    table.we("upsert", rides(range(12), ts=9))


def test_beside_an_older_release(tmp_path: Path) -> None:
    """One process has one release."""
    command = [sys.executable, "-m", "tests.oracle.logs_of_version_6", HUDI_0, str(tmp_path)]
    turns = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert turns.returncode == 0, turns.stdout + turns.stderr[-8000:]


def _named(options: Mapping[str, str]) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in options.items()}


@pytest.mark.parametrize("version", [6, 8, 9])
def test_on_a_table_that_hudi_made(hudi: Hudi, tmp_path: Path, version: int) -> None:
    table = Shared(hudi, tmp_path / "rides", version)
    table.they("insert", rides(range(30), ts=5))
    table.they("upsert", rides(range(0, 30, 2), ts=6))
    table.we("upsert", rides(range(0, 30, 3), ts=7))
    table.we("delete", rides(range(0, 30, 6), ts=0))
    table.they("upsert", rides(range(0, 40, 4), ts=8), **_named(COMPACTION))
    table.we("upsert", rides(range(0, 40, 5), ts=9))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_each_rolls_back_what_the_other_left_pending(
    hudi: Hudi, tmp_path: Path, version: int
) -> None:
    table = Shared(hudi, tmp_path / "rides", version)
    table.we("insert", rides(range(20), ts=1))
    table.we("upsert", rides(range(0, 20, 2), ts=2))
    unseen = rides(range(30), ts=9, note="must never be seen")
    die_before_completion(table.path, table.ours, unseen)
    assert _left(table)
    table.check()
    table.they("upsert", rides(range(5), ts=3), checks=hudi.is_1)
    assert not _left(table)
    if not hudi.is_1:
        # It requests its rollback after its write, and until the next write doesn't read beyond it.
        table.we("upsert", rides(range(1), ts=3))
    with pytest.raises(Py4JJavaError):
        hudi.write(unseen, table.path, {**table.theirs("upsert"), **REFUSE_COMMIT})
    _expire_heartbeats(table.path)
    assert _left(table)
    table.check()
    table.we("upsert", rides(range(3, 8), ts=4), **{FOREIGN.name: "true"})
    assert not _left(table)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_completed_delta_commits_are_rolled_back(hudi: Hudi, tmp_path: Path, version: int) -> None:
    table = Shared(hudi, tmp_path / "rides", version)
    table.we("insert", rides(range(20), ts=1))
    kept = dict(table.rows)
    table.we("upsert", rides(range(0, 30, 2), ts=2))
    with writer(table.path, table.ours) as client:
        client.rollback(_newest(table.path))
    table.rows = dict(kept)
    table.check()
    table.we("upsert", rides(range(0, 30, 2), ts=2))
    _roll_back(hudi, table, _newest(table.path))
    table.rows = dict(kept)
    table.check()
    table.they("upsert", rides(range(0, 30, 2), ts=2))
    with writer(table.path, table.ours) as client:
        client.rollback(_newest(table.path))
    table.rows = dict(kept)
    table.check()
    assert _instants(table) == set()


def _roll_back(hudi: Hudi, table: Shared, instant: str) -> None:
    """Have Hudi's client roll a completed commit back."""
    spark: Any = hudi.spark
    schema, options = arrow_to_avro(SCHEMA, "rides"), table.theirs("upsert")
    made = hudi.jvm.org.apache.hudi.DataSourceUtils.createHoodieClient
    client = made(spark._jsc, schema, str(table.path), "rides", options)
    try:
        assert client.rollback(instant)
    finally:
        client.close()


def _newest(path: Path) -> str:
    return list(Table(path).commits())[-1].requested_time


def _expire_heartbeats(path: Path) -> None:
    folder = path / ".hoodie" / ".heartbeat"
    for beat in folder.iterdir() if folder.is_dir() else ():
        os.utime(beat, (0, 0))


def _left(table: Shared) -> set[str]:
    """Return the instants with blocks in logs that neither completed nor were rolled back."""
    return _instants(table) - {commit.requested_time for commit in Table(table.path).commits()}


def _instants(table: Shared) -> set[str]:
    """Return the instants with blocks in logs that no command rolls back."""
    writers, undone = set(), set()
    for path in table.path.rglob(".*.log.*"):
        if path.name.endswith(".crc") or ".hoodie" in path.parts[len(table.path.parts) : -1]:
            continue
        for block in read_blocks(path.read_bytes(), str(path)):
            if block.kind == COMMAND:
                undone.add(block.header[TARGET_INSTANT_TIME])
            else:
                writers.add(block.header[INSTANT_TIME])
    return writers - undone


@pytest.mark.parametrize("version", [6, 8, 9])
def test_writes_while_a_compaction_of_hudis_is_planned(
    hudi: Hudi, tmp_path: Path, version: int
) -> None:
    table = Shared(hudi, tmp_path / "rides", version)
    table.we("insert", rides(range(12), ts=1))
    table.we("upsert", rides(range(0, 12, 2), ts=2))
    _compact(hudi, table, "schedule")
    table.check()
    table.we("upsert", rides(range(0, 12, 3), ts=3))
    table.we("upsert", rides(range(0, 20, 4), ts=4))
    table.we("delete", rides(range(1, 12, 5), ts=0))
    with writer(table.path, table.ours) as client:
        client.clean()
    table.check()
    _compact(hudi, table, "run")
    table.check()
    table.we("upsert", rides(range(0, 20, 5), ts=5))
    before = dict(table.rows)
    table.we("upsert", rides(range(0, 20, 2), ts=6))
    with writer(table.path, table.ours) as client:
        client.rollback(_newest(table.path))
    table.rows = before
    table.check()


def _compact(hudi: Hudi, table: Shared, operation: str) -> None:
    """Have Hudi schedule a compaction, or run the planned ones."""
    hudi.call(
        f"call run_compaction(op => '{operation}', path => '{table.path}',"
        " options => 'hoodie.metadata.enable=false,hoodie.compact.inline.max.delta.commits=1"
        f",hoodie.write.auto.upgrade=false,hoodie.write.table.version={table.version}')"
    )

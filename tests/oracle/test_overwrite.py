"""Real Hudi reads the tables that we overwrite, goes on with them, and rolls overwrites back."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from strandline import Table
from tests.kit.storage.hooked_storage import HookedStorage
from tests.oracle.hudi import Hudi, Rows, merged, rows_of
from tests.oracle.tables import (
    FIRST,
    check,
    die_before_completion,
    newest_rows,
    ours,
    rides,
    theirs,
    writer,
)
from timeline.errors import WriteConflictError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEWER = rides((0, 3, 40), ts=1, note="overwritten")


def overwritten(rows: Rows, data: pa.Table) -> Rows:
    """Return the rows of a table whose partitions were overwritten with data."""
    new = rows_of(data)
    cities = {row["city"] for row in new}
    kept = [row for row in rows if row["city"] not in cities]
    assert 0 < len(kept) < len(rows)
    return sorted(kept + new, key=lambda row: row["id"])


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 8, 9])
def test_hudi_reads_and_updates_what_we_overwrite(hudi: Hudi, path: Path, version: int) -> None:
    expected = overwritten(rows_of(FIRST), NEWER)
    with writer(path, ours(version)) as client:
        client.insert_overwrite(NEWER)
    check(hudi, path, expected)
    update = rides(range(0, 45, 4), ts=7)
    hudi.write(update, path, theirs(version, "upsert", hoodie_index_type="SIMPLE"))
    expected = merged(expected, rows_of(update))
    check(hudi, path, expected)

    hudi.write(NEWER, path, theirs(version, "insert_overwrite"))
    expected = overwritten(expected, NEWER)
    check(hudi, path, expected)
    with writer(path, ours(version)) as client:
        client.insert_overwrite_table(NEWER)
        check(hudi, path, rows_of(NEWER))
        # Its replaced groups go, and those that Hudi replaced.
        cleaning = {"hoodie.clean.commits.retained": "1", "hoodie.clean.automatic": "false"}
    with writer(path, {**ours(version), **cleaning}) as client:
        client.upsert(rides((50,), ts=1))
        client.upsert(rides((50,), ts=2))
        assert client.clean().files_deleted > 0
    check(hudi, path, merged(rows_of(NEWER), rows_of(rides((50,), ts=2))))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_goes_on_with_the_buckets_that_we_overwrite(
    hudi: Hudi, tmp_path: Path, version: int
) -> None:
    path = tmp_path / "buckets"
    buckets = {"hoodie_index_type": "BUCKET", "hoodie_bucket_index_num_buckets": "4"}
    with writer(path, ours(version, **buckets)) as client:
        client.insert(FIRST)
        client.insert_overwrite(NEWER)
    expected = overwritten(rows_of(FIRST), NEWER)
    check(hudi, path, expected)
    update = rides(range(0, 45, 4), ts=7)
    hudi.write(update, path, theirs(version, "upsert", **buckets))
    check(hudi, path, merged(expected, rows_of(update)))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_rolls_back_an_overwrite_that_we_left_pending(
    hudi: Hudi, path: Path, version: int
) -> None:
    doomed = rides(range(30), ts=9, note="must never be seen")
    die_before_completion(path, ours(version), doomed, "insert_overwrite_table")
    update = rides(range(5), ts=7)
    hudi.write(update, path, theirs(version, "upsert", hoodie_index_type="SIMPLE"))
    check(hudi, path, merged(rows_of(FIRST), rows_of(update)))
    assert not any("must never be seen" in str(row) for row in newest_rows(path))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_rolls_back_an_overwrite_that_had_completed(
    hudi: Hudi, path: Path, version: int
) -> None:
    with writer(path, ours(version)) as client:
        instant = client.insert_overwrite(NEWER).instant
    check(hudi, path, overwritten(rows_of(FIRST), NEWER))
    spark: Any = hudi.spark
    options = {
        **theirs(version, "upsert"),
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.metadata.enable": "false",
    }
    avro = Table(str(path)).commit_metadata().avro_schema
    client = hudi.jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
        spark._jsc, avro, str(path), "rides", options
    )
    try:
        assert client.rollback(instant)
    finally:
        client.close()
    check(hudi, path, rows_of(FIRST))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_we_roll_back_an_overwrite_of_hudis(hudi: Hudi, path: Path, version: int) -> None:
    hudi.write(NEWER, path, theirs(version, "insert_overwrite"))
    expected = overwritten(rows_of(FIRST), NEWER)
    check(hudi, path, expected)
    completed = [each.name for each in path.rglob("*.replacecommit")]
    with writer(path, ours(version)) as client:
        client.rollback(completed[0][:17])
    check(hudi, path, rows_of(FIRST))


class _Gate:
    """Holds up whoever computes a frame's rows until it is opened.

    Args:
        folder: A folder of its own.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._arrived = folder / "arrived"
        os.mkfifo(self._arrived)
        self._file = (folder / "gate").open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def held(self, frame: DataFrame) -> DataFrame:
        """Return the frame, which waits at the gate in a task of its own."""
        from pyspark.sql.functions import col, udf

        arrived, gate = str(self._arrived), self._file.name

        def wait(note: str) -> str:
            with suppress(OSError):  # nobody listens any more
                os.close(os.open(arrived, os.O_WRONLY | os.O_NONBLOCK))
            with Path(gate).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH)
            return note

        return frame.withColumn("note", udf(wait)(col("note")))

    def wait(self) -> None:
        """Wait until a task has arrived."""
        with self._arrived.open():
            pass

    def open(self) -> None:
        self._file.close()


LOCKED = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.clean.failed.writes.policy": "LAZY",
}


@dataclass(frozen=True, slots=True)
class _Overlapping:
    """Overwrites of Hudi's, each of which waits at a gate of its own."""

    hudi: Hudi
    path: Path
    operation: str
    threads: ThreadPoolExecutor

    def begin(self, data: pa.Table, gate: _Gate) -> Future[bool]:
        """Begin an overwrite; the result is whether it has committed."""
        running = self.threads.submit(self._write, data, gate)
        gate.wait()
        return running

    def _write(self, data: pa.Table, gate: _Gate) -> bool:
        options = {**theirs(9, self.operation), **LOCKED}
        try:
            self.hudi.write(data, self.path, options, partitions=1, change=gate.held)
        except Py4JJavaError as error:
            if "HoodieWriteConflictException" not in str(error):
                raise
            return False
        return True


@pytest.mark.oracle
@pytest.mark.parametrize("version", [9])
@pytest.mark.parametrize(
    ("operation", "place", "expected"),
    [
        ("insert_overwrite", {"city": "new"}, True),
        ("insert_overwrite", {}, False),
        ("insert_overwrite_table", {"city": "new"}, False),
    ],
    ids=["an empty partition", "a partition", "the table"],
)
def test_hudi_lets_overlapping_overwrites_commit_if_they_replace_no_group_both(
    hudi: Hudi, path: Path, tmp_path: Path, operation: str, place: dict[str, str], *, expected: bool
) -> None:
    """It compares file groups only, so an empty partition gets the rows of both (#32)."""
    first, second = (_Gate(tmp_path / name) for name in ("first", "second"))
    given = [rides((number,), ts=1, **place) for number in (60, 63)]
    with ThreadPoolExecutor(2) as threads:
        overwrites = _Overlapping(hudi, path, operation, threads)
        running = [
            overwrites.begin(data, gate) for data, gate in zip(given, (first, second), strict=True)
        ]
        first.open()
        assert running[0].result()
        alone = hudi.read(path)
        second.open()
        assert running[1].result() is expected
    check(hudi, path, alone + (rows_of(given[1]) if expected else []))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [9])
def test_we_refuse_our_overwrite_of_an_empty_partition_that_hudi_has_overwritten_meanwhile(
    hudi: Hudi, path: Path, tmp_path: Path
) -> None:
    """Unlike Hudi, of which the test before this one tells (#32)."""
    gate = _Gate(tmp_path / "gate")
    theirs_, mine = (rides((number,), ts=1, city="new") for number in (60, 63))
    with ThreadPoolExecutor(1) as threads:
        overwrites = _Overlapping(hudi, path, "insert_overwrite", threads)
        running = overwrites.begin(theirs_, gate)

        def finish(kind: str, name: str) -> None:
            if kind == "create" and name.endswith(".inflight"):
                gate.open()
                assert running.result()

        storage = HookedStorage(path, after=finish)
        with writer(path, {**ours(9), **LOCKED}, storage=storage) as client:
            with pytest.raises(WriteConflictError, match="overwrote partition 'city=new'"):
                client.insert_overwrite(mine)
            check(hudi, path, rows_of(FIRST) + rows_of(theirs_))

"""Real Hudi and our writer take turns at one table; our view follows without listing anew."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from fsview.local_view import LocalView
from strandline import Table
from tests.oracle.driver_log import driver_log
from tests.oracle.hudi import Hudi, Rows, merged, rows_of
from tests.oracle.tables import (
    die_before_completion,
    newest_rows,
    our_rows,
    ours,
    rides,
    theirs,
    view_of,
    writer,
)


def listings(view_storage_calls: dict[tuple[str, str], int]) -> int:
    """Return how many directories of data were listed."""
    return sum(
        n
        for (kind, cause), n in view_storage_calls.items()
        if kind == "list" and cause not in ("timeline", "sync")
    )


class Turns:
    """A table, the rows that it must hold, and one view of ours that was opened early."""

    def __init__(self, hudi: Hudi, path: Path, version: int) -> None:
        self.hudi, self.path, self.version = hudi, path, version
        self.expected: Rows = []
        self.first: pa.Table = rides(range(40), ts=1)

    def open_view(self) -> None:
        self.view = view_of(self.path)
        assert our_rows(self.path, LocalView.newest(self.view)) == self.expected
        self.listed = listings(self.view.storage.calls.snapshot())

    def we(self, data: pa.Table) -> None:
        with writer(self.path, ours(self.version)) as client:
            client.upsert(data)
        self._check(data)

    def they(self, data: pa.Table, **options: str) -> None:
        self.hudi.write(data, self.path, theirs(self.version, "upsert", **options))
        self._check(data)

    def _check(self, data: pa.Table) -> None:
        self.expected = merged(self.expected, rows_of(data))
        assert self.hudi.read(self.path) == self.expected
        followed = LocalView.synced(self.view)
        files = followed.all_latest_base_files()
        assert listings(self.view.storage.calls.snapshot()) == self.listed
        rebuilt = LocalView.newest(view_of(self.path))
        rebuilt.load_all_partitions()
        assert {file.path for file in files} == {
            file.path for file in rebuilt.all_latest_base_files()
        }
        assert our_rows(self.path, rebuilt) == self.expected


def take_turns(turns: Turns) -> None:
    """Write in turns; Hudi by both of its indexes, and its cleaner behind one of its writes."""
    turns.open_view()
    turns.we(rides(range(0, 45, 3), ts=2))
    turns.they(rides(range(0, 50, 4), ts=3), hoodie_index_type="BLOOM")
    turns.they(rides(range(0, 40, 6), ts=2), hoodie_index_type="SIMPLE")
    turns.we(rides(range(0, 60, 5), ts=4))
    turns.they(
        rides(range(50, 70), ts=5),
        hoodie_index_type="BLOOM",
        hoodie_clean_automatic="true",
        hoodie_clean_commits_retained="1",
        hoodie_clean_async_enabled="false",
    )
    turns.we(rides(range(0, 70, 7), ts=6))
    with writer(turns.path, ours(turns.version, hoodie_clean_commits_retained="1")) as client:
        client.clean()
    turns.they(rides(range(0, 70, 10), ts=7), hoodie_index_type="SIMPLE")


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_on_a_table_that_we_made(hudi: Hudi, tmp_path: Path, version: int) -> None:
    turns = Turns(hudi, tmp_path / "rides", version)
    with writer(turns.path, ours(version)) as client:
        client.insert(turns.first)
    turns.expected = rows_of(turns.first)
    take_turns(turns)


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_on_a_table_that_hudi_made(hudi: Hudi, tmp_path: Path, version: int) -> None:
    turns = Turns(hudi, tmp_path / "rides", version)
    hudi.write(turns.first, turns.path, theirs(version, "bulk_insert"))
    turns.expected = rows_of(turns.first)
    take_turns(turns)


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_rolls_back_what_we_left_pending(hudi: Hudi, tmp_path: Path, version: int) -> None:
    path = tmp_path / "rides"
    with writer(path, ours(version)) as client:
        client.insert(rides(range(20), ts=1))
    die_before_completion(path, ours(version), rides(range(30), ts=9, note="must never be seen"))
    hudi.write(rides(range(5), ts=2), path, theirs(version, "upsert", hoodie_index_type="SIMPLE"))

    expected = merged(rows_of(rides(range(20), ts=1)), rows_of(rides(range(5), ts=2)))
    assert hudi.read(path) == expected
    assert newest_rows(path) == expected
    on_disk = {file.name for file in path.rglob("*.parquet")}
    named = {file.name for file in _all_files(path)}
    assert on_disk == named


@pytest.mark.oracle
def test_hudi_rewrites_lists_with_null_elements_only_if_told(hudi: Hudi, tmp_path: Path) -> None:
    """As the writer's warning says."""
    path, option = tmp_path / "rides", "parquet.avro.write-old-list-structure"
    tags = pa.array([["x", None]] * 2, pa.list_(pa.string()))
    first, second = (rides(range(2), ts=ts).append_column("tags", tags) for ts in (1, 2))
    with writer(path, ours(9)) as client:
        (warning,) = client.insert(first).warnings
    assert f"{option}=false" in warning
    assert hudi.read(path) == rows_of(first)
    with (
        driver_log(hudi, tmp_path / "driver.log") as log,
        pytest.raises(Py4JJavaError, match="Failed to write to Hudi"),
    ):
        hudi.write(second, path, theirs(9, "upsert"))
    assert "Array contains a null element" in log.read_text()
    assert hudi.read(path) == rows_of(first)
    conf = hudi.spark._jsc.hadoopConfiguration()
    conf.set(option, "false")
    try:
        hudi.write(second, path, theirs(9, "upsert"))
    finally:
        conf.unset(option)
    assert hudi.read(path) == newest_rows(path) == rows_of(second)


def _all_files(path: Path) -> list:
    view = LocalView.newest(view_of(path))
    view.load_all_partitions()
    partitions = {file.partition for file in view.all_latest_base_files()}
    return [file for partition in partitions for file in view.all_base_files(partition)]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("kind", "keys", "version"),
    [
        ("Complex", "id,city", 6),
        ("Complex", "id,city", 9),
        ("Complex", "id", 9),
        ("Custom", "id,city", 6),
        ("Custom", "id", 9),
    ],
)
def test_tables_without_partitions_whose_key_generator_has_some(
    hudi: Hudi, tmp_path: Path, kind: str, keys: str, version: int
) -> None:
    """Both make them and go on with each other's; both find the stored keys (#32)."""
    own = {
        "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{kind}KeyGenerator",
        "hoodie.datasource.write.recordkey.field": keys,
        "hoodie.datasource.write.partitionpath.field": "",
    }
    turns = (rides(range(20), ts=1), rides(range(10, 30), ts=2), rides(range(5, 35), ts=3))
    for first in (True, False):
        path, expected = tmp_path / f"rides-{first}", []
        for number, data in enumerate(turns):
            if (number % 2 == 0) == first:
                with writer(path, {**ours(version), **own}) as client:
                    client.upsert(data)
            else:
                hudi.write(data, path, {**theirs(version, "upsert"), **own})
            expected = merged(expected, rows_of(data))
            assert hudi.read(path) == expected
            assert newest_rows(path) == expected
            assert rows_of(Table(path).to_arrow()) == expected

"""Tables with Hudi's default metadata table that we write: Hudi reads our rows by its defaults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fsview.load.metadata_table import FOLDER
from fsview.local_view import LocalView
from strandline.table_services.metadata_table import INDEX_DEFINITIONS_FOLDER
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.oracle.hudi import Hudi, Rows, merged, rows_of
from tests.oracle.tables import newest_rows, our_rows, ours, rides, theirs, view_of, writer
from timeline.storage.open import open_storage
from timeline.table.config_file import read_table_config

VERSIONS = pytest.mark.parametrize("version", [6, 9])
BY_DEFAULT = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
}
DROPPING = {"hoodie_metadata_enable": "false"}


class Shared:
    """A table that Hudi made with its metadata table, and the rows that it must hold."""

    def __init__(self, hudi: Hudi, path: Path, version: int) -> None:
        self.hudi, self.path, self.version = hudi, path, version
        self.expected: Rows = []
        self.they(rides(range(40), ts=1), "bulk_insert")
        self.they(rides(range(0, 40, 4), ts=2), "upsert")

    def they(self, data, operation: str) -> None:
        self.hudi.write(data, self.path, theirs(self.version, operation) | BY_DEFAULT, partitions=1)
        self.expected = merged(self.expected, rows_of(data))
        assert {"files", "column_stats", "record_index"} <= self.named()
        self.check()

    def we(self, data) -> None:
        with writer(self.path, ours(self.version, **DROPPING)) as client:
            client.upsert(data)
        self.expected = merged(self.expected, rows_of(data))
        assert not self.named()
        for folder in (FOLDER, INDEX_DEFINITIONS_FOLDER):
            assert not (self.path / folder).exists()
        self.check()

    def named(self) -> set[str]:
        config = read_table_config(open_storage(str(self.path)))
        return set(config.named_metadata_partitions)

    def check(self) -> None:
        """Compare Hudi's rows, with and without its metadata table, and ours with the expected."""
        for enabled in ("true", "false"):
            assert self.hudi.read(self.path, hoodie_metadata_enable=enabled) == self.expected
        # Data skipping reads the column statistics.
        found = self.hudi.frame(
            self.path, hoodie_metadata_enable="true", hoodie_enable_data_skipping="true"
        ).where("ts >= 2")
        assert self.hudi.rows(found) == [row for row in self.expected if row["ts"] >= 2]
        assert newest_rows(self.path) == self.expected


@pytest.mark.oracle
@VERSIONS
def test_hudi_reads_fresh_rows_and_may_build_it_anew(
    hudi: Hudi, tmp_path: Path, version: int
) -> None:
    table = Shared(hudi, tmp_path / "rides", version)
    early = view_of(table.path)
    assert our_rows(table.path, LocalView.newest(early)) == table.expected
    table.we(rides(range(0, 50, 3), ts=3))
    table.we(rides(range(0, 60, 5), ts=4))
    assert our_rows(table.path, LocalView.synced(early)) == table.expected
    table.they(rides(range(0, 50, 7), ts=5), "upsert")
    table.we(rides(range(0, 70, 6), ts=6))
    assert our_rows(table.path, LocalView.synced(early)) == table.expected


@pytest.mark.oracle
@VERSIONS
@pytest.mark.parametrize("effect", [Effect.CRASH_BEFORE, Effect.CRASH_TORN])
def test_hudi_goes_on_after_a_crash_between_properties_and_folder(
    hudi: Hudi, tmp_path: Path, version: int, effect: Effect
) -> None:
    """Hudi builds the metadata table anew in the folder that is left, whole or half."""
    table = Shared(hudi, tmp_path / "rides", version)
    at = _call(table, "delete_tree", FOLDER)
    doomed = FaultyStorage(open_storage(str(table.path)), [Fault(at, effect)])
    client = writer(table.path, ours(version, **DROPPING), storage=doomed)
    with pytest.raises(Crash):
        client.upsert(rides(range(9), ts=9, note="must never be seen"))
    assert (table.path / FOLDER).exists()
    assert not table.named()
    table.check()
    table.they(rides(range(0, 50, 7), ts=5), "upsert")
    table.we(rides(range(0, 70, 6), ts=6))


def _call(table: Shared, kind: str, path: str) -> int:
    """Return the number of the call by which a write deletes the folder, learned on a copy."""
    trial = table.path.with_name("trial")
    shutil.copytree(table.path, trial)
    watched = FaultyStorage(open_storage(str(trial)))
    with writer(trial, ours(table.version, **DROPPING), storage=watched) as client:
        client.upsert(rides(range(9), ts=9))
    shutil.rmtree(trial)
    return watched.log.index((kind, path)) + 1

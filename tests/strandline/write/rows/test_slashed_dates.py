"""Writes to tables whose dates have slashes in their paths: in the stored form, or refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from strandline import LocalEngine, Table, WriteClient
from timeline.errors import UnsupportedTableError
from timeline.storage.local import LocalStorage
from timeline.table.config import CONFIG_PATH
from timeline.table.config_file import read_table_config

HIVE = "hoodie.datasource.write.hive_style_partitioning"
EXTRACTOR = {
    "hoodie.table.partition_extractor_class": (
        "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor"
    )
}


def write(base: Path, operation: str, rows: dict[str, list[object]], **others: object) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.embed.timeline.server": "false",
        **others,
    }
    with WriteClient(LocalEngine(), base, options) as client:
        getattr(client, operation)(pa.table(rows))


def as_slashed(base: Path, date: str, prefix: str = "") -> None:
    """Move a partition to where Hudi writes it with the option."""
    target = base / (prefix + date.replace("-", "/"))
    target.parent.mkdir(parents=True, exist_ok=True)
    (base / (prefix + date)).rename(target)


@pytest.fixture
def base(tmp_path) -> Path:
    """A table with one partition, ``2024/03/01``, known by its extractor class."""
    write(tmp_path, "insert", {"id": ["1"], "day": ["2024-03-01"], "ts": [1]})
    as_slashed(tmp_path, "2024-03-01")
    storage = LocalStorage(str(tmp_path))
    config = read_table_config(storage).with_properties(EXTRACTOR)
    (tmp_path / CONFIG_PATH).write_bytes(config.to_bytes())
    return tmp_path


def test_an_upsert_finds_its_key_in_the_partition_with_slashes(base):
    rows = {"id": ["1", "2"], "day": ["2024-03-01", "2024-03-02"], "ts": [2, 2]}
    write(base, "upsert", rows)
    assert sorted(Table(base).partitions()["partition"].to_pylist()) == ["2024/03/01", "2024/03/02"]
    stored = Table(base).to_arrow(["id", "ts"]).sort_by("id")
    assert stored.to_pylist() == [{"id": "1", "ts": 2}, {"id": "2", "ts": 2}]
    write(base, "delete", {"id": ["1"], "day": ["2024-03-01"]})
    assert Table(base).to_arrow(["id"])["id"].to_pylist() == ["2"]


def test_a_write_where_another_writer_has_used_the_other_form_is_refused(base):
    (base / "2024-03-02").mkdir()
    (base / "2024-03-02/.hoodie_partition_metadata").write_bytes(b"partitionDepth=1\n")
    rows = {"id": ["2"], "day": ["2024-03-02"], "ts": [2]}
    before = Table(base).history()
    for operation in ("insert", "upsert", "delete"):
        with pytest.raises(UnsupportedTableError, match=r"'2024-03-02', with which '2024/03/02'"):
            write(base, operation, rows)
    assert Table(base).history() == before


def test_with_hive_style_a_year_of_dates_with_slashes_is_refused(tmp_path):
    """No property tells of them; a year without such partitions is written."""
    rows = {"id": ["1", "2"], "day": ["2023-03-01", "2024-03-01"], "ts": [1, 1]}
    write(tmp_path, "insert", rows, **{HIVE: True})
    as_slashed(tmp_path, "2024-03-01", "day=")
    with pytest.raises(UnsupportedTableError, match=r"'day=2024/...', with which 'day=2024-03-02'"):
        write(tmp_path, "upsert", {"id": ["3"], "day": ["2024-03-02"], "ts": [2]})
    write(tmp_path, "upsert", {"id": ["1"], "day": ["2023-03-01"], "ts": [2]})
    assert Table(tmp_path).to_arrow(["id", "ts"]).sort_by("id").to_pylist() == [
        {"id": "1", "ts": 2},
        {"id": "2", "ts": 1},
    ]

from pathlib import Path

import pytest

from tests.kit.tables import golden
from timeline.encoding.java_properties import parse_properties
from timeline.errors import CorruptMetadataError
from timeline.storage.local import LocalStorage
from timeline.table.partition_metadata import (
    FILE_NAME,
    PartitionMetadata,
    depth_of,
    read_partition_metadata,
    write_partition_metadata,
)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


@pytest.mark.parametrize(("partition", "depth"), [("", 0), ("a", 1), ("a=1/b=2/c=3", 3)])
def test_written_file_reads_back(storage: LocalStorage, partition: str, depth: int) -> None:
    assert write_partition_metadata(storage, partition, "20261121080616345")
    found = read_partition_metadata(storage, partition)
    assert found == PartitionMetadata("20261121080616345", depth)
    assert [f.name for f in storage.list(partition)] == [FILE_NAME]


def test_partition_metadata_is_never_changed(storage: LocalStorage) -> None:
    write_partition_metadata(storage, "a", "1")
    assert not write_partition_metadata(storage, "a", "2")
    assert read_partition_metadata(storage, "a") == PartitionMetadata("1", 1)


def test_no_partition(storage: LocalStorage) -> None:
    assert read_partition_metadata(storage, "a") is None


@pytest.mark.parametrize("data", [b"", b"commitTime=1", b"commitTime=1\npartitionDepth=x"])
def test_a_damaged_file_is_named(storage: LocalStorage, data: bytes) -> None:
    storage.create(f"a/{FILE_NAME}", data)
    with pytest.raises(CorruptMetadataError, match=f"a/{FILE_NAME}"):
        read_partition_metadata(storage, "a")


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_golden_partitions(scenario: str) -> None:
    step = golden.steps(scenario)[-1]
    storage = golden.GoldenStorage(scenario, step)
    paths = [p for p in golden.contents(scenario, step) if p.endswith(FILE_NAME)]
    paths = [p for p in paths if not p.startswith(".hoodie/")]
    assert paths
    for path in paths:
        partition = path.rpartition("/")[0]
        found = read_partition_metadata(storage, partition)
        assert found is not None
        assert found.depth == depth_of(partition)
        assert set(parse_properties(storage.read(path))) == {"commitTime", "partitionDepth"}

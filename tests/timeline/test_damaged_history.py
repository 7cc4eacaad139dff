"""Damaged properties, partition metadata and archives are read or refused."""

from __future__ import annotations

import random
from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from tests.timeline.refusals import perhaps_refused
from timeline.archive.archived_timeline import HistoryArchive
from timeline.archive.log_archive import LogArchive
from timeline.errors import CorruptMetadataError, StorageUnavailableError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.table.config import CONFIG_PATH, TableConfig

HISTORY = ".hoodie/timeline/history"


def test_properties_are_read_or_refused() -> None:
    good = golden.contents("cow_basic_v9", 0)[CONFIG_PATH]
    rng = random.Random(9)
    foreign = [b"", b"\x00" * 100, b"{}", rng.randbytes(500), b"\\u12", b"hoodie.table.name"]
    flipped = []
    for _ in range(300):
        at = rng.randrange(len(good))
        flipped.append(good[:at] + rng.randbytes(1) + good[at + 1 :])
    storage = MemoryStorage()
    storage.files[".hoodie/timeline/20240101000000000.commit.requested"] = (b"", 0)
    refused: list[str] = []
    for data in (*foreign, *flipped, *(good[:cut] for cut in range(0, len(good), 37))):
        storage.files[CONFIG_PATH] = (data, 0)
        with perhaps_refused("hoodie.properties|/memory/t", refused):
            client = TableMetaClient.open(storage)
            client.active_timeline()
            assert client.config.archive_folder
    assert len(refused) >= len(foreign)


def test_a_folder_outside_the_table_is_refused(subtests: pytest.Subtests) -> None:
    for key, value in product(
        ["hoodie.timeline.path", "hoodie.timeline.history.path"],
        ["../x", "a/../../b", ".", "a//b", "a\0b"],
    ):
        with subtests.test(key=key, value=value):
            config = TableConfig.create(name="t").with_properties({key: value})
            storage = MemoryStorage()
            storage.files[CONFIG_PATH] = (config.to_bytes(), 0)
            with pytest.raises(CorruptMetadataError, match=r"hoodie\.properties names a folder"):
                TableMetaClient.open(storage).active_timeline()


def history(scenario: str = "archival_mor_v9") -> MemoryStorage:
    storage = MemoryStorage()
    for path, data in golden.contents(scenario, golden.steps(scenario)[-1]).items():
        storage.files[path] = (data, 0)
    return storage


def read_history(storage: Storage) -> None:
    archive = HistoryArchive(storage, HISTORY)
    for instant in archive.timeline:
        archive.read(instant)
    assert archive.completion_times("", "~")


def test_damaged_history_is_read_or_refused() -> None:
    storage = history()
    read_history(storage)
    rng = random.Random(17)
    names = sorted(
        path for path in storage.files if path.startswith(HISTORY) and ".crc" not in path
    )
    for path in (names[0], names[1], names[-1]):
        good = storage.files[path]
        damaged = [b"", b"9" * 5000, good[0][: len(good[0]) // 2], storage.files[names[-2]][0]]
        for _ in range(15):
            at = rng.randrange(len(good[0]))
            length = rng.choice((1, 1, 8))
            damage = rng.choice((rng.randbytes(length), b"\xff" * length))
            damaged.append(good[0][:at] + damage + good[0][at + length :])
        for data in damaged:
            storage.files[path] = (data, 0)
            with perhaps_refused(HISTORY):
                assert HistoryArchive(storage, HISTORY).completion_times("", "~")
        storage.files[path] = good
    read_history(storage)


def test_a_manifest_that_leads_elsewhere_is_refused(subtests: pytest.Subtests) -> None:
    for name in ["../../x", "/etc/passwd", "", "a/../b", "[" * 3, "\\ud800"]:
        with subtests.test(name=name):
            storage = history()
            for path in [path for path in storage.files if "/manifest_" in path]:
                storage.files[path] = (f'{{"files": [{{"fileName": "{name}"}}]}}'.encode(), 0)
            with pytest.raises(CorruptMetadataError, match=HISTORY):
                assert HistoryArchive(storage, HISTORY).timeline


def test_a_history_file_of_other_columns_is_named(subtests: pytest.Subtests) -> None:
    for columns in [
        {"instantTime": [1], "completionTime": ["2"], "action": ["commit"]},
        {"instantTime": [None], "completionTime": ["2"], "action": ["commit"]},
        {"completionTime": ["2"], "action": ["commit"]},
        {"instantTime": ["1"], "completionTime": [2], "action": ["commit"]},
        {"other": [1]},
    ]:
        with subtests.test(columns=columns):
            storage = history()
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table(columns), sink)
            for path in [path for path in storage.files if path.endswith(".parquet")]:
                storage.files[path] = (sink.getvalue().to_pybytes(), 0)
            with pytest.raises(CorruptMetadataError, match=r"\.parquet is no history file"):
                assert HistoryArchive(storage, HISTORY).timeline


class BrokenFile:
    """A file whose disk fails while it is read."""

    closed = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, *_: int) -> int:
        return 0

    def tell(self) -> int:
        raise OSError(5, "Input/output error")

    size = read = tell

    def close(self) -> None:
        """Nothing is held."""

    flush = close


class BrokenDisk(MemoryStorage):
    def open_input(self, path: str, *about: object) -> pa.NativeFile:
        return pa.PythonFile(BrokenFile(), mode="r")


def test_a_disk_that_fails_while_history_is_read_is_no_damage() -> None:
    storage = BrokenDisk()
    storage.files = history().files
    with pytest.raises(StorageUnavailableError, match=r"\.parquet: "):
        assert HistoryArchive(storage, HISTORY).timeline


def log_files() -> dict[str, bytes]:
    scenario = "archival_cow_v6"
    files = golden.contents(scenario, golden.steps(scenario)[-1])
    return {p: d for p, d in files.items() if "/.commits_" in p}


def test_log_archives_are_read_or_refused() -> None:
    path, data = next(iter(log_files().items()))
    folder = path.rpartition("/")[0]
    storage = MemoryStorage()
    rng = random.Random(6)
    damaged = [b"x", rng.randbytes(200), b"#HUDI#" + b"\x7f" * 40, data.replace(b"Time", b"time")]
    for length in (1, 8):
        for _ in range(40):
            at = rng.randrange(len(data))
            damaged.append(data[:at] + rng.randbytes(length) + data[at + length :])
    for content in damaged:
        storage.files[path] = (content, 0)
        with perhaps_refused(f"{folder}|can't be read"):
            archive = LogArchive(storage, folder)
            for instant in archive.timeline:
                archive.read(instant)

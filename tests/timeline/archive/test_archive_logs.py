"""The archive of version 6: log files."""

import json
import struct
import tracemalloc
from pathlib import Path

import pytest

from tests.kit.formats.hfile import log_block
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from timeline.archive.archived_timeline import (
    ArchivedTimeline,
    HistoryArchive,
    read_archived_timeline,
)
from timeline.archive.log_archive import LogArchive
from timeline.encoding import log_block as blocks
from timeline.encoding.avro import write_record
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import Instant, State
from timeline.metadata.instant_metadata import CleanerPlan, CommitMetadata
from timeline.storage.local import LocalStorage
from timeline.table.config_file import read_table_config


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def golden_logs() -> dict[str, bytes]:
    step = golden.steps("archival_cow_v6")[-1]
    files = golden.contents("archival_cow_v6", step)
    return {p: d for p, d in files.items() if ".commits_.archive." in p and ".crc" not in p}


@pytest.fixture
def logs(storage: LocalStorage) -> LocalStorage:
    for path, data in golden_logs().items():
        storage.create(path, data)
    return storage


def states(archive: ArchivedTimeline) -> list[tuple[str, str, State]]:
    return [(i.requested_time, i.action, i.state) for i in archive.timeline]


def test_logs_that_were_written_twice_count_once(logs: LocalStorage) -> None:
    before = LogArchive(logs, ".hoodie/history")
    path, data = next(iter(golden_logs().items()))
    logs.create(".hoodie/history/.commits_.archive.99_1-0-1", data)
    logs.create(".hoodie/history/mergeArchivePlan", b"not a log")
    after = LogArchive(logs, ".hoodie/history")
    assert states(after) == states(before)
    assert all(after.read(i) == before.read(i) for i in before.timeline)
    assert path


def test_two_blocks_in_one_file(logs: LocalStorage) -> None:
    before = LogArchive(logs, ".hoodie/history")
    merged = b"".join(golden_logs().values())
    for path in golden_logs():
        logs.delete(path)
    logs.create(".hoodie/history/.commits_.archive.1_1-0-1", merged)
    assert states(LogArchive(logs, ".hoodie/history")) == states(before)


def test_every_cut_of_a_log_is_named(storage: LocalStorage) -> None:
    data = next(iter(golden_logs().values()))
    path = ".hoodie/history/.commits_.archive.1_1-0-1"
    for cut in range(1, len(data), 397):
        storage.replace(path, data[:cut])
        with pytest.raises(CorruptMetadataError, match=r"\.commits_\.archive\.1_"):
            LogArchive(storage, ".hoodie/history")


@pytest.mark.property
def test_of_a_log_no_more_is_held_than_it_is() -> None:
    """Each record was within its bound, and all took 200 times their bytes."""
    nothing = {"type": "record", "name": "N", "fields": [{"name": "flag", "type": "boolean"}]}
    kinds = {
        "commitTime": "string",
        "actionType": "string",
        "x": {"type": "array", "items": nothing},
    }
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = json.dumps({"type": "record", "name": "HoodieArchivedMetaEntry", "fields": fields})
    said = {"actionType": "commit", "x": [{"flag": True}] * 2000}
    records = [write_record(schema, {"commitTime": f"{at:03d}", **said}) for at in range(100)]
    content = struct.pack(">ii", 3, len(records))
    content += b"".join(struct.pack(">i", len(record)) + record for record in records)
    storage = MemoryStorage()
    log = log_block(blocks.AVRO_DATA, {blocks.SCHEMA: schema}, content)
    storage.files["archived/.commits_.archive.1_1-0-1"] = (log, 0)
    tracemalloc.start()
    try:
        archive = LogArchive(storage, "archived")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(archive.timeline) == len(records)
    assert held < 2 * sum(map(len, records))
    assert archive.read(archive.timeline.instants[7]) == CommitMetadata()


def test_plans_of_version_6(logs: LocalStorage) -> None:
    archive = LogArchive(logs, ".hoodie/history")
    clean = next(i for i in archive.timeline if i.action == "clean")
    assert isinstance(archive.read_plan(clean), CleanerPlan)
    assert archive.read_plan(clean) != CleanerPlan()
    with pytest.raises(InstantNotFoundError):
        archive.read(Instant("1", "clean", State.COMPLETED))


@pytest.mark.parametrize(
    ("scenario", "kind"), [("archival_cow_v6", LogArchive), ("archival_mor_v9", HistoryArchive)]
)
def test_which_archive_a_table_has(scenario: str, kind: type) -> None:
    storage = golden.GoldenStorage(scenario, 0)
    assert isinstance(read_archived_timeline(storage, read_table_config(storage)), kind)

"""Files of the archive of versions 8 and 9: bounded in memory, accepted by readers."""

from __future__ import annotations

import itertools

import pyarrow.parquet as pq

from strandline.table_services.archive.content import AHEAD, contents, files_by_key
from strandline.table_services.archive.history_archive import HistoryWriter
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import Archiver
from strandline.table_services.clean.policy import CleanSettings
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.archive.archived_timeline import HistoryArchive
from timeline.archive.history_file import FEW_ROWS
from timeline.archive.log_archive import BODIES
from timeline.encoding import avro
from timeline.metadata import codec

FOLDER = "history"


def row(number: int, metadata: bytes = b"{}") -> dict:
    return {
        "instantTime": f"{number:017}",
        "completionTime": f"{number:017}",
        "action": "commit",
        "metadata": metadata,
        "plan": None,
        "version": 1,
    }


def added(writer: HistoryWriter, first: int, count: int, metadata: bytes = b"{}") -> None:
    rows = (row(number, metadata) for number in range(first, first + count))
    writer.add(writer.manifest(), rows, (f"{first:017}", f"{first + count - 1:017}"))


def test_readers_accept_rows_that_are_alike():
    """Compressed they take so few bytes that readers would refuse them."""
    storage = MemoryStorage()
    count = 3 * FEW_ROWS
    added(HistoryWriter(storage, FOLDER, ArchiveSettings()), 1, count)
    assert len(HistoryArchive(storage, FOLDER).timeline) == count


def test_a_merge_joins_row_groups_and_keeps_every_row():
    storage = MemoryStorage()
    writer = HistoryWriter(storage, FOLDER, ArchiveSettings(merged_files=2))
    for number in range(8):
        added(writer, 1 + 10 * number, 10)
        writer.merge(writer.manifest())
    (entry,) = writer.manifest().files
    assert entry.parts[2] == 3
    with storage.open_input(f"{FOLDER}/{entry.name}") as file:
        read = pq.ParquetFile(file)
        assert (read.metadata.num_rows, read.metadata.num_row_groups) == (80, 1)
    found = [int(i.requested_time) for i in HistoryArchive(storage, FOLDER).timeline]
    assert found == list(range(1, 81))


def test_files_of_too_many_rows_are_not_merged():
    storage = MemoryStorage()
    writer = HistoryWriter(storage, FOLDER, ArchiveSettings(merged_files=2), most_rows=19)
    for number in range(2):
        added(writer, 1 + 10 * number, 10)
    before = writer.manifest()
    assert writer.merge(before) == before
    assert len(HistoryArchive(storage, FOLDER).timeline) == 20


def many(writes: int, *, is_object_store: bool = False) -> SmallTable:
    storage = MemoryStorage()
    if is_object_store:
        storage.has_directories = False
    table = SmallTable(storage, version=9)
    for _ in range(writes):
        table.write(("p=1", "a-0"))
    return table


def test_contents_are_read_when_they_are_needed():
    table = many(60)
    files = [*files_by_key(table.meta.instant_files()).values()]
    before = reads(table)
    read = contents(table.meta, files, 2)
    assert len([*itertools.islice(read, 1)]) == 1
    assert reads(table) - before <= 3 * 2 * AHEAD
    assert len([*read]) == 59


def reads(table: SmallTable) -> int:
    return sum(n for (kind, _), n in table.storage.calls.snapshot().items() if kind == "read")


def test_object_stores_delete_pending_files_together():
    table = many(60, is_object_store=True)
    done = Archiver(table.meta, table.times, ArchiveSettings(), CleanSettings()).run()
    assert done is not None
    assert len(done.instants) == 40
    assert len(table.meta.instant_files()) == 3 * 20
    # One for the pending files, one for each completed instant.
    assert table.storage.calls.snapshot()["delete", "archive"] == 41


def test_each_kind_of_content_has_a_place_in_the_archive_of_version_6():
    schema = avro.schema_text("HoodieArchivedMetaEntry")
    for kind, body in BODIES.items():
        name, content = codec.avro_record(kind())
        record = {body: (f"org.apache.hudi.avro.model.{name}", content)}
        assert avro.read_record(schema, avro.write_record(schema, record))[body] is not None

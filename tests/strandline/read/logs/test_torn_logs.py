"""Logs that are cut, empty or garbage: an error where a completed instant needs the bytes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from fsview.local_view import open_view
from fsview.model.file_group import LogFile
from fsview.model.file_name import parse_log_file
from strandline.read.instants import Archive, CommittedInstants, NeededBytes
from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.log_blocks import LogReader
from strandline.records.file import log_file_writer
from strandline.records.file.log_file_writer import LogBlockWriter, LogFileSettings
from strandline.records.meta_fields import with_meta_fields
from tests.kit.formats.hfile import log_block
from tests.kit.formats.log_files import delete_block, rollback_block
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import (
    AVRO,
    LATEST,
    SCHEMA,
    VERSIONS,
    based,
    block_of,
    read,
    row,
    sliced,
    values,
)
from timeline.encoding.delete_block import DeletedRecord
from timeline.encoding.log_block import (
    AVRO_DATA,
    COMMAND,
    INSTANT_TIME,
    LogBlock,
    block_bytes,
    scan_blocks,
)
from timeline.errors import CorruptMetadataError
from timeline.instant import DELTA_COMMIT, ROLLBACK
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import RollbackMetadata, RollbackPartitionMetadata
from timeline.storage.local import LocalStorage

FIRST = block_of("2" * 17, row("a", 2, "new"))
SECOND = delete_block("2" * 17, [("z", None)])
CUTS = [*range(40), *range(40, len(FIRST), 50), *range(len(FIRST) + 1, len(FIRST + SECOND))]
"""Lengths at which a log of two blocks is cut within one."""


@pytest.mark.property
@VERSIONS
def test_a_log_that_is_cut_within_a_block_is_an_error(version):
    table = based(version)
    deleted = [("z", None)]
    log = table.log(lambda time: block_of(time, row("a", 2, "new")) + delete_block(time, deleted))
    size = len(log.data)
    assert values(table.storage) == {"a": "new", "b": "base", "c": "base"}
    for length in CUTS:
        table.storage.replace(log.path, log.data[:length])
        begin = 0 if length < len(FIRST) else len(FIRST)
        with pytest.raises(CorruptMetadataError, match=f"at offset {begin}: ") as error:
            read(table.storage)
        assert log.path in str(error.value)
        assert f"a completed instant wrote bytes 0 to {size} of the file" in str(error.value)


@pytest.mark.property
@VERSIONS
def test_a_torn_end_that_no_completed_instant_needs_is_skipped(version, caplog):
    """In version 6 a writer that died has appended to the log of a completed instant."""
    table = based(version)
    log = table.rows_log(row("a", 2, "new"))
    size = len(log.data)
    for length in (0, 1, 20, len(FIRST) - 1):
        table.storage.replace(log.path, log.data + FIRST[:length])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            _, logs = read(table.storage)
        assert logs.counts.torn_blocks == len(caplog.messages) == (length > 0)
        assert all(f"skipped bytes {size} to {size + length}" in one for one in caplog.messages)
        assert values(table.storage) == {"a": "new", "b": "base", "c": "base"}


def written(time: str, form: str, *, deletes: bool = False) -> bytes:
    """Return a block as our writer makes it, of a row or of a delete."""
    writer = LogBlockWriter(time, AVRO, LogFileSettings(data_format=form))
    rows = pa.Table.from_pylist([row("a", 9, "dead")], with_meta_fields(SCHEMA))
    ended = [] if deletes else list(writer.add(rows))
    (block,) = [*ended, *writer.end([DeletedRecord("a", ())] if deletes else [], "p")]
    return block.data


LAST_BLOCKS = {
    "rows as Avro": lambda time, _: written(time, log_file_writer.AVRO),
    "rows as Parquet": lambda time, _: written(time, log_file_writer.PARQUET),
    "deletes": lambda time, _: written(time, log_file_writer.AVRO, deletes=True),
    "a command": rollback_block,
}
"""What a writer that dies was writing, from its time and that of the commit before."""


class Appended:
    """Says that commits wrote all of their own logs, and of one log the bytes from an offset."""

    names_writers = False

    def __init__(self, log: str, begin: int, size: int) -> None:
        self._log, self._appended, self._whole = log, (begin, size), (0, 1 << 30)

    def within(self, log: LogFile, begin: int, end: int | None) -> tuple[int, int] | None:
        first, after = self._appended if log.path == self._log else self._whole
        return (first, after) if after > begin and (end is None or first < end) else None


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", LAST_BLOCKS)
def test_a_block_that_a_dead_writer_cut_at_any_byte_counts_for_nobody(version, kind):
    """The next writer's block follows in a log of its own; in version 6, on HDFS, in the same."""
    table = based(version)
    done = table.rows_log(row("a", 2, "new"))
    torn = table.log(lambda t: LAST_BLOCKS[kind](t, done.instant.requested_time), complete=False)
    follows = table.rows_log(row("b", 2, "next"))
    # From version 8 on the view leaves the log out; here it is read nevertheless.
    logs = [log_of(one.path) for one in (done, torn, follows)]
    _, reader = sliced(table.storage)
    both, cuts = [done.data, follows.data], range(len(torn.data))
    for length in cuts:
        table.storage.replace(torn.path, torn.data[:length])
        assert whole(reader.blocks(logs)) == both, length
    assert reader.counts.torn_blocks == len(cuts) > 80
    committed = CommittedInstants(table.meta.active_timeline(), Archive(table.meta))
    for length in cuts if version == 6 else ():
        data = torn.data[:length] + follows.data
        table.storage.replace(torn.path, data)
        recorded: Any = Appended(torn.path, length, len(data))
        reader = LogReader(table.storage, committed, recorded)
        assert whole(reader.blocks(logs[:2])) == both, length
        assert reader.counts.torn_blocks == (length > 0)


def log_of(path: str) -> LogFile:
    """Return a log by its path, as a view does."""
    partition, _, name = path.rpartition("/")
    found = parse_log_file(partition, name, 0, 0)
    assert found is not None
    return found


def whole(blocks: Iterable[PlacedBlock]) -> list[bytes]:
    """Return blocks with their headers, as they were written."""
    return [block_bytes(b.block.kind, b.block.header, b.block.content) for b in blocks]


@VERSIONS
def test_garbage_is_skipped_if_no_instant_wrote_it(subtests, version):
    """The log of a task that was tried again has the time of a completed instant, and no stat."""
    for garbage in [b"", b"x", bytes(1000), b"#HUDI#", b"#HUDI#" + b"\xff" * 40]:
        with subtests.test(garbage=garbage):
            table = based(version)
            log = table.rows_log(row("a", 2, "new"))
            table.storage.create(log.path.replace("_0-0-0", "_0-1-0"), garbage)
            _, logs = read(table.storage)
            assert values(table.storage)["a"] == "new"
            assert logs.counts.torn_blocks == 1


@VERSIONS
def test_an_empty_log_is_an_error_if_a_completed_instant_wrote_it(version):
    table = based(version)
    table.log(lambda time: b"", recorded=100)
    with pytest.raises(CorruptMetadataError, match="at offset 0: the file is empty"):
        read(table.storage)


def test_a_torn_write_and_the_command_that_rolls_it_back():
    """As on HDFS, where the command is appended to the log: only the command is needed."""
    table = based(6)
    log = table.rows_log(row("a", 5, "failed"), complete=False)
    time = table.begin().requested_time
    torn = log.data[:-3]
    data = torn + rollback_block(time, log.instant.requested_time)
    wrote = RollbackPartitionMetadata("p", rollback_log_files={log.path: len(data)})
    requested = table.meta.create_requested(ROLLBACK, time[:-1] + "9")
    table.meta.complete(
        table.meta.transition_to_inflight(requested),
        RollbackMetadata(partition_metadata={"p": wrote}),
        time[:-1] + "9",
    )
    table.storage.replace(log.path, data)
    assert read(table.storage)[1].counts.torn_blocks == 1
    assert values(table.storage)["a"] == "base"
    table.storage.replace(log.path, data[:-1])
    at_end = rf"offset 0: .* bytes {len(data) - 1} to {len(data)} of the file"
    with pytest.raises(CorruptMetadataError, match=at_end):
        read(table.storage)


@pytest.mark.parametrize("length", [1, 20, len(FIRST) - 1])
def test_an_attempt_that_was_repeated_in_the_same_file(length):
    """As on HDFS, where logs are appended to: the commit records where its bytes begin."""
    table = based(6)
    log = table.log(
        lambda time: FIRST[:length] + block_of(time, row("a", 2, "new")),
        offset=length,
        recorded=len(FIRST),
    )
    assert values(table.storage)["a"] == "new"
    table.storage.replace(log.path, log.data[:-1])
    with pytest.raises(CorruptMetadataError, match=f"at offset 0: .*bytes {length} to"):
        read(table.storage)


def test_a_copy_of_a_block_in_a_torn_block_is_no_block():
    """A value that is a copy of a log, cut behind the copy: Hudi's reader shows the copy's rows."""
    table = based(6)
    copied = table.rows_log(row("a", 2, "new")).data.replace(b"\x06new", b"\x06old")

    def torn(time):
        block = log_block(AVRO_DATA, {INSTANT_TIME: time}, bytes(8) + copied + bytes(99))
        return block[: block.index(copied) + len(copied)]

    failed = table.log(torn, complete=False)
    assert values(table.storage)["a"] == "new"
    # A later instant may append to the same log; its commit says where.
    instant = table.begin()
    appended = block_of(instant.requested_time, row("b", 3, "appended"))
    table.storage.replace(failed.path, failed.data + appended)
    assert values(table.storage) == {"a": "new", "b": "base", "c": "base"}
    table.complete(instant, failed.path, len(appended), len(failed.data))
    assert values(table.storage) == {"a": "new", "b": "appended", "c": "base"}


def test_a_copy_of_a_command_in_a_torn_block_rolls_nothing_back():
    table = based(6)
    done = table.rows_log(row("a", 2, "new")).instant.requested_time
    table.log(lambda time: bytes(9) + rollback_block(time, done), complete=False)
    assert values(table.storage)["a"] == "new"


def test_the_sizes_of_logs_of_archived_instants_are_in_the_archive(tmp_path):
    meta = TableMetaClient.open(LocalStorage(str(golden.build_final("archival_mor_v9", tmp_path))))
    archive, active = meta.archived_timeline(), meta.active_timeline()
    needed, sizes = NeededBytes(meta, active, Archive(meta)), {}
    for instant in archive.timeline:
        if instant.action == DELTA_COMMIT and not active.contains(instant):
            for stats in archive.read(instant).partition_to_write_stats.values():
                sizes |= {stat.path: stat.file_size_in_bytes for stat in stats if stat.log_files}
    assert len(sizes) > 10
    for path, size in sizes.items():
        log = log_of(f"p/{path.rpartition('/')[2]}")
        assert needed.within(log, size - 1, size) == (0, size)
        assert needed.within(log, size, None) is None


@pytest.mark.parametrize("scenario", [name for name in golden.scenarios() if "_mor_" in name])
def test_committed_logs_and_commands_of_recorded_tables_are_needed(scenario, tmp_path):
    storage = LocalStorage(str(golden.build_final(scenario, tmp_path)))
    with closing(open_view(storage)) as view:
        active = view.snapshot.active
        partitions = view.all_latest_file_slices_before_or_on(LATEST)
        groups = [group for partition in partitions for group in view.all_file_groups(partition)]
    archive = Archive(TableMetaClient.open(storage))
    committed = CommittedInstants(active, archive)
    needed = NeededBytes(TableMetaClient.open(storage), active, archive)
    logs = [log for group in groups for part in group.slices for log in part.log_files]
    assert logs
    for log in logs:
        data = (tmp_path / log.path).read_bytes()
        blocks = [block for block in scan_blocks(data) if isinstance(block, LogBlock)]
        counts = committed.has(blocks[0].header[INSTANT_TIME])
        whole = (0, len(data)) if counts else None
        if blocks[0].kind == COMMAND:
            whole = (len(data) - 1, len(data))
        assert needed.within(log, 0, None) == whole

"""Real logs with any bytes changed: rows, or an error that names the damage, and nothing else."""

from __future__ import annotations

import itertools
import tempfile
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.read.logs.block_order import PlacedBlock, blocks_in_order
from strandline.read.logs.log_records import LogRules
from strandline.read.logs.log_rows import LogRows
from strandline.records.commit_history import CommitHistory
from strandline.records.meta_fields import with_meta_fields
from strandline.records.schema.avro_schema import avro_to_arrow
from tests.kit.formats.log_files import delete_block, parquet_block
from tests.kit.short_runs import quick_runs, stride
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import BASE, based, block_of, read, row, values
from timeline.encoding.log_block import AVRO_DATA, DELETE, PARQUET_DATA, LogBlock, scan_blocks
from timeline.errors import CorruptMetadataError, UnsupportedTableError
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

TABLES = ("mor_basic_v6_h0150", "mor_basic_v9", "walkdev_mor_v6")


@cache
def logs() -> tuple[LogRules, tuple[bytes, ...]]:
    """Return the rules of the tables, and the logs of each as one, and one of other blocks."""
    found = []
    for scenario in TABLES:
        with tempfile.TemporaryDirectory() as folder:
            base = golden.build_final(scenario, folder)
            meta = TableMetaClient.open(LocalStorage(folder))
            schema = CommitHistory().avro_schema(meta, meta.active_timeline()) or ""
            paths = sorted(base.glob("[!.]*/.*.log.*"))
            found.append(b"".join(path.read_bytes() for path in paths if path.suffix != ".crc"))
    rules = LogRules(with_meta_fields(avro_to_arrow(schema)), ("ts",))
    rows = rows_of(rules, found[-1]).rows.whole()
    deletes = delete_block("1", [("a", ("Long", 1)), ("b", None), ("c", [("Long", 1), None])])
    return rules, (*found, parquet_block("1", rows) + deletes)


def rows_of(rules: LogRules, data: bytes) -> LogRows:
    blocks = (block for block in scan_blocks(data) if isinstance(block, LogBlock))
    placed = (PlacedBlock(block, "a log") for block in blocks)
    return LogRows.of(blocks_in_order(placed, lambda _: True), rules)


def test_the_logs_have_rows_and_deletes():
    rules, found = logs()
    kinds = {block.kind for data in found for block in scan_blocks(data) if hasattr(block, "kind")}
    assert {AVRO_DATA, DELETE, PARQUET_DATA} <= kinds
    assert all(rows_of(rules, data).rows.num_rows for data in found)


@settings(max_examples=300)
@given(
    st.integers(0, len(TABLES)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=9))),
)
def test_a_log_with_any_damage_is_read_or_refused(number, changes):
    rules, found = logs()
    data = bytearray(found[number])
    for place, noise in changes:
        at = int(place * len(data))
        data[at : at + len(noise)] = noise
    try:
        rows = rows_of(rules, bytes(data))
    except (CorruptMetadataError, UnsupportedTableError) as error:
        assert str(error)  # noqa: PT017
        return
    assert rows.keys.num_rows == len(rows.row_of)


NOISE = (b"\x00", b"\x01", b"\x7f", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff")
VERSION_AND_KIND = 14
"""Offset in a block."""


def damaged(version):
    """Yield a table's storage with each byte of its log's header, and of its ends, changed.

    On every change each byte is changed to half of the values, the next one to the other half.
    """
    table = based(version)
    log = table.log(lambda time: block_of(time, row("a", 2, "new")) + delete_block(time, []))
    schema = log.data.index(b'{"type"')
    places = [*range(schema + 9), *range(log.data.index(b"\0\0\0\3", schema), len(log.data))]
    for place, (number, noise) in itertools.product(places, enumerate(NOISE)):
        if (place + number) % stride(2):
            continue
        data = log.data[:place] + noise + log.data[place + len(noise) :]
        if data != log.data:
            table.storage.replace(log.path, data)
            yield table.storage, log.path


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_every_byte_of_a_header_and_of_the_content(version):
    """Rows that are wrong can't be told; all else is an error that names the log and the offset."""
    refused = 0
    for storage, path in damaged(version):
        try:
            rows, _ = read(storage)
        except (CorruptMetadataError, UnsupportedTableError) as raised:
            error = str(raised)
        else:
            assert rows.num_rows >= len(BASE) - 1
            continue
        refused += 1
        assert path in error
        assert "at offset " in error
    assert refused > 500 // stride(2)


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("change", quick_runs([b"9"], [b"\0", b"\xff", b"0", b"1", b"9", b"x"]))
def test_a_damaged_time_loses_no_rows_of_a_completed_instant(version, change):
    """In version 6 a later time may be that of a write that began since; its blocks are skipped."""
    table = based(version)
    log = table.log(lambda time: block_of(time, row("a", 2, "new")))
    time = log.instant.requested_time.encode()
    at, lost = log.data.index(time), 0
    for place in range(at, at + len(time)):
        data = log.data[:place] + change + log.data[place + 1 :]
        later = data[at : at + len(time)] > time
        table.storage.replace(log.path, data)
        try:
            lost += values(table.storage)["a"] == "base" and not (version == 6 and later)
        except CorruptMetadataError as error:
            assert log.path in str(error)  # noqa: PT017
            assert "a completed instant wrote bytes 0 to" in str(error)  # noqa: PT017
    assert not lost


def test_a_header_with_a_key_twice_is_no_header():
    table = based()
    log = table.log(lambda time: block_of(time, row("a", 2, "new")))
    at = log.data.index(b"\0\0\0\2", log.data.index(log.instant.requested_time.encode()))
    table.storage.replace(log.path, log.data[: at + 3] + b"\0" + log.data[at + 4 :])
    with pytest.raises(CorruptMetadataError, match=r"its header has keys \[0, 0\], some twice"):
        read(table.storage)


@pytest.mark.property
def test_any_damage_of_a_block_that_no_completed_instant_wrote_changes_nothing():
    """But another version of blocks is refused, as is a command that has lost its header."""
    table = based(6)
    table.rows_log(row("c", 2, "first"))
    before = values(table.storage)
    log = table.log(lambda time: block_of(time, row("a", 2, "new")), complete=False)
    time = log.data.index(log.instant.requested_time.encode())
    header = log.data.index(b'{"type"')
    for place in (*range(header), *range(len(log.data) - 20, len(log.data))):
        if time <= place < time + 17:  # another time may be a completed instant's
            continue
        for noise in NOISE[:4]:
            data = log.data[:place] + noise + log.data[place + 1 :]
            table.storage.replace(log.path, data)
            try:
                assert values(table.storage) == before
            except UnsupportedTableError:
                assert VERSION_AND_KIND <= place < VERSION_AND_KIND + 8

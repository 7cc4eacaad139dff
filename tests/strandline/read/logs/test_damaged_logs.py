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
from tests.kit import golden
from tests.kit.log_files import delete_block, parquet_block
from tests.strandline.read.logs.log_table import BASE, based, block_of, read, row
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
def test_any_damage(number, changes):
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


def damaged(version):
    """Yield a table's storage with each byte of its log's header, and of its ends, changed."""
    table = based(version)
    log = table.log(lambda time: block_of(time, row("a", 2, "new")) + delete_block(time, []))
    schema = log.data.index(b'{"type"')
    places = [*range(schema + 9), *range(log.data.index(b"\0\0\0\3", schema), len(log.data))]
    for place, noise in itertools.product(places, NOISE):
        data = log.data[:place] + noise + log.data[place + len(noise) :]
        if data != log.data:
            table.storage.replace(log.path, data)
            yield table.storage, log.path


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
    assert refused > 500

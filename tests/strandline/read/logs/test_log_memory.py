"""The memory that a slice with large logs takes: pieces of mapped files, logs that are freed."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fsview.model.file_group import LogFile
from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.log_blocks import LogReader
from strandline.read.logs.log_records import KEY, LogRecords, LogRules
from strandline.read.logs.log_rows import LogRows, StoredGroup
from strandline.read.logs.spool import Spool, SpooledRows
from strandline.read.logs.temp_file import LogBudget, TempFile
from strandline.read.pinned_rows import SliceReader, SliceRules
from strandline.records.meta_fields import RECORD_KEY, with_meta_fields
from tests.kit.formats.log_files import parquet_block
from tests.strandline.read.logs.log_table import SCHEMA, based, block_of, row, sliced
from timeline.encoding.log_block import SCHEMA as AVRO_SCHEMA
from timeline.encoding.log_block import scan_blocks

_MIB = 1 << 20
_PROC = Path("/proc/self")

pytestmark = pytest.mark.skipif(
    not os.access(_PROC / "clear_refs", os.W_OK), reason="Linux resets the peak of memory"
)


def resident(name: str) -> int:
    """Return a size of the process, in bytes."""
    lines = (_PROC / "status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def growth(action: Callable[[], object]) -> int:
    """Return by how many bytes the peak of resident memory exceeds that before an action."""
    (_PROC / "clear_refs").write_text("5")
    before = resident("VmRSS")
    action()
    return resident("VmHWM") - before


def spooled(pieces: int, budget: LogBudget) -> SpooledRows:
    """Return mapped rows, 1 MiB a piece."""
    numbers = pa.table({"n": np.arange(_MIB // 8)})
    with Spool(numbers.schema, budget, _MIB) as spool:
        spool.spill()
        for _ in range(pieces):
            spool.add(numbers)
        return spool.end()


@pytest.mark.property
def test_rows_are_taken_from_one_piece_after_the_other(tmp_path):
    found = spooled(48, LogBudget(_MIB, str(tmp_path)))
    at = np.arange(0, found.num_rows, 512)  # one row a page
    for order in (at, at[::-1]):
        assert growth(lambda order=order: found.take(order)) < 16 * _MIB


@pytest.mark.property
def test_keys_are_hashed_and_compared_one_piece_after_the_other(tmp_path):
    keys = pa.array([f"key-{number:060}" for number in range(_MIB // 64)])
    with Spool(pa.schema([(KEY, pa.string())]), LogBudget(_MIB, str(tmp_path)), _MIB) as spool:
        spool.spill()
        for _ in range(48):
            spool.add(pa.table({KEY: keys}))
        heads = spool.end()
    none = np.zeros(0, np.int64)
    records = LogRecords(heads, heads, LogBudget(8 * heads.nbytes // 2), None)
    assert growth(lambda: next(records.parts())) < heads.nbytes + 16 * _MIB
    rows = LogRows(heads, heads, none, none, heads, None)
    assert growth(lambda: rows.any_between((b"a", b"b"))) < 16 * _MIB


@pytest.mark.property
def test_spilled_rows_are_not_copied_in_memory(tmp_path):
    rows = pa.table({"n": np.arange(32 * _MIB // 8)})
    with Spool(rows.schema, LogBudget(_MIB, str(tmp_path))) as spool:
        spool.add(rows)
        assert growth(spool.spill) < 8 * _MIB


@pytest.mark.property
def test_a_large_block_is_released_piece_by_piece(tmp_path):
    text = np.random.default_rng(1).bytes(_MIB // 2).hex()
    rows = pa.Table.from_pylist([row("k", 1, text)] * 32, with_meta_fields(SCHEMA))
    data = parquet_block("1", rows, row_group_size=1, compression="none", use_dictionary=False)
    budget = LogBudget(_MIB, str(tmp_path))
    with TempFile(budget) as file:
        file.write(data)
        (block,) = scan_blocks(memoryview(file.mapped()))
    rules = LogRules(rows.schema, ("ts",), budget)
    del rows, data
    blocks = [PlacedBlock(block, "a log")]
    assert growth(lambda: LogRecords.of(blocks, rules)) < 24 * _MIB


@pytest.mark.property
def test_stored_rows_are_merged_in_slices_and_in_order():
    text = "x" * (3 * _MIB)
    stored = [row(key, 1, text) for key in "abcdefg"]
    schema = with_meta_fields(SCHEMA)
    base = pa.Table.from_pylist(stored, schema)
    (block,) = scan_blocks(block_of("1", row("b", 2, "new"), row("f", 2, deleted=True)))
    rules = LogRules(schema, ("ts",))
    newest = LogRows.of([PlacedBlock(block, "a log")], rules)
    group = StoredGroup(base.column(RECORD_KEY), [base])
    pieces = list(newest.merge([group], rules, ["id", "v"]))
    assert max(piece.num_rows for piece in pieces) == 5
    found = [(each["id"], len(each["v"])) for piece in pieces for each in piece.to_pylist()]
    assert found == [(key, 3 if key == "b" else len(text)) for key in "abcdeg"]


class WatchedLogs(LogReader):
    """Remembers the bytes of the blocks that it returned."""

    def __init__(self, logs: LogReader) -> None:
        super().__init__(logs._storage, logs._committed, logs._needed)
        self.alive: list[weakref.ref[np.ndarray]] = []

    def blocks(self, logs, budget=None):
        found = []
        for placed in super().blocks(logs, budget):
            data = np.array(placed.block.content)  # which, unlike bytes, can be referenced weakly
            self.alive.append(weakref.ref(data))
            found.append(replace(placed, block=replace(placed.block, content=memoryview(data))))
        return tuple(found)


def logged(count: int):
    table = based()
    for number in range(count):
        table.rows_log(row("a", number), row(f"k{number}", 1))
    return table


def test_logs_in_memory_are_freed_once_they_are_decoded():
    table = logged(3)
    found, reader = sliced(table.storage)
    logs = WatchedLogs(reader)
    rules = SliceRules(with_meta_fields(SCHEMA), table.meta.config)
    rows = SliceReader(table.storage, rules, logs).rows(found)
    next(rows)
    assert [each() for each in logs.alive] == [None] * 3


def test_the_logs_beyond_the_budget_share_one_open_file(tmp_path):
    table = logged(20)
    found, reader = sliced(table.storage)
    logs: tuple[LogFile, ...] = found.log_files
    before = len(os.listdir(_PROC / "fd"))
    blocks = reader.blocks(logs, LogBudget(0, str(tmp_path)))
    assert len(blocks) == 20
    assert len(os.listdir(_PROC / "fd")) <= before + 1
    assert {len(placed.block.content.obj) for placed in blocks} == {sum(log.size for log in logs)}


def test_blocks_share_the_text_of_their_schema():
    found, reader = sliced(logged(3).storage)
    schemas = [placed.block.header[AVRO_SCHEMA] for placed in reader.blocks(found.log_files)]
    assert len(schemas) == 3
    assert all(each is schemas[0] for each in schemas)


def test_row_numbers_take_four_bytes_and_keys_a_quarter_of_the_budget(tmp_path):
    rows = pa.Table.from_pylist(
        [row(f"key {number}", 1) for number in range(200)], with_meta_fields(SCHEMA)
    )
    (block,) = scan_blocks(parquet_block("1", rows))
    rules = LogRules(rows.schema, ("ts",), LogBudget(10_000, str(tmp_path)))
    newest = LogRows.of([PlacedBlock(block, "a log")], rules)
    assert 2_500 < newest.keys.nbytes < 10_000
    assert newest.keys.mapped is not None
    assert (newest.row_of.itemsize, newest.first.itemsize) == (4, 4)

"""Logs that take more than their budget of memory: equal rows, and temporary files that end."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import Table
from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.log_records import LogRecords, LogRules
from strandline.read.logs.spool import Spool
from strandline.read.logs.temp_file import BUDGET_BYTES, LogBudget
from strandline.records.meta_fields import META_FIELDS, with_meta_fields
from tests.kit.formats.log_files import delete_block, parquet_block
from tests.kit.garbage import collect_garbage
from tests.kit.short_runs import examples
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import (
    SCHEMA,
    VERSIONS,
    based,
    block_of,
    read,
    row,
    stream,
)
from timeline.encoding.log_block import scan_blocks
from timeline.errors import CorruptMetadataError, StorageError
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells the maps")

LOGS = tuple(name for name in golden.scenarios() if "mor" in name and golden.has_final_table(name))
BUDGETS = st.sampled_from([0, 1, 100, 1_000, 10_000])


def has_logs(folder: Path) -> bool:
    return any(folder.glob("**/[.]*.log.*"))


@pytest.mark.property
@pytest.mark.parametrize("scenario", LOGS)
def test_rows_of_recorded_tables_are_equal(scenario, tmp_path_factory):
    """In the same order, for any columns."""
    folder = golden.build_final(scenario, tmp_path_factory.mktemp(scenario))
    storage = LocalStorage(str(folder))
    full = Table(folder).schema()
    own = pa.schema([column for column in full if column.name not in META_FIELDS])
    columns = st.lists(st.sampled_from(full.names), min_size=1, unique=True)

    @settings(max_examples=examples(12))
    @given(st.none() | columns, BUDGETS)
    def drawn(names, budget):
        expected, _ = read(storage, own, names)
        found, _ = read(storage, own, names, budget=LogBudget(budget))
        assert found.equals(expected)
        assert names is not None or found.num_rows

    drawn()


@pytest.mark.property
def test_there_are_recorded_tables_with_logs(tmp_path):
    found = [n for n in LOGS if has_logs(golden.build_final(n, tmp_path / n))]
    assert len(found) > 15


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def in_use(folder: Path) -> list[str]:
    """Return files of a folder that are open or mapped, named or not."""
    collect_garbage()
    maps = Path("/proc/self/maps").read_text().splitlines()
    found = [line for line in maps if str(folder) in line]
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # that of the listing itself
            continue
    return [each for each in found if str(folder) in each]


def logged(version=9):
    """Return a table whose logs have updates, inserts and deletes."""
    table = based(version)
    rows = [row(f"k{number}", 2, "x" * 50) for number in range(60)]
    table.rows_log(row("a", 2, "new"), *rows)
    table.log(lambda time: block_of(time, row("k3", 3, "more")) + delete_block(time, [("b", None)]))
    return table


@pytest.mark.property
@VERSIONS
def test_no_file_has_a_name_and_none_is_left(version, tmp_path):
    table = logged(version)
    budget = LogBudget(0, str(tmp_path))
    batches, _ = stream(table.storage, budget=budget)
    first = next(batches)
    assert first["_hoodie_record_key"].to_pylist() == ["a", "c"]
    assert in_use(tmp_path)
    assert os.listdir(tmp_path) == []
    rest = pa.Table.from_batches(batches)
    expected, _ = read(table.storage)
    assert pa.concat_tables([pa.Table.from_batches([first]), rest]).to_pylist() == (
        expected.to_pylist()
    )
    del batches
    assert in_use(tmp_path) == []


@pytest.mark.property
def test_a_reader_that_is_dropped_leaves_no_file(tmp_path):
    batches, _ = stream(logged().storage, budget=LogBudget(0, str(tmp_path)))
    next(batches)
    assert in_use(tmp_path)
    del batches
    assert in_use(tmp_path) == []


def test_damage_leaves_no_file(tmp_path):
    table = logged()
    log = table.rows_log(*[row(f"k{number}", 5) for number in range(3)])
    at = log.data.rindex(b"k2")
    table.storage.replace(log.path, log.data[: at - 1] + b"\xff" * 9 + log.data[at + 8 :])
    with pytest.raises(CorruptMetadataError, match="at offset"):
        read(table.storage, budget=LogBudget(0, str(tmp_path)))
    assert in_use(tmp_path) == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    (tmp_path / "file").touch()
    for folder in map(str, (tmp_path / "missing", tmp_path / "file")):
        with pytest.raises(StorageError, match="set TMPDIR") as raised:
            read(logged().storage, budget=LogBudget(0, folder))
        assert folder in str(raised.value)


@pytest.mark.property
@pytest.mark.parametrize("size", [0, 1, 1_000, 9_000])
def test_a_full_disk_is_named(size, tmp_path):
    """Wherever it becomes full: of logs, of records, or of what they were folded to."""
    table = logged()
    with (
        largest_file(size),
        pytest.raises(StorageError, match="File too large; it is needed for") as raised,
    ):
        read(table.storage, budget=LogBudget(0, str(tmp_path)))
    assert str(tmp_path) in str(raised.value)
    del raised  # with the frames that have the files
    assert in_use(tmp_path) == []
    assert read(table.storage, budget=LogBudget(0, str(tmp_path)))[0].num_rows == 62


def test_torn_blocks_are_found_in_a_copy():
    table = based()
    table.log(lambda time: block_of(time, row("a", 2, "new")) + b"#HUDI#torn", recorded=10)
    table.rows_log(row("b", 2, "new"))
    for size in (0, BUDGET_BYTES):
        rows, logs = read(table.storage, columns=["v"], budget=LogBudget(size))
        assert rows["v"].to_pylist() == ["new", "new", "base"]
        assert logs.counts.torn_blocks == 1


@given(st.integers(0, 300), st.sampled_from([0, 500, 5_000]))
def test_a_key_is_in_one_part(count, size):
    keys = [f"key {number % 50}" for number in range(count)]
    rows = pa.Table.from_pylist([row(key, 1) for key in keys], with_meta_fields(SCHEMA))
    (block,) = scan_blocks(parquet_block("1", rows))
    rules = LogRules(rows.schema, ("ts",), LogBudget(size))
    parts = list(LogRecords.of([PlacedBlock(block, "a log")], rules).parts())
    found = [set(heads["key"].to_pylist()) for _, heads in parts]
    assert sum(map(len, found)) == len(set(keys))
    numbers = [number for at, _ in parts for number in at.tolist()]
    assert sorted(numbers) == list(range(count))
    assert all(list(at) == sorted(at) for at, _ in parts)
    assert len(parts) > 1 or size > 0 or count < 50


def test_rows_are_taken_in_any_order():
    rows = pa.table({"n": list(range(100)), "t": [None, "a"] * 50})
    for size in (0, 200, BUDGET_BYTES):
        with Spool(rows.schema, LogBudget(size)) as spool:
            for at in range(0, 100, 7):
                spool.add(rows.slice(at, 7))
                if spool.nbytes > size:
                    spool.spill()
            found = spool.end()
        assert (found.mapped is None) == (size == BUDGET_BYTES)
        assert found.whole().equals(rows)
        at = pa.array([99, 0, 50, 50, 3]).to_numpy()
        assert found.take(at).equals(rows.take(pa.array(at)))
        assert found.take(at[:0]).equals(rows.slice(0, 0))
        ascending = pa.array([0, 3, 3, 50, 99], pa.int32()).to_numpy()
        assert found.take(ascending).equals(rows.take(pa.array(ascending)))


@pytest.mark.parametrize(("depth", "is_stored"), [(63, True), (64, False)])
def test_rows_that_nest_too_deeply_for_a_file_stay_in_memory(depth, is_stored):
    kind = pa.int32()
    for _ in range(depth):
        kind = pa.struct([("x", kind)])
    rows = pa.table({"deep": pa.nulls(3, kind), "n": [1, 2, 3]})
    with Spool(rows.schema, LogBudget(0)) as spool:
        spool.add(rows)
        spool.spill()
        spool.add(rows)
        found = spool.end()
    assert (found.mapped is not None) == is_stored
    assert found.whole().equals(pa.concat_tables([rows, rows]))

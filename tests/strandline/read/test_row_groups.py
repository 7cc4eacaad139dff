"""Row groups of a base file in a slice with logs: those that no key of the logs falls into."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.read.scan import Scan
from strandline.records.file.base_file import stored_rows
from strandline.records.meta_fields import RECORD_KEY, with_meta_fields
from tests.strandline.read.logs.log_table import SCHEMA, LogTable, read, row, values
from timeline.errors import TableError

KEYS = st.text(st.sampled_from("ab\uffff\U00010000"), min_size=1, max_size=3)


def grouped(keys, size, *, statistics=True):
    """Return a table whose base file has row groups of some size, and the file's path."""
    table = LogTable()
    rows = [row(key, 1, "base") for key in keys]
    path = table.base(rows)
    stream = io.BytesIO()
    stored = pa.Table.from_pylist(rows, with_meta_fields(SCHEMA))
    pq.write_table(stored, stream, row_group_size=size, write_statistics=statistics)
    table.storage.replace(path, stream.getvalue())
    return table, path


def spoil_keys(table, path, group):
    """Overwrite the record keys of a row group."""
    data = bytearray(table.storage.read(path))
    footer = pq.ParquetFile(io.BytesIO(data)).metadata
    at = [footer.schema.column(n).path for n in range(footer.num_columns)].index(RECORD_KEY)
    chunk = footer.row_group(group).column(at)
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    data[first : first + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    table.storage.replace(path, bytes(data))


@pytest.mark.parametrize(
    ("key", "is_read"), [("a", False), ("b2", False), ("c", True), ("d", True), ("e", False)]
)
def test_keys_are_only_read_where_one_may_be_in_the_logs(key, is_read):
    table, path = grouped(["a", "b", "c", "d"], 2)
    table.rows_log(row(key, 2, "new"))
    spoil_keys(table, path, 1)
    if is_read:
        with pytest.raises(TableError, match="can't be read"):
            read(table.storage, columns=["v"])
    else:
        found, _ = read(table.storage, columns=["v"])
        assert sorted(found["v"].to_pylist()) == ["base"] * (4 - (key == "a")) + ["new"]


@pytest.mark.parametrize("key", ["c", "d", "e"])
def test_row_groups_that_cannot_match_are_skipped_unless_they_may_be_touched(key):
    table, path = grouped(["a", "b", "c", "d"], 2)
    table.rows_log(row(key, 2, "new"))
    new = Scan.of(table.meta, columns=["id", "v"], filter=pc.field("v") == "new")
    assert new.to_arrow().to_pylist() == [{"id": key, "v": "new"}]  # no stored row has it
    spoil_keys(table, path, 1)
    other = Scan.of(table.meta, columns=["_hoodie_record_key"], filter=pc.field("id") == "b")
    if key == "e":
        assert other.to_arrow()[RECORD_KEY].to_pylist() == ["b"]
        with pytest.raises(TableError, match="can't be read"):
            Scan.of(table.meta).to_arrow()
    else:
        with pytest.raises(TableError, match="can't be read"):
            other.to_arrow()


def test_without_statistics_all_keys_are_read():
    table, path = grouped(["a", "b", "c", "d"], 2, statistics=False)
    with stored_rows(table.storage, path) as stored:
        assert stored.key_span(0) is None
    table.rows_log(row("d", 2, "new"))
    assert values(table.storage) == {"a": "base", "b": "base", "c": "base", "d": "new"}


@settings(max_examples=50)
@given(st.lists(KEYS, max_size=6, unique=True), st.lists(KEYS, max_size=3), st.integers(1, 3))
def test_rows_are_the_same_whatever_the_row_groups(keys, updated, size):
    table, _ = grouped(keys, size)
    for key in updated:
        table.rows_log(row(key, 2, "new"))
    found, _ = read(table.storage, columns=["id", "v"])
    new = [key for key in dict.fromkeys(updated) if key not in keys]
    expected = [(key, "new" if key in updated else "base") for key in keys]
    assert [tuple(one.values()) for one in found.to_pylist()] == expected + [
        (k, "new") for k in new
    ]

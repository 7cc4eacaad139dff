"""Base files whose footer gives a column chunk another physical type than its column.

Looked at, such statistics would end the process: a test that fails may do so.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fsview.model.file_group import BaseFile, FileSlice
from strandline.read.dataset import dataset_of
from strandline.records.file.base_file import stored_rows
from timeline.encoding.column_chunk import check_chunks
from timeline.errors import TableError
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig

NAME = "f_0-0-0_20260101000000000.parquet"
SCHEMA = pa.schema([("_hoodie_record_key", pa.string()), ("n", pa.int64())])
BYTES, INTS, BOOLEANS = b"\x0c", b"\x04", b"\x00"
"""Thrift's compact form of physical types."""


@pytest.fixture(params=[("_hoodie_record_key", BYTES), ("n", INTS)], ids=["text", "number"])
def damaged(request, tmp_path):
    """Return a storage and the name of a column whose chunk is said to hold booleans."""
    name, kind = request.param
    path = tmp_path / NAME
    pq.write_table(pa.table({"_hoodie_record_key": ["a", "b"], "n": [1, 2]}, SCHEMA), path)
    data = path.read_bytes()
    # A chunk's type is followed by its list of encodings; a column's by its repetition.
    head = b"\x1c\x15" + kind + b"\x19"
    assert data.count(head) == 1
    path.write_bytes(data.replace(head, b"\x1c\x15" + BOOLEANS + b"\x19"))
    return LocalStorage(str(tmp_path)), name


def test_row_groups_are_not_chosen_by_damaged_statistics(damaged):
    storage, name = damaged
    condition = pc.field(name) > pa.scalar("a" if name != "n" else 1)
    with (
        stored_rows(storage, NAME) as stored,
        pytest.raises(TableError, match=rf"{NAME} .*row group 0 .*column {name} .* as BOOLEAN"),
    ):
        stored.groups_that_may_match(condition, pa.schema([SCHEMA.field(name)]))


def test_a_span_of_keys_is_not_taken_from_damaged_statistics(damaged):
    storage, name = damaged
    with stored_rows(storage, NAME) as stored:
        if name == "n":
            assert stored.key_span(0) == (b"a", b"b")
            return
        with pytest.raises(TableError, match=f"{NAME} .*of type BYTE_ARRAY as BOOLEAN"):
            stored.key_span(0)


def test_a_dataset_does_not_filter_by_damaged_statistics(damaged, caplog):
    storage, name = damaged
    base = BaseFile("", NAME, storage.stat(NAME).size, 0, "f", "20260101000000000")
    config = TableConfig.create(name="t", record_key_fields=("n",), partition_fields=())
    found = dataset_of(storage, [FileSlice("", "f", base.instant, base)], SCHEMA, config)
    condition = pc.field(name) > pa.scalar("a" if name != "n" else 1)
    with pytest.raises(pa.ArrowInvalid, match=NAME):
        found.to_table(filter=condition)
    assert f"column {name} of type" in caplog.text


def test_sound_statistics_of_nested_columns_pass(tmp_path):
    rows = pa.table({"s": [{"a": [1, 2], "b": "x"}], "m": pa.array([{"k": 1}])})
    pq.write_table(rows, tmp_path / NAME)
    check_chunks(pq.read_metadata(tmp_path / NAME))

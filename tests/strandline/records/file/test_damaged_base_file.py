"""Base files whose footer or columns can't be right."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.records.file.base_file import (
    MAX_KEY,
    MIN_KEY,
    read_base_file,
    read_footer,
    read_keys_if,
    stored_rows,
)
from strandline.records.file.key_search import KeySearch
from timeline.errors import TableError
from timeline.storage.local import LocalStorage


def search(storage):
    return KeySearch(pa.array(["a", "b"]), by_filter=False).found(storage, "f.parquet")


def read_pieces(storage):
    with stored_rows(storage, "f.parquet") as stored:
        return list(stored.pieces())


def read_keys(storage):
    with stored_rows(storage, "f.parquet") as stored:
        return stored.keys()


def write(base, keys, least=b"a", greatest=b"c", **columns):
    table = pa.table({"_hoodie_record_key": keys, "n": pa.array(range(len(keys)))})
    for name, column in columns.items():
        table = table.append_column(name, column)
    table = table.replace_schema_metadata({MIN_KEY: least, MAX_KEY: greatest})
    pq.write_table(table, base / "f.parquet")
    return LocalStorage(str(base))


@pytest.mark.parametrize(
    ("least", "greatest"),
    [(b"\xff", b"\xfe"), (b"a", b"\xff"), (b"\xff", b"b"), (b"zz", b"aa"), (b"z", b"y")],
)
def test_a_key_range_that_cannot_be_right_is_ignored(tmp_path, least, greatest):
    storage = write(tmp_path, ["a", "b", "c"], least, greatest)
    assert search(storage).at.tolist() == [0, 1]
    assert MIN_KEY in read_footer(storage, "f.parquet")


def test_a_key_range_that_may_be_right_counts(tmp_path):
    storage = write(tmp_path, ["a", "b", "c"], b"c", b"d")
    assert search(storage) is None


@pytest.mark.parametrize("keys", [pa.array(["a", None]), pa.array([1, 2])])
def test_record_keys_that_are_null_or_numbers_are_refused_by_file(tmp_path, keys):
    storage = write(tmp_path, keys)
    for read in (read_pieces, read_keys, search):
        with pytest.raises(TableError, match=r"f\.parquet has record keys of type"):
            read(storage)


def test_duplicate_columns_are_refused_by_file(tmp_path):
    storage = write(tmp_path, ["a"], n=pa.array([1]))
    for read in (
        lambda: read_keys_if(storage, "f.parquet", lambda footer: True),
        lambda: read_base_file(storage, "f.parquet"),
        lambda: read_pieces(storage),
    ):
        with pytest.raises(TableError, match=r"f\.parquet under .* duplicate columns \['n'\]"):
            read()


def test_rows_without_a_key_column_are_refused_by_file(tmp_path):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "f.parquet")
    for read in (read_pieces, read_keys):
        with pytest.raises(TableError, match=r"f\.parquet lacks the columns \['_hoodie_record_key"):
            read(LocalStorage(str(tmp_path)))


@pytest.mark.property
@pytest.mark.parametrize("bit", [1, 7])
def test_a_footer_with_any_bit_changed_is_read_or_refused(tmp_path, bit):
    storage = write(tmp_path, ["a", "b"])
    path = tmp_path / "f.parquet"
    data = path.read_bytes()
    refused = 0
    for at in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        try:
            read_base_file(storage, "f.parquet")
        except TableError:
            refused += 1
    assert refused > 100

"""Base files whose footer has other numbers of rows than the file: an error, and no other rows."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.records.file.base_file import read_base_file, read_keys_if, stored_rows
from timeline.errors import TableError
from timeline.storage.local import LocalStorage

KEYS = [f"key {at}" for at in range(6)]
COUNT = bytes([2 * len(KEYS)])
"""As a footer has it."""


def pieces(storage):
    with stored_rows(storage, "f.parquet") as stored:
        return sum(piece.num_rows for piece in stored.pieces())


def keys(storage):
    with stored_rows(storage, "f.parquet") as stored:
        return len(stored.keys())


def count(storage):
    with stored_rows(storage, "f.parquet") as stored:
        return stored.num_rows


READS = {
    "pieces": pieces,
    "keys": keys,
    "count": count,
    "whole": lambda storage: read_base_file(storage, "f.parquet").num_rows,
    "keys if": lambda storage: read_keys_if(storage, "f.parquet", lambda _: True).num_rows,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_rows_are_read_as_often_as_they_are_there_or_not_at_all(read, tmp_path):
    path, storage = tmp_path / "f.parquet", LocalStorage(str(tmp_path))
    rows = pa.table({"_hoodie_record_key": KEYS, "n": [1.5] * len(KEYS)})
    pq.write_table(rows, path, write_statistics=False, store_schema=False)
    data = path.read_bytes()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    places = [at for at in range(begin, len(data) - 8) if data[at : at + 1] == COUNT]
    assert len(places) > 3
    refused = 0
    for at in places:
        for value in (0, COUNT[0] - 2, COUNT[0] + 1, COUNT[0] + 2):
            path.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
            try:
                assert read(storage) == len(KEYS)
            except TableError as error:
                refused += 1
                assert "f.parquet" in str(error)  # noqa: PT017
    assert refused > 3

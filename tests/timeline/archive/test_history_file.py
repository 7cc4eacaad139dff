"""Files of the history: their size in memory is bounded, however Parquet encodes them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.storage.memory_storage import MemoryStorage
from timeline.archive.archived_timeline import HistoryArchive
from timeline.archive.history_file import COLUMNS, HistoryFile
from timeline.errors import CorruptMetadataError

TEXT = {"instantTime": "1", "completionTime": "2", "action": "commit"}
TIMES = ("instantTime", "completionTime", "action")
CONTENT = ("instantTime", "action", "metadata", "plan")
INFLATED = "allowed: at most"


def parquet(columns: dict[str, pa.Array], **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd", **options)
    return sink.getvalue().to_pybytes()


def alike(rows: int, metadata: bytes = b"", **options: object) -> bytes:
    """Return a file of equal rows that has each value once."""
    columns = {name: pa.array([text] * rows) for name, text in TEXT.items()}
    columns["metadata"] = pa.array([metadata] * rows, pa.binary())
    columns["plan"] = pa.nulls(rows, pa.binary())
    return parquet(columns, **options)


def opened(data: bytes) -> HistoryFile:
    return HistoryFile(pa.BufferReader(data))


def test_rows_are_those_of_the_row_groups_asked_for() -> None:
    times = [f"{at:05d}" for at in range(3000)]
    columns = {name: pa.array(times) for name in COLUMNS} | {"version": pa.array([1] * 3000)}
    for name in ("metadata", "plan"):
        columns[name] = pa.array([None if at % 3 else b"%d" % at for at in range(3000)])
    file = opened(parquet(columns, row_group_size=1500))
    assert file.bounds == [("00000", "01499"), ("01500", "02999")]
    rows, size = file.read(TIMES)
    assert rows == [dict.fromkeys(TIMES, time) for time in times]
    assert size == 3000 * 15
    rows, _ = file.read(CONTENT, [1])
    assert [row["instantTime"] for row in rows] == times[1500:]
    assert [row["plan"] for row in rows[:3]] == [b"1500", None, None]
    assert set(rows[0]) == set(CONTENT)


def test_more_rows_than_bytes_account_for_are_not_read() -> None:
    """20 million equal rows in 387 kB took 6 GB and 6 s."""
    data = alike(20_000)
    assert len(data) < 16 * 20_000
    with pytest.raises(ValueError, match=f"20000 rows or more.*{INFLATED}"):
        opened(data)


@pytest.mark.property
def test_a_row_group_of_far_more_bytes_is_not_read() -> None:
    data = alike(1, bytes(20_000_000), use_dictionary=False)
    with pytest.raises(ValueError, match=rf"1 rows or more, of 2000\d+ bytes.*{INFLATED}"):
        opened(data)


@pytest.mark.property
def test_a_value_that_many_rows_have_counts_for_each_of_them() -> None:
    data = alike(40, bytes(1_000_000))
    file = opened(data)
    assert len(file.read(TIMES)[0]) == 40
    with pytest.raises(ValueError, match=f"40 rows or more, of 40000280 bytes.*{INFLATED}"):
        file.read(CONTENT)


def test_a_column_of_lists_is_none_of_the_history() -> None:
    columns = {name: pa.array([text]) for name, text in TEXT.items()}
    columns["action"] = pa.array([["commit"] * 1000])
    with pytest.raises(TypeError, match="it has 0 columns action of text or bytes"):
        opened(parquet(columns)).read(TIMES)


@pytest.mark.parametrize("metadata", [b"", bytes(20_000_000)], ids=["rows", "bytes"])
def test_a_file_that_is_refused_is_named(metadata: bytes) -> None:
    storage = MemoryStorage()
    rows = 1 if metadata else 20_000
    storage.files["history/_version_"] = (b"1", 0)
    storage.files["history/manifest_1"] = (b'{"files": [{"fileName": "1_1_0.parquet"}]}', 0)
    data = alike(rows, metadata, use_dictionary=not metadata)
    storage.files["history/1_1_0.parquet"] = (data, 0)
    with pytest.raises(CorruptMetadataError, match=f"1_1_0.parquet is no history.*{INFLATED}"):
        assert HistoryArchive(storage, "history").timeline

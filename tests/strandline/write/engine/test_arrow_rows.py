"""The rows of every library that exports an Arrow stream are rows of a write."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

from strandline import LocalEngine, Table, WriteClient
from strandline.records.row_selection import row_sizes
from strandline.write.engine.arrow_rows import _with_plain_types, read_arrow_stream
from timeline.errors import InputError

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.embed.timeline.server": False,
}
DATA = {
    "id": ["a", "b"],
    "region": ["eu", "us"],
    "ts": [1, 2],
    "tags": [["x", "y"], []],
    "seat": [{"row": "c"}, {"row": None}],
    "raw": [b"\x00", None],
}
ARROW = pa.table(DATA)


class Foreign:
    """Rows of a library that this package doesn't know."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ARROW.__arrow_c_stream__(requested_schema)


ROWS = {
    "pyarrow.Table": lambda: ARROW,
    "pyarrow.RecordBatch": lambda: ARROW.to_batches()[0],
    "pyarrow.RecordBatchReader": ARROW.to_reader,
    "pandas.DataFrame": lambda: pd.DataFrame(DATA, index=["first", "second"]),
    "polars.DataFrame": lambda: pl.DataFrame(DATA),
    "a pyarrow.Table of Polars' views": lambda: pa.table(pl.DataFrame(DATA)),
    "of another library": Foreign,
}


@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_a_library_are_written(kind: str, tmp_path: Path) -> None:
    with WriteClient(LocalEngine(), tmp_path / "t", OPTIONS) as client:
        assert client.upsert(ROWS[kind]()).rows_inserted == 2
    stored = Table(tmp_path / "t").to_arrow(list(DATA)).sort_by("id")
    assert stored.to_pydict() == DATA


@pytest.mark.property
def test_rows_of_duckdb_are_written(tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect() as connection, WriteClient(LocalEngine(), tmp_path, OPTIONS) as client:
        connection.register("rows", ARROW)
        assert client.upsert(connection.sql("select * from rows")).rows_inserted == 2
    assert Table(tmp_path).to_arrow(list(DATA)).sort_by("id").to_pydict() == DATA


def test_what_has_no_stream_is_refused_with_what_has_one(subtests: pytest.Subtests) -> None:
    for rows, hint in [
        (pl.LazyFrame(DATA), r"pass what its collect\(\) returns"),
        (pyarrow.dataset.dataset(ARROW), r"pass what its to_table\(\) returns"),
        # As a DataFrame of PySpark 3.5.
        (type("DataFrame", (), {"sparkSession": None})(), "make the client with the SparkSession"),
        ([{"id": "a"}], r"pyarrow\.Table\.from_pylist\(rows\) takes dicts"),
    ]:
        with subtests.test(rows=rows, hint=hint), pytest.raises(InputError, match=hint):
            LocalEngine().adopt(rows)


def test_views_inside_columns_become_plain() -> None:
    column = pa.array([[{"names": ["a"]}]], pa.list_(pa.struct([("names", pa.list_(pa.string()))])))
    viewing = pa.list_(pa.struct([("names", pa.list_(pa.string_view()))]))
    read = read_arrow_stream(pa.table({"c": column.cast(viewing)}))
    assert read == pa.table({"c": column})


def test_large_types_become_plain_where_an_engine_needs_it() -> None:
    rows = pa.table({"c": pa.array([["a"]], pa.large_list(pa.large_string()))})
    assert read_arrow_stream(rows) is rows
    assert read_arrow_stream(rows, large=False) == pa.table({"c": [["a"]]})


def test_rows_without_views_are_not_copied() -> None:
    assert read_arrow_stream(ARROW) is ARROW


def test_rows_are_read_once_from_a_reader() -> None:
    reader = ARROW.to_reader(1)
    assert read_arrow_stream(reader) == ARROW
    assert reader.read_all().num_rows == 0


@pytest.mark.parametrize("column", [pl.Series(["a"]), pa.chunked_array([["a"]])])
def test_a_single_column_is_refused(column: object) -> None:
    with pytest.raises(InputError, match="which has no columns"):
        LocalEngine().adopt(column)


@pytest.mark.parametrize("values", [[1, "x"], ["x", 1], [{"a": 1}, object()]])
def test_a_pandas_column_of_several_types_is_refused_by_name(values: list[object]) -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "mixed": pd.Series(values, dtype=object)})
    with pytest.raises(InputError, match=r"pandas.* can't be converted: .*column mixed") as caught:
        LocalEngine().adopt(frame)
    assert caught.value.hint == "give each column values of one type"


def test_types_nested_deeper_than_any_stored_one_are_left_to_the_check() -> None:
    kind = pa.string_view()
    for _ in range(300):
        kind = pa.list_(kind)
    empty = pa.schema([("c", kind)]).empty_table()
    assert read_arrow_stream(empty).num_rows == 0


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.large_string()], ids=str)
def test_chunks_too_large_for_the_plain_type_are_sliced(kind: pa.DataType) -> None:
    values = [f"{number}" * 20 for number in range(9)]
    rows = pa.table(
        {"n": range(9), "c": pa.array(values, pa.string()).cast(pa.binary()).cast(kind)}
    )
    plain = _with_plain_types(rows, large=False, max_size=50)
    assert plain["c"].type in (pa.string(), pa.binary())
    assert plain["c"].num_chunks > 4
    assert plain["c"].cast(pa.string()).to_pylist() == values
    assert plain.equals(_with_plain_types(rows, large=False))


def shared_text(kind: pa.DataType) -> pa.Array:
    """Return 20 views of the same 50 bytes."""
    views = struct.pack("<i4sii", 50, b"xxxx", 0, 0) * 20
    return pa.Array.from_buffers(kind, 20, [None, pa.py_buffer(views), pa.py_buffer(b"x" * 50)])


SHARED = {
    "text": shared_text(pa.string_view()),
    "binary": shared_text(pa.binary_view()),
    "list": pa.ListArray.from_arrays(range(21), shared_text(pa.string_view())),
    "large list": pa.LargeListArray.from_arrays(range(21), shared_text(pa.binary_view())),
    "struct": pa.StructArray.from_arrays([shared_text(pa.string_view())], ["a"]),
}


@pytest.mark.parametrize("kind", SHARED)
def test_views_are_sliced_by_the_text_that_they_show(kind: str) -> None:
    """Views may share their text: then Arrow's size of a column is less than that of its text."""
    rows = pa.table({"c": SHARED[kind]})
    assert rows.nbytes < 1000
    plain = _with_plain_types(rows, large=True, max_size=200)
    assert plain["c"].to_pylist() == rows["c"].to_pylist()
    assert max(row_sizes(chunk).sum() for chunk in plain["c"].chunks) <= 200


NANOS = [1_704_164_645_000_001_000, None, -1_000, 0]
"""Whole numbers of microseconds."""


def test_times_in_other_units_are_stored_in_microseconds(tmp_path: Path) -> None:
    nanos = pa.array(NANOS, pa.timestamp("ns"))
    rows = pa.table(
        {
            "id": list("abcd"),
            "region": ["eu"] * 4,
            "ts": nanos.fill_null(0),
            "local": nanos,
            "utc": nanos.cast(pa.timestamp("ns", "UTC")),
            "day": pa.array([0, 1, None, -1], pa.timestamp("s")),
            "list": pa.array([[each] for each in nanos], pa.list_(pa.timestamp("ns"))),
            "pair": pa.array([[each] for each in nanos], pa.list_(pa.timestamp("ns"), 1)),
            "seat": pa.StructArray.from_arrays([nanos], ["at"]),
        }
    )
    kinds = {"ts": None, "local": None, "utc": "UTC", "day": None}
    with WriteClient(LocalEngine(), tmp_path, OPTIONS) as client:
        assert client.insert(rows).rows_inserted == 4
    stored = Table(tmp_path).to_arrow(list(rows.schema.names)).sort_by("id")
    for name, zone in kinds.items():
        assert stored.schema.field(name).type == pa.timestamp("us", zone)
        assert stored[name].cast(rows.schema.field(name).type) == rows[name]
    assert stored["seat"].combine_chunks().field("at").cast(pa.timestamp("ns")) == nanos
    assert stored["list"].to_pylist() == [[each] for each in stored["local"].to_pylist()]
    assert stored["pair"] == stored["list"]


HIDDEN = pa.array([1, 2000], pa.timestamp("ns"))
FIRST_NULL = pa.array([True, False])


@pytest.mark.parametrize(
    "column",
    [
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), HIDDEN, mask=FIRST_NULL),
        pa.StructArray.from_arrays([HIDDEN], ["at"], mask=FIRST_NULL),
        pa.FixedSizeListArray.from_arrays(HIDDEN, 1, mask=FIRST_NULL),
        pa.array([None, [("k", HIDDEN[1])]], pa.map_(pa.string(), HIDDEN.type)),
    ],
    ids=["list", "struct", "fixed-size list", "map"],
)
def test_only_times_that_are_no_part_of_a_null_count(column: pa.Array) -> None:
    (stored,) = read_arrow_stream(pa.table({"c": column})).columns
    assert "[us]" in str(stored.type)
    assert stored.cast(column.type).to_pylist() == column.to_pylist()


@pytest.mark.parametrize("large", [True, False])
def test_a_null_list_of_fixed_size_may_have_items_that_are_not_null(large: bool) -> None:
    kind = pa.list_(pa.field("item", pa.float32(), nullable=False), 2)
    rows = pa.table({"c": pa.array([[1.0, 2.0], None], kind)})
    assert read_arrow_stream(rows, large=large)["c"].to_pylist() == [[1.0, 2.0], None]
    assert read_arrow_stream(rows.slice(0, 1), large=large)["c"].to_pylist() == [[1.0, 2.0]]


def test_a_nan_beside_a_time_in_a_null_struct_is_no_obstacle() -> None:
    floats = pa.array([1.0, math.nan])
    column = pa.StructArray.from_arrays([HIDDEN, floats], ["at", "x"], mask=FIRST_NULL)
    (stored,) = read_arrow_stream(pa.table({"c": column})).columns
    (of_null, other) = stored.to_pylist()
    assert of_null is None
    assert (other["at"].microsecond, math.isnan(other["x"])) == (2, True)


def test_an_inexact_time_of_an_unknown_zone_is_shown_in_utc() -> None:
    times = pa.array([0, 1], pa.timestamp("ns", "Europe/Nowhere"))
    with pytest.raises(InputError, match=r"row 1, 1970-01-01 00:00:00\.000000001Z, isn't exact"):
        read_arrow_stream(pa.table({"c": times}))


def test_times_of_pandas_are_stored(tmp_path: Path) -> None:
    times = pd.to_datetime(["2024-01-02T03:04:05.678901", "1969-12-31T23:59:59.000001"])
    frame = pd.DataFrame({"id": ["a", "b"], "region": ["eu", "us"], "ts": times.as_unit("ns")})
    with WriteClient(LocalEngine(), tmp_path, OPTIONS) as client:
        assert client.upsert(frame).rows_inserted == 2
    stored = Table(tmp_path).to_arrow(["id", "ts"]).sort_by("id")
    assert stored["ts"].to_pylist() == list(times.to_pydatetime())


def test_a_new_column_without_nulls_is_taken(tmp_path: Path) -> None:
    """Spark's literals aren't nullable, but stored rows lack the column."""
    added = pa.field("extra", pa.string(), nullable=False)
    seat = pa.field("seat", pa.struct([("row", pa.string()), added]))
    newer = ARROW.slice(0, 1).set_column(
        4, seat, pa.array([{"row": "d", "extra": "new"}], seat.type)
    )
    newer = newer.append_column(added, [["new"]])
    with WriteClient(LocalEngine(), tmp_path, OPTIONS) as client:
        client.insert(ARROW)
        assert client.upsert(newer).rows_updated == 1
    stored = Table(tmp_path).to_arrow(["id", "seat", "extra"]).sort_by("id")
    assert stored["extra"].to_pylist() == ["new", None]
    assert stored["seat"].to_pylist() == [
        {"row": "d", "extra": "new"},
        {"row": None, "extra": None},
    ]

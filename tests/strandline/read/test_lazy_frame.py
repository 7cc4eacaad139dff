"""Lazy frames of Polars: rows equal those of the eager frame with Polars' own filter."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator

import polars as pl
import polars.testing
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import LocalEngine, Table, WriteClient
from strandline.read.lazy_frame import lazy_frame
from strandline.read.scan import Scan
from tests.kit.formats.all_types import ALL_TYPES, FULL_ROW
from tests.kit.short_runs import quick_runs
from tests.kit.tables import golden
from tests.strandline.read.filter.number_table import NAN, numbers
from tests.strandline.read.logs.log_table import LogTable, row
from timeline.storage.local import LocalStorage

TABLES = [
    *quick_runs(
        ["numbers", "every type", "mor_basic_v9"],
        ["numbers", "every type", "mor_basic_v9", "multi_mor_v6"],
    ),
    *(pytest.param(name, marks=pytest.mark.product) for name in ("cow_basic_v9", "mor_basic_v6")),
]


def every_type(base) -> Table:
    """Return a table of all types, with a row of nulls, in two partitions."""
    names = [field.name for field in ALL_TYPES if field.nullable]
    rows = [
        FULL_ROW | {"id": "a", "region": "eu"},
        FULL_ROW | {"id": "b", "region": "us", "x": NAN, "f": NAN, "raw": b"", "flag": False},
        dict.fromkeys(names) | {"id": "c", "region": "us"},
    ]
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
    }
    with WriteClient(LocalEngine(), base, options) as client:
        schema = ALL_TYPES.append(pa.field("region", pa.string()))
        client.insert(pa.Table.from_pylist(rows, schema))
    return Table(base)


@pytest.fixture(scope="module", params=TABLES)
def read(request, tmp_path_factory) -> Iterator[tuple[Scan, pl.DataFrame]]:
    """A scan, and its rows."""
    base = tmp_path_factory.mktemp("table")
    made = {"numbers": numbers, "every type": every_type}.get(request.param)
    scan = (made(base) if made else Table(golden.build_final(request.param, base))).scan()
    return scan, scan.to_polars()


@pytest.fixture(scope="module")
def asked(read) -> st.SearchStrategy[tuple]:
    """Predicates, columns, limits and engines; made once, which takes longer than to draw them."""
    _, rows = read
    columns = st.lists(st.sampled_from(rows.columns), min_size=1, unique=True)
    limit = st.none() | st.integers(0, 5)
    engine = st.sampled_from(["in-memory", "streaming"])
    return st.tuples(predicates(rows), st.none() | columns, limit, limit, engine)


def predicates(rows: pl.DataFrame) -> st.SearchStrategy[pl.Expr]:
    """Comparisons of columns with values that occur in them, and others, joined."""
    flat = [name for name, kind in rows.schema.items() if not kind.is_nested()]

    @st.composite
    def test(draw: st.DrawFn) -> pl.Expr:
        name = draw(st.sampled_from(flat))
        kind, column = rows.schema[name], pl.col(name)
        values = st.sampled_from(rows[name].unique().to_list())
        if kind.is_numeric():
            values |= st.sampled_from([0, -1, 2, 2**35] if kind.is_integer() else [0, 0.5, 2])
        if kind.is_float():
            values |= st.just(NAN)
        value, other = (pl.lit(draw(values)) for _ in range(2))
        if draw(st.booleans()) or kind.is_decimal() or isinstance(kind, pl.Datetime):
            value, other = (each.cast(kind, strict=False) for each in (value, other))
        few = [name for name in rows[name].unique().to_list()[:4] if name is not None]
        makes = [
            lambda: column == value,
            lambda: column != value,
            lambda: column < value,
            lambda: value < column,
            lambda: column >= value,
            lambda: value >= column,
            lambda: column.eq_missing(value),
            lambda: column.is_null(),
            lambda: column.is_not_null(),
            lambda: column.is_in(pl.Series(few, dtype=kind)),
            lambda: column.is_in(pl.Series([*few, None], dtype=kind)),
            lambda: column.is_between(value, other, draw(st.sampled_from(["both", "none"]))),
        ]
        if kind.is_numeric():
            makes.append(lambda: column + 1 > value)
        if kind.is_float():
            makes += [lambda: column.is_nan(), lambda: column.is_not_nan()]
        if kind == pl.String:
            makes.append(lambda: column.str.starts_with(value))
        if kind == pl.Boolean:
            makes.append(lambda: column)
        like = [each for each in flat if rows.schema[each] == kind]
        makes.append(lambda: column < pl.col(draw(st.sampled_from(like))))
        return draw(st.sampled_from(makes))()

    return st.recursive(
        test(),
        lambda inner: st.one_of(
            inner.map(lambda a: ~a),
            st.tuples(inner, inner).map(lambda ab: ab[0] & ab[1]),
            st.tuples(inner, inner).map(lambda ab: ab[0] | ab[1]),
        ),
        max_leaves=5,
    )


@pytest.mark.property
@given(data=st.data())
def test_filtered_rows_are_those_that_polars_keeps(read, asked, data):
    scan, rows = read
    predicate, columns, limit, after, engine = data.draw(asked)

    def of(frame):
        frame = frame if limit is None else frame.head(limit)
        frame = frame.filter(predicate)
        frame = frame if columns is None else frame.select(columns)
        return frame if after is None else frame.head(after)

    found = of(scan.to_lazy()).collect(engine=engine)
    pl.testing.assert_frame_equal(found, of(rows))


@pytest.mark.property
def test_limits_of_scans_come_before_predicates(read):
    scan, rows = read
    last = pl.col("_hoodie_record_key") == rows["_hoodie_record_key"][-1]
    few = scan.narrowed(limit=2).to_lazy()
    assert few.filter(last).collect().equals(rows.head(2).filter(last))
    assert few.head(1).collect().equals(rows.head(1))
    assert few.head(9).collect().equals(rows.head(2))


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_frames_are_joined_and_aggregated(read, engine):
    scan, rows = read
    lazy, key = scan.to_lazy(), "_hoodie_record_key"
    assert lazy.collect_schema() == rows.schema
    assert lazy.select(pl.len()).collect(engine=engine).item() == rows.height
    assert lazy.select(one=1).collect(engine=engine).item() == 1
    assert lazy.filter(pl.lit(False)).collect(engine=engine).equals(rows.clear())
    joined = lazy.join(lazy.select(key), on=key).sort(key)
    expected = rows.join(rows.select(key), on=key).sort(key)
    assert joined.collect(engine=engine).equals(expected)
    found = pl.SQLContext(t=lazy).execute(f"select count(*) from t where {key} >= '1'")
    assert found.collect(engine=engine).item() == rows.filter(pl.col(key) >= "1").height


class Asked:
    """Notes what is read of a table without rows."""

    schema = pa.schema(
        [
            ("n", pa.int32()),
            ("x", pa.float64()),
            ("f", pa.float32()),
            ("s", pa.string()),
            ("b", pa.bool_()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )

    def __init__(self) -> None:
        self.asked: list[tuple] = []
        self.frame = lazy_frame(self.read, self.schema)

    def read(self, columns, condition, limit):
        self.asked.append((columns, condition, limit))
        schema = pa.schema([self.schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, [])


col = pl.col
n, x, f, s, b = (pc.field(name) for name in ("n", "x", "f", "s", "b"))
SECOND = dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)


CONDITIONS = [
    (col.n > 3, n > pa.scalar(3, pa.int32())),
    (pl.lit(3) > col.n, n < pa.scalar(3, pa.int32())),
    (~(col.n > 3), n <= pa.scalar(3, pa.int32())),
    (col.s == "a", s == "a"),
    (col.b, b),
    (~col.b, ~b),
    (col.n.is_null(), n.is_null()),
    (~col.n.is_null(), n.is_valid()),
    (col.day > dt.date(2024, 1, 2), pc.field("day") > pa.scalar(dt.date(2024, 1, 2))),
    (col.at > SECOND, pc.field("at") > pa.scalar(SECOND, pa.timestamp("us", "UTC"))),
    (col.x > 1, (x > 1.0) | x.is_nan()),
    (~(col.x < 1), (x >= 1.0) | x.is_nan()),
    (col.x < 1, x < 1.0),
    (col.f == 0.1, f == pa.scalar(0.1, pa.float32())),
    (col.s.is_in(["a", "b", None]), s.isin(["a", "b"])),
    (
        col.n.is_between(1, 2, "left"),
        (n >= pa.scalar(1, pa.int32())) & (n < pa.scalar(2, pa.int32())),
    ),
    ((col.s == "a") & (col.n + 1 > 3), s == "a"),
    (~((col.s == "a") | (col.n + 1 > 3)), s != "a"),
]


def test_what_is_asked_of_the_scan(subtests):
    for predicate, condition in CONDITIONS:
        with subtests.test(predicate=predicate):
            table = Asked()
            table.frame.filter(predicate).select("day").collect()
            ((columns, asked, limit),) = table.asked
            assert asked is not None
            assert asked.equals(condition), f"{asked} is not {condition}"
            assert set(columns) == {"day", *predicate.meta.root_names()}
            assert limit is None


def test_what_is_left_to_polars(subtests):
    for predicate in [
        (col.s == "a") | (col.n + 1 > 3),
        col.n > 2**40,
        col.n.cast(pl.String) == "1",
        col.x == NAN,
        col.x.is_in([1.0]),
        col.s.str.contains("a"),
        col.n < col.n.cast(pl.Int64),
    ]:
        with subtests.test(predicate=predicate):
            table = Asked()
            table.frame.filter(predicate).collect()
            assert [condition for _, condition, _ in table.asked] == [None]


@pytest.mark.property
def test_deep_predicates_are_left_to_polars_where_they_are_deepest():
    predicate = col.n > 0
    for at in range(500):
        predicate = (predicate | (col.n > at)) & (col.s == "a")
    table = Asked()
    table.frame.filter(predicate).collect()
    ((_, condition, _),) = table.asked
    assert condition is not None


@pytest.mark.property
def test_partitions_that_no_row_matches_are_not_opened(tmp_path):
    scan = every_type(tmp_path).scan()
    for path in scan.plan()["base_file"].to_pylist():
        if path.startswith("us"):
            (tmp_path / path).write_bytes(b"no Parquet")
    found = scan.to_lazy().filter(col.region == "eu").select("id").collect()
    assert found["id"].to_list() == ["a"]


def test_a_frame_stays_at_its_instant(tmp_path):
    table = LogTable(LocalStorage(str(tmp_path)))
    table.base([row("a", 1)])
    lazy = Table(tmp_path).scan(["id"]).to_lazy()
    table.rows_log(row("b", 1))
    assert lazy.collect()["id"].to_list() == ["a"]


def test_a_frame_is_pickled(tmp_path):
    """With cloudpickle, which Polars needs for a frame with any source."""
    lazy = numbers(tmp_path).scan().to_lazy().filter(pl.col("x") > 1)
    copied = pickle.loads(pickle.dumps(lazy))
    assert copied.collect().equals(lazy.collect(), null_equal=True)

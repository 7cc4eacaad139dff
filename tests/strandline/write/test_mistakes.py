"""Mistakes of people who write their first job: each error names the thing and what is allowed."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.table_api.table import Table
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader
from tests.strandline.write.refusals import refused
from tests.strandline.write.tables import OPTIONS, client, row, table
from timeline.errors import ConfigError, InputError, InstantNotFoundError

# The client.


@pytest.mark.parametrize(
    ("base_path", "parts"),
    [
        ("", ("base path ''", "allowed: text")),
        ("/tmp/a\0b", (r"base path '/tmp/a\x00b'", "allowed: text without NUL")),
        (None, ("base path None", "allowed: text")),
        (5, ("base path 5", "allowed: text or a pathlib.Path")),
        ("hdfs://namenode:8020/t", ("base path 'hdfs://namenode:8020/t'", "libhdfs")),
        ("foo://x/t", ("base path 'foo://x/t'", "allowed: a local path, s3, gs, abfs")),
        ("abfss://c@a/t", ("base path 'abfss://c@a/t'", "pip install adlfs")),
    ],
)
def test_base_paths_that_open_nothing(base_path: object, parts: tuple[str, ...]) -> None:
    for call in (lambda: WriteClient(LocalEngine(), base_path, OPTIONS), lambda: Table(base_path)):
        with pytest.raises(ConfigError) as caught:
            call()
        assert [part for part in parts if part not in str(caught.value)] == []
        assert "\n" not in str(caught.value)


def test_a_base_path_may_be_a_path(tmp_path: Path) -> None:
    with WriteClient(LocalEngine(), tmp_path / "t", OPTIONS) as c:
        c.upsert(table(row("a")))
    assert Table(tmp_path / "t").to_arrow().num_rows == 1


@pytest.mark.parametrize("below", ["t", "t/deeper/t"])
def test_a_base_path_at_or_below_a_file(tmp_path: Path, below: str) -> None:
    (tmp_path / "t").write_text("a file")
    place = tmp_path / below
    with client(place) as c, pytest.raises(ConfigError) as caught:
        c.upsert(table(row("a")))
    for part in (f"base path {place} can't be created", "Not a directory", "allowed: a folder"):
        assert part in str(caught.value)


def test_sessions_that_are_none(subtests: pytest.Subtests) -> None:
    for engine in ["spark", None, LocalEngine, "/tmp/t"]:
        with subtests.test(engine=engine):
            with pytest.raises(ConfigError) as caught:
                WriteClient(engine, "/tmp/t", OPTIONS)
            for part in (
                f"spark_or_engine is {engine!r}",
                "pyspark.sql.SparkSession",
                "LocalEngine()",
            ):
                assert part in str(caught.value)


@pytest.mark.property
def test_without_pyspark_the_error_says_how_to_install_it() -> None:
    """In a process that can't import it, wherever the tests run."""
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from strandline import WriteClient\n"
        "WriteClient('spark', '/tmp/t', {})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path.cwd()
    )
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("timeline.errors.ConfigError: spark_or_engine is 'spark'")
    assert "pip install 'strandline[spark]'" in last


@pytest.mark.parametrize("options", [None, ["hoodie.table.name"], "hoodie.table.name"])
def test_options_that_are_no_mapping(options: object) -> None:
    with pytest.raises(ConfigError, match=r"options are .*; allowed: a mapping of names to values"):
        WriteClient(LocalEngine(), "/tmp/t", options)


def test_options_with_several_values(subtests: pytest.Subtests) -> None:
    for value in [["id"], ("id", "region"), {"id"}, {"id": 1}, b"id"]:
        with subtests.test(value=value):
            name = "hoodie.datasource.write.recordkey.field"
            with pytest.raises(ConfigError) as caught:
                WriteClient(LocalEngine(), "/tmp/t", {**OPTIONS, name: value})
            for part in (f"{name} is {value!r}", "allowed: text, a number or a boolean", "commas"):
                assert part in str(caught.value)


def test_an_option_whose_name_is_no_text() -> None:
    with pytest.raises(ConfigError, match="the name of an option is 5; allowed: text"):
        WriteClient(LocalEngine(), "/tmp/t", {**OPTIONS, 5: "x"})


@pytest.mark.parametrize("value", [True, "True", "true", 1, "yes"])
def test_booleans_as_people_write_them(tmp_path: Path, value: object) -> None:
    with client(tmp_path, datasource__write__hive_style_partitioning=value) as c:
        c.upsert(table(row("a")))
    assert [partition for partition, _ in reader.newest_files(tmp_path)] == ["region=eu"]


def test_storage_options_that_are_no_mapping() -> None:
    with pytest.raises(ConfigError, match="storage_options is 'anon=true'; allowed: a mapping"):
        WriteClient(LocalEngine(), "/tmp/t", OPTIONS, storage_options="anon=true")


def test_unknown_options_are_in_the_first_result(tmp_path: Path) -> None:
    with client(tmp_path, datasource__write__partition__columns="region") as c:
        first, second = c.upsert(table(row("a"))), c.upsert(table(row("b")))
    expected = "ignored unknown options: hoodie.datasource.write.partition.columns"
    assert first.warnings == (expected,)
    assert second.warnings == ()


def test_a_refused_write_keeps_the_warning_for_the_next(tmp_path: Path) -> None:
    with client(tmp_path, no__such="1") as c:
        with pytest.raises(InputError):
            c.upsert(table(row(None)))
        assert c.upsert(table(row("a"))).warnings == ("ignored unknown options: hoodie.no.such",)


CALLS = {
    "upsert": lambda c: c.upsert(table(row("a"))),
    "insert": lambda c: c.insert(table(row("a"))),
    "bulk_insert": lambda c: c.bulk_insert(table(row("a"))),
    "delete": lambda c: c.delete(table(row("a"))),
    "clean": lambda c: c.clean(),
    "rollback": lambda c: c.rollback("20200101000000000"),
    "service": lambda c: c.service,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_client(base: Path, call: str) -> None:
    c = client(base)
    c.close()
    c.close()
    with pytest.raises(RuntimeError, match=f"the client of {base} is closed"):
        CALLS[call](c)


# Rows.


def test_rows_that_are_no_table(subtests: pytest.Subtests, base: Path) -> None:
    for rows in [None, [row("a")], (r for r in [row("a")]), {"id": ["a"]}, iter([]), "rows", 5]:
        with subtests.test(rows=rows):
            name = f"{type(rows).__module__}.{type(rows).__qualname__}"
            with client(base) as c, pytest.raises(InputError) as caught:
                c.upsert(rows)
            for part in (name, "pyarrow.Table", "pandas.DataFrame", "pyarrow.Table.from_pylist"):
                assert part in str(caught.value)


def test_columns_that_the_writer_adds_itself(subtests: pytest.Subtests, base: Path) -> None:
    for name, operation in product(
        [
            *("_strandline_problem", "_strandline_file_id", "_strandline_base_file"),
            *("_strandline_note", "_strandline_bucket", "_strandline_rows", "_strandline_key_hash"),
            "_Strandline_Bucket",
        ],
        ["upsert", "delete"],
    ):
        with subtests.test(name=name, operation=operation):
            rows = table(row("a", ts=2)).append_column(name, pa.array(["x"]))
            refused(base, InputError, rf"column '{name}' .*_strandline_", rows, operation)


ROLES = {
    "id": ("key column 'id'", "hoodie.datasource.write.recordkey.field"),
    "region": ("partition column 'region'", "hoodie.datasource.write.partitionpath.field"),
    "ts": ("ordering column 'ts'", "hoodie.table.ordering.fields"),
}


@pytest.mark.parametrize("name", ROLES)
def test_a_missing_column_is_named_with_its_role_and_option(base: Path, name: str) -> None:
    rows = table(row("a", ts=2))
    rows = rows.rename_columns([f"{each}_" if each == name else each for each in rows.schema.names])
    for part in ROLES[name]:
        refused(base, InputError, f"{part}.*missing", rows)
    upper = rows.rename_columns(
        [each.upper() if "_" in each else each for each in rows.schema.names]
    )
    upper = upper.rename_columns([each.rstrip("_") for each in upper.schema.names])
    refused(base, InputError, f"case-sensitive; the rows have '{name.upper()}'", upper)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())])])
def test_ordering_columns_that_can_not_be_compared(tmp_path: Path, kind: pa.DataType) -> None:
    rows = table(row("a")).set_column(2, "ts", pa.nulls(1, kind).fill_null(pa.scalar(None, kind)))
    with client(tmp_path) as c, pytest.raises(InputError) as caught:
        c.upsert(rows)
    for part in (f"ordering column 'ts' has the type {kind}", "allowed: strings, numbers"):
        assert part in str(caught.value)


def test_columns_of_a_type_that_can_not_be_stored(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for kind, hint in [
        (pa.duration("us"), "allowed: booleans, signed integers"),
        (pa.time64("us"), "cast it to a string, or to an integer"),
        (pa.dictionary(pa.int8(), pa.string_view()), "cast it to string)"),
        (pa.month_day_nano_interval(), "allowed: booleans, signed integers"),
        (pa.map_(pa.int32(), pa.int32()), "the keys of maps must be strings"),
        (pa.uint64(), "cast it to a signed integer"),
        (pa.null(), "give the column a type"),
    ]:
        with subtests.test(kind=kind):
            rows = table(row("a")).append_column("extra", pa.nulls(1, kind))
            with client(tmp_path) as c, pytest.raises(InputError) as caught:
                c.upsert(rows)
            for part in (f"column 'extra' has the type {kind}", hint):
                assert part in str(caught.value)


def test_times_that_are_not_exact_in_microseconds(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    nanos = pa.array([1_704_164_645_000_000_000, 1_704_164_645_000_000_001, 1], pa.timestamp("ns"))
    seconds = pa.array([0, 2**62, 0], pa.timestamp("s", "UTC"))
    inside = pa.StructArray.from_arrays([nanos], ["t"])
    for column, message in [
        (nanos, "row 1, 2024-01-02 03:04:05.000000001, isn't exact in them"),
        (seconds, r"'extra' is timestamp\[s, tz=UTC\], and .* microseconds; row 1, "),
        (inside, r"'extra' is struct<t: timestamp\[ns\]>, and .*; row 1 isn't exact"),
    ]:
        with subtests.test(kind=column.type):
            rows = table(row("a"), row("b"), row("c")).append_column("extra", column)
            with client(tmp_path) as c, pytest.raises(InputError, match=message):
                c.upsert(rows)


FIELDS = {
    "key column 's.o'": "datasource__write__recordkey__field",
    "partition column 's.o'": "datasource__write__partitionpath__field",
    "ordering column 's.o'": "table__ordering__fields",
}


@pytest.mark.parametrize("role", FIELDS)
def test_a_missing_field_is_named_with_its_role_and_option(tmp_path: Path, role: str) -> None:
    rows = table(row("a")).append_column("s", pa.array([{"x": 1}]))
    option = f"hoodie.{FIELDS[role].replace('__', '.')}"
    match = rf"^{role} \({option}\) is missing from the rows; 's' has the fields \['x'\]$"
    with client(tmp_path, **{FIELDS[role]: "s.o"}) as c, pytest.raises(InputError, match=match):
        c.upsert(rows)
    match = r"missing from the rows; 'id' has the fields \[\]$"
    with client(tmp_path, **{FIELDS[role]: "id.o"}) as c, pytest.raises(InputError, match=match):
        c.upsert(rows)


UNION = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])])
UNIONS = {
    "u": UNION,
    "nested": pa.StructArray.from_arrays([UNION], ["x"]),
    "id": UNION,
}


def test_unions_can_not_be_stored(subtests: pytest.Subtests, base: Path) -> None:
    for operation, name in product(["upsert", "delete"], UNIONS):
        with subtests.test(operation=operation, name=name):
            rows = table(row("a", ts=2))
            rows = rows.drop_columns([name] if name in rows.schema.names else [])
            rows = rows.append_column(name, UNIONS[name])
            match = f"column '{name}' has the type sparse_union.*cast the union"
            refused(base, InputError, match, rows, operation)


@pytest.mark.parametrize("values", [pa.array(["yes"]), pa.array([1])])
def test_a_delete_flag_that_is_no_boolean(tmp_path: Path, values: pa.Array) -> None:
    rows = table(row("a")).append_column("_hoodie_is_deleted", values)
    match = f"column '_hoodie_is_deleted' is {values.type}; allowed: bool"
    with client(tmp_path) as c, pytest.raises(InputError, match=match):
        c.upsert(rows)


def test_an_empty_frame_is_a_commit_without_rows(base: Path) -> None:
    with client(base) as c:
        result = c.upsert(table())
    assert (result.rows_inserted, result.rows_updated, result.files) == (0, 0, 0)
    assert len(reader.rows(base)) == 2


@pytest.mark.parametrize("name", ["with space", "ünïcode", "per%20cent", "a#b?c", "plus+and&"])
def test_paths_of_any_spelling(tmp_path: Path, name: str) -> None:
    with client(tmp_path / name) as c:
        c.upsert(table(row("a", "São Paulo"), row("b", "a b%20c+d")))
    assert {each["id"] for each in reader.rows(tmp_path / name)} == {"a", "b"}
    assert Table(str(tmp_path / name)).to_arrow().num_rows == 2


@pytest.mark.parametrize("extra", ["feed", ["feed"], 5, [("feed", "1")]])
def test_extra_metadata_that_is_no_mapping(base: Path, extra: object) -> None:
    with client(base) as c, pytest.raises(InputError, match=r"extra_metadata is .*; allowed: a m"):
        c.upsert(table(row("a", ts=2)), extra_metadata=extra)


@pytest.mark.parametrize("instant", [None, 5, "", "2020", "yesterday"])
def test_rollbacks_of_nothing(base: Path, instant: object) -> None:
    with client(base) as c, pytest.raises(InstantNotFoundError, match=f"instant {instant!s}"):
        c.rollback(instant)

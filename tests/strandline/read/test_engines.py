"""Scans in pandas, Polars, DuckDB and as datasets of pyarrow's: the rows of ``to_arrow``."""

from __future__ import annotations

import sys

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from strandline import Table
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import SCHEMA, LogTable, row
from timeline.errors import ConfigError, InputError, UnsupportedTableError
from timeline.storage.local import LocalStorage

PLAIN = ["cow_basic_v6", "cow_basic_v9", "nonpart_cow_v6", "replace_cow_v9"]
LOGGED = ["mor_basic_v6", "mor_basic_v9"]


@pytest.mark.parametrize("name", PLAIN + LOGGED)
def test_frames_have_the_rows(name, tmp_path):
    scan = Table(golden.build_final(name, tmp_path)).scan(["id", "val", "ts"])
    rows = scan.to_arrow()
    assert rows.num_rows > 5
    assert scan.to_pandas().equals(rows.to_pandas())
    assert scan.to_polars().equals(polars.from_arrow(rows))
    assert polars.DataFrame(scan).equals(polars.from_arrow(rows))


@pytest.mark.property
@pytest.mark.parametrize("name", PLAIN + LOGGED)
def test_duckdb_reads_the_rows_at_each_query(name, tmp_path):
    import duckdb

    table = Table(golden.build_final(name, tmp_path))
    rows = table.to_arrow()
    first = rows["id"][0].as_py()
    late = pc.field("id") > first
    with duckdb.connect() as connection:
        for scan in (table.scan(), table.scan(filter=late), table.scan(["ts"], late)):
            scan.to_duckdb("t", connection)
            for _ in range(2):
                found = connection.execute("SELECT count(*), sum(ts) FROM t").fetchall()
                kept = scan.to_arrow()
                assert found == [(kept.num_rows, pc.sum(kept["ts"]).as_py())]
        table.scan(limit=3).to_duckdb("few", connection)
        assert connection.execute("SELECT count(*) FROM few").fetchall() == [(3,)]
        table.scan().to_duckdb("t", connection)
        kept = connection.execute("SELECT id FROM t WHERE id <> ? ORDER BY id", [first]).fetchall()
        assert [each for (each,) in kept] == sorted(set(rows["id"].to_pylist()) - {first})


@pytest.mark.property
def test_duckdb_without_a_connection_makes_one(tmp_path):
    scan = Table(golden.build_final("mor_basic_v9", tmp_path)).scan()
    with scan.to_duckdb("t") as connection:
        found = connection.execute("SELECT count(*) FROM t").fetchall()
    assert found == [(scan.count(),)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((7,), "name is 7; allowed: text"),
        (("t", "memory"), "connection is 'memory'; allowed: None, or one of DuckDB's"),
    ],
)
def test_what_is_no_view_of_duckdb(arguments, message, tmp_path):
    scan = Table(golden.build_final("cow_basic_v9", tmp_path)).scan()
    with pytest.raises(InputError, match=message):
        scan.to_duckdb(*arguments)


@pytest.mark.parametrize(
    ("package", "method", "arguments"),
    [
        ("pandas", "to_pandas", ()),
        ("polars", "to_polars", ()),
        ("polars", "to_lazy", ()),
        ("duckdb", "to_duckdb", ("t",)),
    ],
)
def test_a_package_that_is_not_installed(package, method, arguments, tmp_path, monkeypatch):
    scan = Table(golden.build_final("cow_basic_v9", tmp_path)).scan()
    monkeypatch.setitem(sys.modules, package, None)
    wanted = package if package == "pandas" else rf"'strandline\[{package}\]'"
    needed = rf"{method}\(\).* needs {package}, .*\(pip install -U {wanted}\)"
    with pytest.raises(ConfigError, match=needed):
        getattr(scan, method)(*arguments)


@pytest.mark.parametrize("name", PLAIN)
def test_a_dataset_has_the_rows_of_slices_without_logs(name, tmp_path):
    table = Table(golden.build_final(name, tmp_path))
    rows = table.to_arrow()
    found = table.scan().to_dataset()
    assert isinstance(found, ds.FileSystemDataset)
    assert found.to_table() == rows
    late = pc.field("id") > rows["id"][0]
    assert table.scan(["id"], late).to_dataset().to_table() == rows.filter(late).select(["id"])
    assert found.to_table(["ts"], filter=late) == rows.filter(late).select(["ts"])
    frame = polars.scan_pyarrow_dataset(found).filter(polars.col("id") > rows["id"][0].as_py())
    assert frame.collect().equals(polars.from_arrow(rows.filter(late)))


@pytest.mark.property
@pytest.mark.parametrize("name", ["cow_basic_v6", "cow_basic_v9", "hive_cow_v9"])
def test_engines_open_no_files_of_partitions_that_cannot_match(name, tmp_path):
    import duckdb

    base = golden.build_final(name, tmp_path)
    table = Table(base)
    rows, column = table.to_arrow(), table.config.partition_fields[0]
    value = rows[column].drop_null()[0].as_py()
    expected = rows.filter(pc.field(column) == value)
    (path,) = pc.unique(expected["_hoodie_partition_path"]).to_pylist()
    for scan in (table.scan(), table.scan(["id", column])):
        assert scan.to_dataset().to_table() == scan.to_arrow()
    spoiled = [each for each in base.rglob("*.parquet") if each.parent != base / path]
    for each in spoiled:
        each.write_bytes(b"no Parquet")
    assert spoiled
    found = table.scan().to_dataset()
    assert found.to_table(filter=pc.field(column) == value) == expected
    lazy = polars.scan_pyarrow_dataset(found).filter(polars.col(column) == value)
    assert lazy.collect().equals(polars.from_arrow(expected))
    with table.scan(["id", column]).to_duckdb("t", duckdb.connect()) as con:
        (counted,) = con.execute(f"SELECT count(id) FROM t WHERE {column} = ?", [value]).fetchone()
    assert counted == expected.num_rows
    with pytest.raises(pa.ArrowInvalid):
        found.to_table()


@pytest.mark.parametrize("name", ["special_cow_v6", "special_cow_v9", "slash_cow_v9"])
def test_a_dataset_has_the_stored_values_of_odd_partitions(name, tmp_path):
    """Also where the path stands for a null, or isn't the value's text."""
    scan = Table(golden.build_final(name, tmp_path)).scan()
    rows = scan.to_arrow()
    found = scan.to_dataset()
    assert found.to_table() == rows
    for column in ("p", "_hoodie_partition_path"):
        for value in {None, *rows[column].to_pylist()}:
            same = pc.field(column).is_null() if value is None else pc.field(column) == value
            assert found.to_table(filter=same) == rows.filter(same)


def test_a_dataset_reads_columns_that_files_store_with_older_types(tmp_path):
    older = SCHEMA.set(1, pa.field("ts", pa.float32())).remove(2)
    table = LogTable(
        LocalStorage(str(tmp_path)), schema=SCHEMA.set(1, pa.field("ts", pa.float64()))
    )
    table.base([row("a", 0.1), row("b", 7.5)], older)
    with pytest.raises(InputError, match=r"columns \['ts'\]; by their statistics"):
        Table(tmp_path).scan(filter=pc.field("ts") == 0.1).to_dataset()
    scan = Table(tmp_path).scan(["id", "ts", "v"])
    rows = scan.to_arrow()
    assert rows["ts"].to_pylist() == [0.1, 7.5]
    assert rows["v"].null_count == 2
    found = scan.to_dataset()
    assert found.to_table() == rows
    assert found.count_rows(filter=pc.field("ts") == 0.1) == 1


@pytest.mark.parametrize("name", LOGGED)
def test_a_dataset_of_slices_with_logs_is_refused(name, tmp_path):
    table = Table(golden.build_final(name, tmp_path))
    with pytest.raises(UnsupportedTableError, match=r"has logs.*to_reader\(\)"):
        table.scan().to_dataset()
    optimized = table.scan(read_optimized=True)
    assert optimized.to_dataset().to_table() == optimized.to_arrow()


def test_scans_that_no_dataset_can_be(tmp_path):
    scan = Table(golden.build_final("cow_basic_v9", tmp_path)).scan
    with pytest.raises(InputError, match="no limit"):
        scan(limit=3).to_dataset()
    with pytest.raises(InputError, match=r"columns \['ts'\], which the scan doesn't read"):
        scan(["id"], pc.field("ts") > 1).to_dataset()


@pytest.mark.parametrize("damage", ["garbled", "gone"])
def test_a_dataset_of_a_file_that_cannot_be_read(damage, tmp_path, caplog):
    base = golden.build_final("cow_basic_v9", tmp_path)
    scan = Table(base).scan()
    path = scan.plan()["base_file"][0].as_py()
    (base / path).unlink() if damage == "gone" else (base / path).write_bytes(b"no Parquet")
    with pytest.raises(pa.ArrowInvalid, match=path):
        scan.to_dataset().to_table()
    assert path in caplog.text
    assert ("no file" in caplog.text) == (damage == "gone")


def test_a_missing_file_hangs_no_reader_of_a_dataset(tmp_path):
    """Arrow's thread that reads it would need Python's lock, which ``to_reader`` holds."""
    base = golden.build_final("cow_basic_v9", tmp_path)
    scan = Table(base).scan()
    path = scan.plan()["base_file"][0].as_py()
    (base / path).unlink()
    for _ in range(30):
        with pytest.raises(pa.ArrowInvalid, match=path):
            scan.to_dataset().scanner(columns=["ts"]).to_reader().read_all()

"""Real Hudi alters tables with schema on read; our rows equal Spark's after each step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Table
from tests.oracle.hudi import Hudi, rows_of
from timeline.errors import UnsupportedTableError

SETTINGS = {
    "hoodie.schema.on.read.enable": "true",
    "hoodie.metadata.enable": "false",
    "hoodie.write.auto.upgrade": "false",
    # Without it a column isn't dropped.
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
    # With it Spark refuses to read nested columns whose type changed.
    "spark.sql.parquet.enableVectorizedReader": "false",
}
CREATED = """create table {name} (id string, v int, f float, n string, st struct<a:int,b:string>,
 ts bigint, p string) using hudi tblproperties (primaryKey='id', preCombineField='ts',
 type='{type}', 'hoodie.write.table.version'='{version}', 'hoodie.table.timeline.timezone'='UTC')
 partitioned by (p) location '{path}'"""
STEPS = (
    "insert into {name} values ('a',1,0.1,'n1',named_struct('a',1,'b','x'),1,'x'),"
    "('b',2,0.2,'n2',named_struct('a',2,'b','y'),1,'y')",
    "alter table {name} add columns (c string after v)",
    "insert into {name} values ('c',3,'new',0.3,'n3',named_struct('a',3,'b','z'),1,'x')",
    "alter table {name} alter column v type bigint",
    "alter table {name} alter column f type double",
    "alter table {name} alter column st.a type bigint",
    "update {name} set v = 30 where id = 'c'",
    "alter table {name} alter column v type string",
    "alter table {name} alter column n after id",
    "alter table {name} drop column c",
)
REFUSED = {
    "alter table {name} add columns (c string)": "'c' was dropped and added again",
    "alter table {name} rename column n to m": "'m' was 'n'",
}


@pytest.fixture
def altering(hudi: Hudi) -> Iterator[Hudi]:
    for name, value in SETTINGS.items():
        hudi.spark.conf.set(name, value)
    yield hudi
    for name in SETTINGS:
        hudi.spark.conf.unset(name)


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_altered_tables_are_read_as_spark_reads_them(
    altering: Hudi, tmp_path: Path, kind: str, version: int
) -> None:
    """Columns are added, widened, moved and dropped; those with two names are refused (#32)."""
    name, path = f"altered_{kind}_{version}", tmp_path / "t"
    spark = altering.spark
    spark.sql(CREATED.format(name=name, type=kind, version=version, path=path))
    times = []
    for step in STEPS:
        spark.sql(step.format(name=name))
        expected = altering.read(path, hoodie_schema_on_read_enable="true")
        times.append((Table(path).scan().instant, expected))
        assert rows_of(Table(path).to_arrow()) == expected
    for statement, found in REFUSED.items():
        spark.sql(statement.format(name=name))
        with pytest.raises(UnsupportedTableError, match=found):
            Table(path).to_arrow()
    instant, expected = times[-1]
    assert rows_of(Table(path).scan(as_of=instant).to_arrow()) == expected

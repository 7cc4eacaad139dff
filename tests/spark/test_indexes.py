"""Random writes under each index on Spark's executors leave the rows of a plain model."""

from __future__ import annotations

import pytest

from tests.kit.tables.row_text import with_dicts
from tests.strandline.write.evolution.taking import take
from tests.strandline.write.index.walk import Rules, Walk

pytestmark = pytest.mark.spark


@pytest.fixture
def frame(spark):
    """Makes a frame of a table's rows, in their order, in three partitions."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def made(table):
        rows = [
            tuple(with_dicts(row[field.name], field.type) for field in table.schema)
            for row in table.to_pylist()
        ]
        parts = spark.sparkContext.parallelize(rows, 3)
        return spark.createDataFrame(parts, from_arrow_schema(table.schema))

    return made


# One that searches and one that computes: the others make the same calls of Spark.
COVERING = [Rules("GLOBAL_SIMPLE"), Rules("BUCKET")]


@pytest.mark.parametrize(
    "rules",
    [
        Rules("BLOOM"),
        Rules("GLOBAL_BLOOM", moves=False),
        *(pytest.param(rules, marks=pytest.mark.covering) for rules in COVERING),
    ],
    ids=str,
)
def test_rows_are_those_of_the_model(spark, frame, tmp_path, rules):
    with Walk.begun(tmp_path / "t", rules, 3, spark, frame) as walk:
        for _ in range(5):
            walk.step()


@pytest.mark.parametrize("rules", [Rules("SIMPLE"), Rules("GLOBAL_SIMPLE")], ids=str)
def test_rows_are_those_of_the_model_when_columns_change(spark, frame, tmp_path, rules):
    take(tmp_path / "t", rules, seed=3, steps=8, engine=spark, frame=frame)

"""Random writes under each index on Spark's executors leave the rows of a plain model."""

from __future__ import annotations

import pytest

from tests.strandline.write.index.walk import Rules, Walk

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "rules",
    [Rules("BLOOM"), Rules("BUCKET"), Rules("GLOBAL_SIMPLE"), Rules("GLOBAL_BLOOM", moves=False)],
    ids=str,
)
def test_rows_are_those_of_the_model(spark, tmp_path, rules):
    from pyspark.sql.pandas.types import from_arrow_schema

    def frame(table):
        rows = [tuple(row.values()) for row in table.to_pylist()]
        parts = spark.sparkContext.parallelize(rows, 3)
        return spark.createDataFrame(parts, from_arrow_schema(table.schema))

    with Walk.begun(tmp_path / "t", rules, 3, spark, frame) as walk:
        for _ in range(5):
            walk.step()

"""The Spark engine does what every engine does, whatever the session's own settings are."""

from __future__ import annotations

import numpy as np
import pytest

from strandline.write.engine.lanes import lanes, murmur3
from strandline.write.engine.spark import SparkEngine
from tests.conformance.engine_suite import EngineSuite

pytestmark = pytest.mark.spark

SETTINGS = {
    "adaptive": {
        "spark.sql.adaptive.enabled": "true",
        # Merges and splits whatever it may: each partition is too small, and each is too large.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "0.01",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16",
        "spark.sql.autoBroadcastJoinThreshold": "10m",
        "spark.sql.shuffle.partitions": "200",
    },
    "fixed": {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "200"},
}


class TestSparkEngine(EngineSuite):
    @pytest.fixture(params=SETTINGS)
    def engine(self, spark, request):
        before = {name: spark.conf.get(name, None) for name in SETTINGS[request.param]}
        for name, value in SETTINGS[request.param].items():
            spark.conf.set(name, value)
        yield SparkEngine(spark)
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def test_the_hash_is_spark_s(spark):
    values = np.array([0, 1, 2, 42, 2**31 - 1, 123_456_789], np.uint32)
    text = ", ".join(map(str, values))
    (row,) = spark.sql(f"select transform(array({text}), v -> hash(v)) as hashes").collect()
    assert row.hashes == murmur3(values).tolist()


@pytest.mark.parametrize("parts", [1, 2, 200, 2000])
def test_each_part_has_a_lane(parts):
    found = np.array(lanes(parts), np.uint32)
    assert (murmur3(found).astype(np.int64) % parts).tolist() == list(range(parts))

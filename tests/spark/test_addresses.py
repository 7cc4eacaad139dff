"""Where a driver's server listens, and where executors find it, according to Spark's settings."""

from types import SimpleNamespace

import pytest

from strandline.write.engine.spark import driver_addresses

pytestmark = pytest.mark.spark

HOST, BIND = "spark.driver.host", "spark.driver.bindAddress"


@pytest.mark.parametrize(
    ("master", "settings", "expected"),
    [
        ("local[2]", {HOST: "10.0.0.5", BIND: "0.0.0.0"}, ("127.0.0.1", None)),
        ("local-cluster[2,1,1024]", {HOST: "10.0.0.5"}, ("127.0.0.1", None)),
        ("spark://m:7077", {HOST: "10.0.0.5"}, ("10.0.0.5", None)),
        ("spark://m:7077", {HOST: "10.0.0.5", BIND: "0.0.0.0"}, ("10.0.0.5", "0.0.0.0")),
        (
            "k8s://https://k",
            {HOST: "driver.ns.svc", BIND: "10.1.2.3"},
            ("driver.ns.svc", "10.1.2.3"),
        ),
        ("spark://m:7077", {HOST: "[fd00::5]", BIND: "[::]"}, ("fd00::5", "::")),
    ],
)
def test_the_driver_is_where_sparks_settings_say(master, settings, expected):
    """A SparkContext would need a JVM; these are the two things that are asked of it."""
    context = SimpleNamespace(master=master, getConf=lambda: settings)
    assert driver_addresses(context) == expected

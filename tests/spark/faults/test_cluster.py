"""An executor lost, and tasks speculated, on a cluster of two executors."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.spark.cluster.driver import environment
from tests.spark.cluster.standalone import cluster
from tests.spark.faults import own_process

pytestmark = [pytest.mark.spark, pytest.mark.faults]

STAGES = ("the search", "writes", "writes of logs")
FAULTS = [f"{fault} {stage}" for fault in ("speculated", "executor lost in") for stage in STAGES]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    environ = environment(str(Path(spec.origin).parent), version("pyspark"))
    environ["PYTHONPATH"] = str(own_process.ROOT)
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, environ, "127.0.0.1", second_address="127.0.0.2") as master:
        job_folder = tmp_path_factory.mktemp("job")
        return own_process.run("tests.spark.faults.cluster_job", job_folder, master)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_is_as_without(found, fault):
    """Files of the lost or superseded attempt are gone, too."""
    assert found[fault]["happened"]
    well = found["well, logs" if fault.endswith("logs") else "well"]
    assert found[fault]["left"] == well["left"]
    assert found[fault]["left"][2] == []
    assert found[fault]["sources"] == ["service"]
    assert found[fault]["causes"] == []

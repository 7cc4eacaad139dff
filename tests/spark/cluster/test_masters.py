"""A write finds the service from the executors of every kind of master."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.tables import reader
from tests.spark.cluster.conftest import Run, make_table
from tests.spark.cluster.driver import REGIONS, ROOT
from tests.spark.cluster.hosts import DRIVER, WORKERS, two_hosts
from tests.spark.cluster.standalone import cluster

pytestmark = pytest.mark.cluster

PORT = 26754
EXPECTED = sorted(f"k{key}@{1 if key < 6 else 2}" for key in range(15))
PYTHON = {"spark.executorEnv.PYTHONPATH": str(ROOT)}
HERE = {**PYTHON, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
ADDRESSES = {
    # As a pod behind a headless service: its name is what is bound, too.
    True: {"spark.driver.host": "driver.spark.svc"},
    # As a container whose address is another outside.
    False: {"spark.driver.host": DRIVER, "spark.driver.bindAddress": "0.0.0.0"},
}


def session(base: Path, master: str, reuse: bool, settings: dict, **options: str) -> dict[str, Any]:
    name = f"{master.partition('[')[0].partition(':')[0]} {'reuse' if reuse else 'once'}"
    made = make_table(base / name)
    return {
        "name": name,
        "master": master,
        "base": str(made),
        "options": options,
        "settings": {**settings, "spark.python.worker.reuse": str(reuse).lower()},
    }


@pytest.fixture(scope="module")
def reports(
    run_driver: Run, environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The reports of the drivers, by master and worker reuse."""
    base, folder = tmp_path_factory.mktemp("tables"), tmp_path_factory.mktemp("cluster")
    masters = ("local[2]", "local-cluster[2,1,1024]")
    here = [session(base, each, reuse, HERE) for each in masters for reuse in (True, False)]
    found = run_driver("writing_driver", {"sessions": here})
    with (
        two_hosts(folder / "hosts") as (driver, workers),
        cluster(folder, environ, WORKERS, workers.inside) as url,
    ):
        options = {"hoodie.embed.timeline.server.port": str(PORT)}
        there = [
            session(base, url, reuse, {**PYTHON, **ADDRESSES[reuse]}, **options)
            for reuse in (True, False)
        ]
        found |= run_driver("writing_driver", {"sessions": there}, driver.inside)
    return {name: {**report, "base": base / name} for name, report in found.items()}


MASTERS = ("local", "local-cluster", "spark")


@pytest.fixture(params=[f"{each} {how}" for each in MASTERS for how in ("reuse", "once")])
def report(request: pytest.FixtureRequest, reports: dict[str, Any]) -> dict[str, Any]:
    return reports[request.param]


def test_the_rows_are_right(report):
    assert sorted(row["name"] for row in reader.rows(report["base"])) == EXPECTED
    assert reader.leftovers(report["base"]) == []


def test_all_look_ups_of_a_write_are_answered_by_the_service(report):
    write = report["write"]
    assert write["fallbacks"] == []
    # The driver asks once for all partitions.
    assert write["sources"] == {"service": 1}
    # No partition is listed. A write task lists the timeline once, after its files.
    assert set(write["lists"]) <= {"timeline", "marker", "rollback", "write", "table"}
    assert report["status"]["restarts"] == 0


def test_workers_of_every_kind_use_the_view_they_are_given(report):
    assert report["files"] == dict.fromkeys(REGIONS, 1)
    assert set(report["counted"]) == {"arrow", "pandas", "closure", "broadcast"}
    assert all(counted == report["files"] for counted in report["counted"].values())


@pytest.mark.parametrize("master", MASTERS)
def test_workers_are_reused_or_not_as_each_case_says(reports, master):
    kept = {process for process, _, _ in reports[f"{master} reuse"]["workers"]}
    assert len(kept) <= 2
    assert len({process for process, _, _ in reports[f"{master} once"]["workers"]}) == 6


@pytest.mark.parametrize("how", ["reuse", "once"])
def test_a_standalone_cluster_is_on_another_host(reports, how):
    report = reports[f"spark {how}"]
    parents, networks = ({row[at] for row in report["workers"]} for at in (1, 2))
    assert len(parents) == 2
    assert report["network"] not in networks
    addresses = {"reuse": ("driver.spark.svc",) * 2, "once": (DRIVER, "127.0.0.1")}[how]
    assert [report["url"], report["local_url"]] == [f"http://{it}:{PORT}" for it in addresses]

"""A streaming driver keeps one service over its life, on one port, with one token."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.servers.processes import wait_for_end
from tests.kit.tables import reader
from tests.spark.cluster.conftest import Run, make_table
from tests.spark.cluster.driver import REGIONS

pytestmark = pytest.mark.cluster

BATCHES = 4


@pytest.fixture(scope="module")
def report(run_driver: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Each batch has one new row for each region."""
    folder = tmp_path_factory.mktemp("streaming")
    feed = folder / "feed"
    feed.mkdir()
    for number in range(BATCHES):
        rows = {
            "id": [f"{region}{number}" for region in REGIONS],
            "region": list(REGIONS),
            "ts": [1] * 3,
            "name": [f"{region}{number}" for region in REGIONS],
        }
        pq.write_table(pa.table(rows), feed / f"{number}.parquet")
    names = ("one", "two", "first", "second", "flag")
    paths = {name: folder / name for name in names}
    for table in ("one", "two"):
        make_table(paths[table])
    spec = {"feed": str(feed), **{name: str(path) for name, path in paths.items()}}
    return {**run_driver("streaming_driver", spec), **paths}


def test_every_batch_reaches_both_tables(report):
    expected = sorted(
        [*(f"k{key}@1" for key in range(12)), *(f"{r}{n}" for r in REGIONS for n in range(BATCHES))]
    )
    for table in ("one", "two"):
        assert sorted(row["name"] for row in reader.rows(report[table])) == expected


def test_no_batch_lists_storage(report):
    for batch in (*report["kept"], *report["lingering"]):
        for write in batch["writes"]:
            assert write["fallbacks"] == []
            assert set(write["sources"]) <= {"service", "cache"}
            assert set(write["lists"]) <= {"timeline", "marker", "rollback", "write", "table"}


def test_one_service_serves_all_batches_and_a_process_that_died_is_replaced(report):
    """Before batch 1 it is killed by the driver, in batch 2 by a task that goes on."""
    kept = report["kept"]
    assert len({batch["url"] for batch in kept}) == 1
    assert [batch["restarts"] for batch in kept] == [0, 1, 2, 2]
    assert len({batch["pid"] for batch in kept}) == 3
    assert kept[2]["pid"] == kept[3]["pid"]


def test_clients_of_single_batches_share_a_service_that_lingers(report):
    lingering = report["lingering"]
    assert len(lingering) == BATCHES / 2
    assert {(batch["pid"], batch["restarts"]) for batch in lingering} == {(lingering[0]["pid"], 0)}
    # It ended with its driver, not after its time.
    wait_for_end(lingering[0]["pid"])

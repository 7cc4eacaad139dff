"""Buckets of consistent hashing that are being resized: writes then go to two places at a time.

The one log that real Hudi announces, by a CREATE marker, under another instant than its write's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.drop_in.jobs import KINDS, MERGE_ON_READ, Job, pointed_at
from tests.oracle.drop_in.service import Service, served
from tests.oracle.hudi import HUDI, Hudi
from timeline.instant import CLUSTERING

pytestmark = pytest.mark.oracle

(KIND,) = (
    kind
    for kind in KINDS
    if (kind.release, kind.table_type, kind.version) == (HUDI, MERGE_ON_READ, 9)
)
CLUSTERINGS = "org.apache.hudi.client.clustering"
RESIZED = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "4",
    "hoodie.bucket.index.min.num.buckets": "2",
    "hoodie.bucket.index.max.num.buckets": "8",
    "hoodie.bucket.index.hash.field": "id",
    "hoodie.bucket.index.merge.threshold": "0.9",  # small buckets become one
    "hoodie.clustering.async.max.commits": "1",
    "hoodie.clean.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.metadata.enable": "false",
    "hoodie.clustering.plan.strategy.class": (
        f"{CLUSTERINGS}.plan.strategy.SparkConsistentBucketClusteringPlanStrategy"
    ),
    "hoodie.clustering.execution.strategy.class": (
        f"{CLUSTERINGS}.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
    ),
    "hoodie.clustering.updates.strategy": (
        f"{CLUSTERINGS}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
    ),
}


def test_a_write_into_buckets_that_are_being_resized_is_taken(hudi: Hudi, tmp_path: Path) -> None:
    with served(tmp_path) as service:
        job = Job(hudi, service.lake / "t", KIND, pointed_at(service.relay.port) | RESIZED)
        job.write("upsert", job.changed(("bern",), range(40)))
        job.write(
            "upsert", job.changed(("bern",), range(40)), hoodie_clustering_schedule_inline="true"
        )
        (clustering,) = (i for i in job.timeline() if i.action == CLUSTERING)
        assert not clustering.is_completed
        job.write("upsert", job.changed(("bern",), range(40)))
        written = job.timeline().last
        assert written is not None
        assert clustering.requested_time in logs_announced(service, written.requested_time)
        job.check()


def logs_announced(service: Service, instant: str) -> set[str]:
    """Return the instants of the logs that a write announced by CREATE markers."""
    names = (
        exchange.params["markername"].rpartition("/")[2]
        for exchange in service.relay.exchanges
        if exchange.path.endswith("/marker/create")
        and exchange.params["markerdirpath"].endswith(f"/{instant}")
    )
    logs = (name for name in names if name.startswith(".") and name.endswith(".marker.CREATE"))
    return {name.split("_")[1].partition(".")[0] for name in logs}

"""Our plan of a clean is Hudi's, whatever was done to the table, by every policy.

After each step of a random walk Hudi's planner and ours say what a clean would delete now. Nothing
is planned on the timeline, but the walk itself cleans at times, so that plans go on from a clean.
``KEEP_LATEST_BY_HOURS`` keeps all of a table that is minutes old; its rule has tests of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from strandline import Table
from strandline.table_services.clean.policy import (
    KEEP_LATEST_BY_HOURS,
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    RETENTION_OF,
)
from tests.oracle.hudi import Hudi
from tests.oracle.view.walk import BUCKETS, COPY_ON_WRITE, MERGE_ON_READ, Walk
from timeline.instant import CLEAN
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

if TYPE_CHECKING:
    from tests.oracle.view.random_walk import Walker

pytestmark = pytest.mark.oracle

POLICIES: Final = (
    (KEEP_LATEST_COMMITS, 1),
    (KEEP_LATEST_COMMITS, 3),
    (KEEP_LATEST_FILE_VERSIONS, 1),
    (KEEP_LATEST_FILE_VERSIONS, 2),
    (KEEP_LATEST_BY_HOURS, 1),
)
STEPS: Final = 18
WALKS: Final = [
    Walk(f"{kind[0].lower()}{version}{'b' if options else ''}", seed, STEPS, version, kind, options)
    for seed, (version, kind, options) in enumerate(
        [
            (6, COPY_ON_WRITE, {}),
            (8, COPY_ON_WRITE, {}),
            (9, COPY_ON_WRITE, {}),
            (6, MERGE_ON_READ, {}),
            (8, MERGE_ON_READ, {}),
            (9, MERGE_ON_READ, {}),
            (9, MERGE_ON_READ, BUCKETS),
        ],
        start=2026,
    )
]


def test_there_are_histories_enough() -> None:
    assert len(WALKS) * STEPS >= 100


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_our_plan_is_hudis(hudi: Hudi, tmp_path: Path, walk: Walk) -> None:
    from tests.oracle.view.random_walk import Walker

    walker = Walker(hudi, tmp_path / "walked", walk)
    compared = deleted = 0
    for number in range(walk.steps):
        step = walker.step(number)
        if _has_pending_clean(walker.path):
            continue
        for policy, retain in POLICIES:
            theirs = _hudis(walker, policy, retain)
            found = Table(walker.path).cleanable(policy, retain).files.to_pylist()
            ours = {(row["partition"], row["file"]) for row in found}
            assert ours == theirs, f"step {number}, {step}: {policy} {retain}"
            compared += 1
            deleted += len(ours)
    assert compared >= walk.steps
    assert deleted, "nothing was ever to be cleaned"


def _has_pending_clean(path: Path) -> bool:
    meta = TableMetaClient.open(LocalStorage(str(path)))
    return any(i.action == CLEAN and not i.is_completed for i in meta.active_timeline())


def _hudis(walker: Walker, policy: str, retain: int) -> set[tuple[str, str]]:
    """Return (partition, file name) of what Hudi's planner would delete."""
    setting = RETENTION_OF[policy].name.replace(".", "_")
    options = {"hoodie_clean_policy": policy, setting: str(retain)}
    jvm: Any = walker.hudi.jvm
    with walker.client(**options) as client:
        config, context = client.getConfig(), client.getEngineContext()
        table = jvm.org.apache.hudi.table.HoodieSparkTable.create(config, context)
        planner = jvm.org.apache.hudi.table.action.clean.CleanPlanner(context, table, config)
        earliest = planner.getEarliestCommitToRetain()
        found: set[tuple[str, str]] = set()
        for partition in planner.getPartitionPathsToClean(earliest):
            for file in planner.getDeletePaths(partition, earliest).getRight():
                found.add((partition, file.getFilePath().rpartition("/")[2]))
    return found

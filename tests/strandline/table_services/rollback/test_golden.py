"""The plans of Hudi's own rollbacks, which the next writer must be able to finish."""

from __future__ import annotations

import pytest

from strandline.table_services.rollback.plan import planned_paths
from tests.kit.tables import golden
from timeline.instant import ROLLBACK
from timeline.meta_client import TableMetaClient

WITH_ROLLBACKS = [name for name in golden.scenarios() if name.startswith("rollback_")]


@pytest.mark.parametrize("scenario", WITH_ROLLBACKS)
def test_all_paths_of_hudis_plans_are_accepted(scenario):
    accepted = 0
    for step in golden.steps(scenario):
        meta = TableMetaClient.open(golden.GoldenStorage(scenario, step))
        for rollback in meta.active_timeline().filter(lambda i: i.action == ROLLBACK):
            plan = meta.read_plan(rollback)
            for request in plan.rollback_requests:
                for path in request.files_to_be_deleted:
                    folder = path.rpartition("/")[0]
                    accepted += len(
                        planned_paths(plan, folder.removesuffix(f"/{request.partition_path}"))
                    )
    assert accepted

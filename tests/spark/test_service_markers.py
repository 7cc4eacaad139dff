"""Markers on a real Spark: through the service from workers, and an early conflict in a task."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.kit.tables import reader
from tests.spark.once import DIE, OnceFaulty
from tests.spark.test_write import (
    AFTER,
    EXECUTORS,
    NEXT,
    WAYS,
    client,
    names,
    rows,
    table,  # noqa: F401
    written,  # noqa: F401
)
from timeline.errors import WriteConflictError

pytestmark = pytest.mark.spark

SERVED = {"write__markers__type": "TIMELINE_SERVER_BASED"}
EARLY = {
    "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "write__concurrency__early__conflict__detection__enable": "true",
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
}
OLDER = "20200101000000000"


@pytest.mark.covering
def test_files_of_a_worker_that_died_are_found_by_the_services_markers(spark, table, tmp_path):  # noqa: F811
    storage = OnceFaulty(table, tmp_path / "happened", "close", DIE, ".parquet", only_in_tasks=True)
    with client(spark, table, storage, **SERVED, **EXECUTORS) as c:
        result = c.upsert(rows(spark, NEXT))
    assert storage.happened
    assert result.marker_fallbacks == ()
    assert result.storage_calls["create", "marker"] == 1
    assert names(table) == AFTER
    made = Counter(instant for *_, instant in reader.base_files(table))
    assert made[result.instant] == result.files == 3
    assert reader.leftovers(table) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_task_in_conflict_with_an_older_write_fails_the_write_as_such(spark, table, way):  # noqa: F811
    hoodie = table / ".hoodie"
    (name,) = (name for region, name, *_ in reader.base_files(table) if region == "us")
    file_id = name.partition("_")[0]
    marker = hoodie / ".temp" / OLDER / "us" / f"{file_id}_0-0-0_{OLDER}.parquet.marker.MERGE"
    for path in (
        hoodie / "timeline" / f"{OLDER}.commit.requested",
        hoodie / "timeline" / f"{OLDER}.inflight",
        hoodie / ".heartbeat" / OLDER,
        marker,
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    before = names(table)
    with (
        client(spark, table, embed__timeline__server=False, **EARLY, **way) as c,
        pytest.raises(WriteConflictError, match=f"{file_id} .* is also being written by {OLDER}"),
    ):
        c.upsert(rows(spark, NEXT))
    assert names(table) == before
    assert marker.exists()
    assert {instant for *_, instant in reader.base_files(table)} == reader.committed(table)

"""Partitions deleted by either writer: the other one reads the rest, and writes to them again."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from strandline import Table
from tests.oracle.hudi import Hudi, Rows, rows_of
from tests.oracle.tables import CITIES, ours, rides, theirs, writer
from timeline.instant import REPLACE_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, RequestedReplaceMetadata
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.oracle

LOGS = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
PATHS = ("city=amsterdam", "city=bern", "city=são paulo%2Fb%3D1 %25")


def without(rows: Rows, *cities: str) -> Rows:
    return [row for row in rows if row["city"] not in cities]


def check(hudi: Hudi, path: Path, expected: Rows) -> None:
    assert hudi.read(path) == expected
    assert rows_of(Table(path).to_arrow()) == expected


def written(path: Path) -> tuple[RequestedReplaceMetadata, CommitMetadata, CommitMetadata]:
    """Return the three files of the newest replacecommit."""
    meta = TableMetaClient.open(LocalStorage(str(path)))
    newest = meta.active_timeline().filter(lambda i: i.action == REPLACE_COMMIT).last
    assert newest is not None
    plan = meta.read_plan(Instant(newest.requested_time, REPLACE_COMMIT, State.REQUESTED))
    inflight = meta.read(Instant(newest.requested_time, REPLACE_COMMIT, State.INFLIGHT))
    completed = meta.read(newest)
    assert isinstance(plan, RequestedReplaceMetadata)
    assert isinstance(inflight, CommitMetadata)
    assert isinstance(completed, CommitMetadata)
    return plan, inflight, completed


@pytest.mark.parametrize(
    ("version", "more"),
    [(6, {}), (9, {}), (8, LOGS), (9, LOGS)],
    ids=["6", "9", "8, logs", "9, logs"],
)
def test_each_reads_what_the_other_left(
    hudi: Hudi, tmp_path: Path, version: int, more: dict[str, str]
) -> None:
    path, options = tmp_path / "rides", {**ours(version), **more}
    named = {**more, "hoodie_compact_inline": "false", "hoodie_index_type": "SIMPLE"}
    named = {name.replace(".", "_"): value for name, value in named.items()}
    data, newer = rides(range(20), ts=5), rides(range(0, 20, 2), ts=6)
    with writer(path, options) as client:
        client.insert(data)
        client.upsert(newer)
        client.delete_partition([PATHS[2]])
    merged = {row["id"]: row for row in [*rows_of(data), *rows_of(newer)]}
    rows = without([merged[key] for key in sorted(merged)], CITIES[2])
    check(hudi, path, rows)
    mine = written(path)

    # Hudi writes to the partition again; its new file group is no replaced one.
    again = rides((2, 5), ts=7)
    hudi.write(again, path, theirs(version, "upsert", **named))
    expected = sorted([*rows, *rows_of(again)], key=lambda row: row["id"])
    check(hudi, path, expected)

    gone = {"hoodie_datasource_write_partitions_to_delete": PATHS[2]}
    hudi.write(again, path, theirs(version, "delete_partition", **named, **gone))
    check(hudi, path, rows)
    plan, inflight, completed = written(path)
    assert (plan.operation_type, plan.clustering_plan) == (mine[0].operation_type, None)
    assert inflight.operation_type == mine[1].operation_type == "DELETE_PARTITION"
    assert completed.operation_type == mine[2].operation_type == "DELETE_PARTITION"
    assert completed.partition_to_write_stats == mine[2].partition_to_write_stats == {}
    assert {*completed.partition_to_replace_file_ids} == {*mine[2].partition_to_replace_file_ids}

    with writer(path, options) as client:
        client.upsert(again)
        check(hudi, path, expected)
        client.delete_partition(pc.field("city") != CITIES[0])
        check(hudi, path, without(rows, *CITIES[1:]))
        client.rollback(list(Table(path).commits())[-1].requested_time)
    check(hudi, path, expected)

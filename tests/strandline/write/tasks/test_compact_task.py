"""Tasks of compactions: within little memory, in parts of about the same size."""

from __future__ import annotations

import pickle
from contextlib import closing

import pyarrow.parquet as pq
import pytest

from fsview.local_view import open_view
from fsview.model.file_group import BaseFile, FileSlice
from strandline.commit.markers import DirectMarkers
from strandline.read.logs.temp_file import LogBudget
from strandline.records.file.base_file_writer import BaseFileSettings
from strandline.records.schema.avro_schema import arrow_to_avro
from strandline.table_services.compact.planner import CompactionPlanner
from strandline.table_services.compact.policy import CompactionSettings
from strandline.write.engine.local import LocalEngine
from strandline.write.tasks.compact_task import CompactTask, parts_of
from strandline.write.tasks.write_report import STATUS_SCHEMA, WriteReport
from tests.kit.short_runs import quick_runs
from tests.kit.tables import reader
from tests.strandline.write.tables import SCHEMA, client, row, table
from timeline.instant import COMPACTION, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

LOGS = {"datasource__write__table__type": "MERGE_ON_READ"}


@pytest.mark.parametrize("budget", quick_runs([1 << 20], [1, 1 << 20]))
def test_logs_beyond_the_budget_are_merged_in_files(tmp_path, budget):
    base, engine = tmp_path / "t", LocalEngine(cores=1)
    with client(base, **LOGS) as c:
        c.upsert(table(*(row(f"k{n:03}") for n in range(200))))
        for ts in (2, 3):
            c.upsert(table(*(row(f"k{n:03}", ts=ts) for n in range(0, 200, ts))))
        c.delete(table(*(row(f"k{n:03}") for n in range(0, 200, 7))))
        planned = c.schedule_compaction()
    storage = LocalStorage(str(base))
    meta = TableMetaClient.open(storage)
    instant = Instant(planned, COMPACTION, State.REQUESTED)
    with closing(open_view(storage)) as view:
        planner = CompactionPlanner(meta, view, CompactionSettings())
        slices = planner.slices(instant, meta.read_plan(instant))
    task = CompactTask(
        storage=storage,
        config=meta.config,
        timeline=meta.active_timeline(),
        instant=planned,
        execution=7,
        avro_schema=arrow_to_avro(SCHEMA, "t"),
        schema=SCHEMA,
        once_micros=frozenset(),
        settings=BaseFileSettings(),
        markers=DirectMarkers(planned),
        tally=engine.tally(),
        attempt=engine.attempt,
        budget=LogBudget(budget, str(tmp_path)),
    )
    parts = engine.from_driver(parts_of(slices, 4))
    report = WriteReport.read(engine.collect(engine.transform(parts, task, STATUS_SCHEMA)))
    (stat,) = report.stats
    written = pq.read_table(base / stat.path, partitioning=None)
    found = sorted(written.select(SCHEMA.names).to_pylist(), key=lambda each: each["id"])
    assert found == reader.rows(base)
    assert (stat.num_deletes, stat.num_writes) == (29, 171)
    assert set(written["_hoodie_file_name"].to_pylist()) == {stat.path.rpartition("/")[2]}


def sized(size: int) -> FileSlice:
    base = BaseFile("p", f"{size}_0-0-0_1.parquet", size, 0, str(size), "1")
    return FileSlice("p", str(size), "1", base)


def test_parts_have_about_the_same_size():
    slices = [sized(size) for size in (1, 2, 3, 4, 5, 90)]
    parts = parts_of(slices, 3)
    found = [
        sorted(pickle.loads(each).base_file.size for each in part.column(0).to_pylist())
        for part in parts
    ]
    assert sorted(found) == [[1, 2, 5], [3, 4], [90]]
    assert len(parts_of(slices[:2], 8)) == 2

"""The benchmark of writes to logs: its goals, and a tiny race without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.write import logs
from benchmarks.write.data import totals
from benchmarks.write.race import RaceError, Sample
from benchmarks.write.worker import Local, Orders

pytestmark = pytest.mark.property

LOCAL = {"logs": logs.Side("local", logs.LOGS), "copies": logs.Side("local", {})}


class StreamingWorker:
    """A side in this process that writes each file of a stream's folder by a plain upsert."""

    def __init__(self, *, compacts: bool = True) -> None:
        self._compacts = compacts
        self._orders = Orders(lambda spec: Local(spec))

    def ask(self, **order: Any) -> Mapping[str, Any]:
        if order["do"] == "open" and not self._compacts:
            order["spec"]["options"]["hoodie.compact.inline"] = "false"
        return self._orders.answer(order)

    def stream(self, table: str, rows: Path, checkpoint: Path) -> Sample:
        checkpoint.mkdir()
        for file in sorted(rows.iterdir(), key=lambda each: each.stat().st_mtime):
            self._orders.open[table].write(str(file), first=False)
        return sample(1)


def sample(wall_s: float) -> Sample:
    return Sample(wall_s, wall_s / 2, 1, 1, 0.0)


def test_our_logs_are_compared_with_hudis_and_with_our_copies() -> None:
    walls = {logs.HUDI: [10, 8], logs.OURS: [1, 2], logs.COPY: [5, 5]}
    samples = {(logs.MICRO, side): [*map(sample, took)] for side, took in walls.items()}
    rows = {(row.what, row.other): row for row in logs.ratios(samples)}
    what = f"logs: {logs.MICRO}, {logs.OURS}"
    assert rows[what, logs.HUDI].row()[-2:] == ("<= 0.2 times", "yes")
    assert rows[what, logs.COPY].row()[-2:] == ("<= 0.3 times", "yes")
    assert rows[f"{what}: CPU", logs.HUDI].bound is None


def test_sides_write_copies_of_one_table_and_compact_them(tmp_path: Path) -> None:
    steps = logs.micro_steps(tmp_path, 0.001, 2)
    assert [step.count for step in steps] == [2100, 900, 900]
    assert totals(steps)["rows"] == 2100
    assert sorted(set(pq.read_table(steps[0].rows)["part"].to_pylist())) == ["p0", "p1"]
    with logs.LogRace.of(tmp_path, "snappy", LOCAL) as race:
        found = race.run("tiny", steps, 2, compacts=True)
    assert {key: len(samples) for key, samples in found.items()} == {
        (logs.MICRO, "logs"): 4,
        (logs.MICRO, "copies"): 4,
        (logs.COMPACTION, "logs"): 2,
    }
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_streams_write_the_files_of_a_folder_and_compact_after_every_tenth(tmp_path: Path) -> None:
    steps = logs.micro_steps(tmp_path, 0.001, 20)
    workers = {"logs": StreamingWorker(), "copies": StreamingWorker()}
    race = logs.LogRace(tmp_path, "snappy", LOCAL, workers)
    found = race.stream(steps, 2)
    assert {key: len(samples) for key, samples in found.items()} == {(logs.STREAM, "logs"): 2}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_stream_that_does_not_compact_is_an_error(tmp_path: Path) -> None:
    steps = logs.micro_steps(tmp_path, 0.001, 10)
    worker = StreamingWorker(compacts=False)
    race = logs.LogRace(tmp_path, "snappy", {"logs": LOCAL["logs"]}, {"logs": worker})
    with pytest.raises(RaceError, match="logs compacted 0 times instead of 1"):
        race.stream(steps, 1)


def test_requests_of_a_micro_batch_are_within_their_goals(tmp_path: Path) -> None:
    requests, lists = logs.request_figures(tmp_path)
    assert (requests.met, lists.met) == (True, True)


def test_memory_of_a_compacting_task_is_measured(tmp_path: Path) -> None:
    rows = list(logs.memory_figures(tmp_path, 0.001))
    assert [row.what.endswith("shuffled keys") for row in rows] == [False, True]
    assert all(row.values[0] > 1 and row.bound.value == 256 for row in rows)

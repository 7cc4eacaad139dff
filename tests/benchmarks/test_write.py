"""The benchmark of writes: its rows, what it measures, its table, and a tiny race of one side."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.process_tree import (
    PURPOSES,
    SERVICE,
    Process,
    cpu_by_purpose,
    cpu_seconds,
    peak_bytes,
    peaks,
    reset_peaks,
    tree,
)
from benchmarks.results.ratios import detail_table
from benchmarks.write import __main__ as command
from benchmarks.write import fresh, goals
from benchmarks.write.data import BULK_INSERT, DAILY, UPSERT_100, generated_steps, totals
from benchmarks.write.race import Contestant, Race, RaceError, Sample, turns
from benchmarks.write.worker import with_meta_columns

MIB = 1 << 20


def test_generated_keys_are_unique_and_one_percent_of_them_change(tmp_path: Path) -> None:
    first, second = steps = generated_steps(tmp_path, 2_000)
    rows, changed = (pq.read_table(step.rows) for step in steps)
    assert (first.count, second.count) == (2_000, 20)
    assert len(pc.unique(rows["id"])) == rows.num_rows == 2_000
    assert set(changed["id"].to_pylist()) <= set(rows["id"].to_pylist())
    assert rows.schema.equals(changed.schema)
    assert totals(steps) == {"rows": 2_000, "ts": 20}


def test_a_tree_has_the_descendants_of_its_root_only() -> None:
    others = [Process(1, 0, 1), Process(2, 1, 1), Process(3, 2, 1), Process(4, 2, 1)]
    assert [each.pid for each in tree(2, others)] == [2, 3, 4]
    assert tree(9, others) == []


BUSY = """
import sys, time
block = bytearray(64 << 20)
while time.process_time() < 0.25:
    pass
del block
print("done", flush=True)
sys.stdin.read()
"""
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {BUSY!r}], stdin=subprocess.PIPE)
child.communicate(sys.stdin.buffer.read())
"""


@contextmanager
def busy_child() -> Iterator[int]:
    """Yield the id of a process whose child has used CPU and memory, and waits."""
    command = [sys.executable, "-c", PARENT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "done\n"
        yield process.pid
        process.stdin.close()


def test_cpu_and_memory_are_those_of_all_descendants() -> None:
    with busy_child() as pid:
        assert len(tree(pid)) == 2
        assert cpu_seconds(pid) >= 0.2  # of 0.25 s: the system counts whole ticks
        # No child of a JVM's is there.
        by_purpose = cpu_by_purpose(pid)
        assert by_purpose[SERVICE] >= 0.2
        assert sum(by_purpose.values()) == pytest.approx(cpu_seconds(pid), abs=0.05)
        peak = peak_bytes(pid)
        assert peak >= 64 * MIB
        (largest,) = peaks(pid, "bytearray(64 << 20)\nwhile").values()
        assert 64 * MIB <= largest < peak
        assert peaks(pid, "no such command") == {}
        reset_peaks(pid)
        assert peak_bytes(pid) <= peak - 60 * MIB


def test_each_turn_begins_with_another_side() -> None:
    assert [turns(["a", "b", "c"], turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]
    assert sorted(turns(["a", "b", "c"], 5)) == ["a", "b", "c"]


def sample(wall_s: float, tasks: int = 0) -> Sample:
    return Sample(wall_s, 2 * wall_s, 100 * MIB, tasks, 1.5)


SAMPLES = {
    (DAILY, goals.HUDI): [sample(10), sample(8)],
    (DAILY, goals.SPARK): [sample(1), sample(2)],
    (DAILY, goals.LOCAL): [sample(0.3), sample(0.3)],
    (DAILY, goals.DELTA): [sample(0.1), sample(0.1)],
}


def test_sides_are_compared_round_by_round_with_their_goals() -> None:
    rows = {(row.what, row.other): row for row in goals.ratios("t", SAMPLES, bloom=False)}
    ours = rows[f"t: {DAILY}, {goals.SPARK}", goals.HUDI]
    assert ours.ratios == [0.1, 0.25]
    assert ours.met is True
    cpu = rows[f"t: {DAILY}, {goals.SPARK}: CPU", goals.HUDI]
    assert (cpu.values, cpu.partners, cpu.bound) == ([2, 4], [20, 16], None)
    local = rows[f"t: {DAILY}, {goals.LOCAL}", goals.DELTA]
    assert (local.row()[-2:], local.met) == (("<= 1.5 times", "NO"), False)


def test_deltalake_has_no_bloom_filters_so_files_with_them_have_no_goal() -> None:
    rows = {(row.what, row.other): row for row in goals.ratios("t", SAMPLES, bloom=True)}
    assert rows[f"t: {DAILY}, {goals.LOCAL}", goals.DELTA].bound is None


def test_tasks_have_a_goal_on_default_settings() -> None:
    samples = {(UPSERT_100, goals.EXECUTORS): [sample(1, 12), sample(1, 14)]}
    (row,) = goals.ratios("t", samples, bloom=True)
    assert row.row()[-2:] == ("<= 12", "NO")


def test_details_have_the_medians_of_each_side() -> None:
    rows = list(goals.details("t", SAMPLES))
    assert rows[1] == (f"t: {DAILY}", goals.SPARK, "1.5", "3", "100", "0", "1.5")
    assert detail_table(goals.DETAIL_HEAD, rows).count("\n") == len(rows) + 1


def spent(wall_s: float) -> fresh.Spent:
    return fresh.Spent(wall_s, dict.fromkeys(PURPOSES, wall_s / 2), 3, 7, wall_s / 4)


def test_writes_of_fresh_sessions_are_compared_with_their_goals() -> None:
    found = {
        (write, name): [spent(seconds)]
        for write in (BULK_INSERT, fresh.LATER_DAILY, fresh.WHOLE)
        for name, seconds in ((fresh.HUDI, 10.0), (fresh.OURS, 5.0))
    }
    rows = {row.what: row for row in fresh.ratios(found)}
    assert len(rows) == 6
    assert rows[f"fresh session: {BULK_INSERT}, {fresh.OURS}"].met is True
    assert rows[f"fresh session: {fresh.LATER_DAILY}, {fresh.OURS}"].met is False
    assert rows[f"fresh session: {fresh.WHOLE}, {fresh.OURS}: CPU"].values == [15.0]
    first, *_ = fresh.details(found)
    assert first[:7] == (BULK_INSERT, fresh.HUDI, "10", "2.5", "3", "7", "30")
    assert len(first) == len(fresh.DETAIL_HEAD)


def test_the_jobs_of_an_event_log_have_the_tasks_that_ran(tmp_path: Path) -> None:
    job = {"Event": "SparkListenerJobStart", "Job ID": 4, "Stage IDs": [1, 2]}
    events = [
        {**job, "Submission Time": 2_000},
        {"Event": "SparkListenerTaskEnd", "Stage ID": 2},
        {"Event": "SparkListenerTaskEnd", "Stage ID": 2},
        {"Event": "SparkListenerJobEnd", "Job ID": 4, "Completion Time": 2_500},
        {**job, "Job ID": 5, "Submission Time": 3_000},
    ]
    log = tmp_path / "log"
    log.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert fresh.spark_jobs(log) == [fresh.SparkJob(2.0, 2.5, 2)]


def test_rows_with_meta_columns_have_five_more(tmp_path: Path) -> None:
    first, _ = generated_steps(tmp_path, 100)
    rows = pq.read_table(first.rows)
    found = with_meta_columns(rows, 1)
    assert found.num_columns == rows.num_columns + 5
    assert found.column_names[5:] == rows.column_names
    assert len(pc.unique(found["_hoodie_commit_seqno"])) == rows.num_rows


LOCAL = Contestant("ours", "local", {"hoodie.embed.timeline.server": "false"})
NO_FSYNC = Contestant("no fsync", "local-no-fsync", LOCAL.options)


@pytest.mark.property
def test_sides_write_the_same_rows_in_turns(tmp_path: Path) -> None:
    steps = generated_steps(tmp_path, 1_000)
    with Race.of([LOCAL, NO_FSYNC], tmp_path, "snappy") as race:
        found = race.run(steps, 2, bloom=False)
        assert {name for _, name in found} == {"ours", "no fsync"}
        assert {len(samples) for samples in found.values()} == {2}
        bulk = found[BULK_INSERT, "ours"][0]
        assert bulk.wall_s > 0
        assert bulk.peak_bytes > 10 * MIB
        race._open("ours", bloom=False)
        race._worker("ours").write(str(race._table("ours")), steps[0])
        with pytest.raises(RaceError, match="the table of ours holds"):
            race._check("ours", totals(steps))
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["ours"]


@pytest.mark.property
def test_an_interrupted_race_leaves_no_process(tmp_path: Path) -> None:
    pids = []

    def interrupted() -> None:
        with Race.of([LOCAL], tmp_path, "snappy") as race:
            pids.append(race._worker("ours")._process.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert tree(*pids) == []


@pytest.mark.property
def test_the_command_prints_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    sizes = ["--scale", "0.0002", "--rounds", "1", "--bloom", "off", "--folder", str(tmp_path)]
    others = [f"--without={side}" for side in ("hudi", "spark", "delta", "delta-meta")]
    command.main(["--only", "generated", *sizes, *others])
    printed = capsys.readouterr().out
    assert f"{goals.LOCAL_NO_FSYNC} | " in printed
    assert "scale 0.0002, the goals are for scale 1" in printed
    assert list(tmp_path.iterdir()) == []

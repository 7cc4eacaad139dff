"""Writes of fresh sessions: each job is a process of its own, which Spark has to warm up in.

Jobs that run once a night never write in a warm session. So in each round each side runs, in turns,
an empty job, whose session starts and stops, and one that writes a bulk insert and daily upserts.
Beside wall and CPU seconds stand what the CPU was for (``process_tree.cpu_by_purpose``), and from
Spark's event log the jobs, the tasks, and the seconds in which jobs ran.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow.compute as pc

from benchmarks.process_tree import PURPOSES, cpu_by_purpose
from benchmarks.results.ratios import Bound, Ratio
from benchmarks.write.data import BULK_INSERT, DAILY, ORDERING, Step, flight_steps, totals
from benchmarks.write.race import RaceError, Worker, turns
from benchmarks.write.spark_session import hudi_settings, plain_settings
from benchmarks.write.worker import TableSpec
from strandline import Table

OURS: Final = "ours on Spark"
HUDI: Final = "Hudi 1.2.0"
_CONF: Final = {"spark.sql.shuffle.partitions": "4"}
_MODULE: Final = "benchmarks.write.fresh_job"
_EVENT_LOG: Final = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}

FIRST_DAILY: Final = "first daily upsert"
LATER_DAILY: Final = "later daily upserts"
WHOLE: Final = "whole job less an empty one"
_BOUNDS: Final = {BULK_INSERT: 0.8, LATER_DAILY: 0.2}
"""Write → bound of the ratio of wall seconds."""


@dataclass(frozen=True, slots=True)
class Side:
    """Who writes.

    Attributes:
        kind: Which function of ``benchmarks.write.fresh_job`` writes.
        settings: Adds those of its session.
    """

    kind: str
    settings: Callable[[Mapping[str, str]], dict[str, str]]


SIDES: Final = {HUDI: Side("hudi", hudi_settings), OURS: Side("spark", plain_settings)}


@dataclass(frozen=True, slots=True)
class Spent:
    """What a part of a job took.

    Attributes:
        wall_s: Seconds.
        cpu_s: CPU seconds by purpose.
        jobs: Number of Spark's jobs.
        tasks: Number of their tasks.
        in_jobs_s: Seconds in which one of them ran.
    """

    wall_s: float
    cpu_s: Mapping[str, float]
    jobs: int = 0
    tasks: int = 0
    in_jobs_s: float = 0

    @property
    def total_cpu_s(self) -> float:
        """CPU seconds of all processes."""
        return sum(self.cpu_s.values())


Found = dict[tuple[str, str], list[Spent]]
"""(Write, side's name) → what it took in each round."""


def steps(folder: Path, scale: float, days: int) -> list[Step]:
    """Write the rows' files; return the writes of a job: a bulk insert and daily upserts."""
    found = flight_steps(folder, scale, days)
    return [step for step in found if step.operation in (BULK_INSERT, DAILY)]


def measured(
    folder: Path, steps: Sequence[Step], *, rounds: int, codec: str, sides: Sequence[str]
) -> Found:
    """Run an empty job and a job of all steps on each side in each round.

    Args:
        folder: For tables, logs, and Spark's event logs.
        steps: The writes.
        rounds: How often.
        codec: Compression of the tables.
        sides: Names of the sides.

    Raises:
        RaceError: A table doesn't hold the rows that the steps leave.
    """
    found: Found = {}
    wanted = totals(list(steps))
    for number in range(rounds):
        for name in turns(list(sides), number):
            table = folder / f"table-{number}-{SIDES[name].kind}"
            options = TableSpec(str(table), codec, bloom=False, options={}).hudi_options()
            *_, empty = job(SIDES[name], table, options, ())
            *writes, whole = job(SIDES[name], table, options, steps)
            times = Table(table).to_arrow([ORDERING])[ORDERING]
            if (holds := {"rows": len(times), "ts": pc.sum(times).as_py()}) != wanted:
                raise RaceError(f"the table of {name} holds {holds} instead of {wanted}")
            for write, spent in (*_named(writes), (WHOLE, _less(whole, empty))):
                found.setdefault((write, name), []).append(spent)
                print(f"round {number + 1}: {write}, {name}: {spent}", file=sys.stderr)
    return found


def job(side: Side, table: Path, options: Mapping[str, str], steps: Sequence[Step]) -> list[Spent]:
    """Run a job; return what each step took, and then what the whole job did."""
    events = table.parent / f"events-{time.monotonic_ns()}"
    events.mkdir()
    log = {**_EVENT_LOG, "spark.eventLog.dir": events.as_uri()}
    job = {
        "master": f"local[{os.cpu_count()}]",
        "settings": side.settings({**_CONF, **log}),
        "table": str(table),
        "options": options,
    }
    started = time.perf_counter()
    errors = table.parent / f"{side.kind}.log"
    with Worker.started(side.kind, json.dumps(job), errors, _MODULE) as worker:
        writes = [_written(worker, step) for step in steps]
        cpu_s = cpu_by_purpose(worker.pid)
        worker.ask(do="end")
    whole = Spent(time.perf_counter() - started, cpu_s)
    jobs = spark_jobs(next(events.iterdir()))
    return [*(_with_jobs(spent, begin, jobs) for begin, spent in writes), whole]


def _written(worker: Worker, step: Step) -> tuple[float, Spent]:
    """Have a step written; return when it began, and what it took."""
    before = cpu_by_purpose(worker.pid)
    answer = worker.ask(do="write", rows=str(step.rows), first=step.is_first)
    after = cpu_by_purpose(worker.pid)
    cpu_s = {purpose: after[purpose] - before[purpose] for purpose in PURPOSES}
    return answer["begin"], Spent(answer["seconds"], cpu_s)


def _named(writes: Sequence[Spent]) -> Iterator[tuple[str, Spent]]:
    """Yield a bulk insert and upserts by name; the later daily upserts as their mean."""
    first, *daily = writes
    yield from zip((BULK_INSERT, FIRST_DAILY), [first, *daily], strict=False)
    if later := daily[1:]:
        yield LATER_DAILY, mean(later)


def mean(of: Sequence[Spent]) -> Spent:
    n = len(of)
    return Spent(
        sum(each.wall_s for each in of) / n,
        {purpose: sum(each.cpu_s[purpose] for each in of) / n for purpose in PURPOSES},
        round(sum(each.jobs for each in of) / n),
        round(sum(each.tasks for each in of) / n),
        sum(each.in_jobs_s for each in of) / n,
    )


def _less(whole: Spent, empty: Spent) -> Spent:
    cpu_s = {purpose: whole.cpu_s[purpose] - empty.cpu_s[purpose] for purpose in PURPOSES}
    return Spent(whole.wall_s - empty.wall_s, cpu_s)


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A job from an event log: when it ran, in seconds since 1970, and its number of tasks."""

    begin: float
    end: float
    tasks: int


def spark_jobs(log: Path) -> list[SparkJob]:
    """Return the jobs of an event log that ended, in their order; skipped tasks don't count."""
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    ran: dict[int, int] = {}
    begins: dict[int, Mapping[str, Any]] = {}
    jobs = []
    for event in events:
        kind = event["Event"]
        if kind == "SparkListenerJobStart":
            begins[event["Job ID"]] = event
        elif kind == "SparkListenerTaskEnd":
            ran[event["Stage ID"]] = ran.get(event["Stage ID"], 0) + 1
        elif kind == "SparkListenerJobEnd":
            begin = begins[event["Job ID"]]
            tasks = sum(ran.pop(stage, 0) for stage in begin["Stage IDs"])
            times = begin["Submission Time"] / 1e3, event["Completion Time"] / 1e3
            jobs.append(SparkJob(*times, tasks))
    return jobs


def _with_jobs(spent: Spent, begin: float, jobs: Sequence[SparkJob]) -> Spent:
    """Return what a write took, with its jobs."""
    own = [job for job in jobs if begin <= job.begin + 1e-3 and job.begin < begin + spent.wall_s]
    in_jobs, last = 0.0, 0.0
    for job in sorted(own, key=lambda each: each.begin):
        in_jobs += max(job.end - max(job.begin, last), 0)
        last = max(last, job.end)
    tasks = sum(job.tasks for job in own)
    return Spent(spent.wall_s, spent.cpu_s, len(own), tasks, in_jobs)


def ratios(found: Found) -> Iterator[Ratio]:
    for write, name in found:
        if name != OURS or (write, HUDI) not in found:
            continue
        ours, other = found[write, OURS], found[write, HUDI]
        what = f"fresh session: {write}, {OURS}"
        bound = _BOUNDS.get(write)
        target = None if bound is None else Bound(ratio=bound)
        wall, of_other = ([each.wall_s for each in side] for side in (ours, other))
        yield Ratio(what, wall, "s", HUDI, of_other, target)
        cpu, of_other = ([each.total_cpu_s for each in side] for side in (ours, other))
        yield Ratio(f"{what}: CPU", cpu, "s", HUDI, of_other)


DETAIL_HEAD: Final = ("write", "side", "wall s", "in jobs s", "jobs", "tasks", "CPU s", *PURPOSES)


def details(found: Found) -> Iterator[tuple[str, ...]]:
    """Yield a row of medians for each write and side."""
    for (write, name), spent in found.items():
        yield (
            write,
            name,
            f"{median(each.wall_s for each in spent):.3g}",
            f"{median(each.in_jobs_s for each in spent):.3g}",
            f"{median(each.jobs for each in spent):g}",
            f"{median(each.tasks for each in spent):g}",
            f"{median(each.total_cpu_s for each in spent):.3g}",
            *(f"{median(each.cpu_s[purpose] for each in spent):.2f}" for purpose in PURPOSES),
        )

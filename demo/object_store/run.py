"""The run on an object store: makes the lake, starts the Spark process, proves the tables.

An S3 server in a process of its own answers each request after a delay. The lake is made once and
copied inside the server. The Spark process (``demo.object_store.job``) writes days into one table
with the embedded service and into the other without, and has jobs ask for the files of the first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from demo.feed import FIRST_DAY, Batch, Landing, after, arrow, batches, flights
from demo.file_groups import compare, file_groups
from demo.file_life import file_life, log_record
from demo.object_store.job import ASK_S, WRITE_S, StorePlan, write_options
from demo.object_store.lake import OFF, ON, TABLE, TABLES, StoreLake, day_text, loads
from demo.object_store.record import KEPT, WAYS, Job, StoreReport
from demo.object_store.server import StoreServer
from demo.object_store.step_bar import StepBar
from demo.prove import prove
from demo.record import BatchRecord
from demo.replay import replay
from demo.run import events
from demo.spark import java_home

_READ_S, _MAKE_S, _CAPACITY_S, _START_S, _PROVE_S, _COMPARE_S = 4.0, 14.0, 3.0, 10.0, 9.0, 6.0
"""Seconds of the steps on two idle cores, by which what is left is estimated."""


@dataclass(frozen=True, slots=True)
class Days:
    """The flights of a run.

    Attributes:
        base: The rows of the table that the run begins with.
        landing: The files of the days' batches.
        end: The rows after the last day.
    """

    base: Any
    landing: Landing
    end: pa.Table


@dataclass(slots=True)
class _Told:
    """What the Spark process has told; used by one thread."""

    platform: str = ""
    loading: Job | None = None
    jobs: list[Job] = field(default_factory=list)
    killed: tuple[int, int] = (0, 0)
    after_kill: Job | None = None
    feed: dict[str, list[BatchRecord]] = field(default_factory=dict)

    def add(self, event: str, values: dict[str, Any]) -> None:
        """Add an event."""
        if event == "started":
            self.platform = values["platform"]
        elif event == "loading":
            self.loading = Job.from_json(values)
        elif event == "asked":
            self.jobs.append(Job.from_json(values))
        elif event == "written":
            batch = BatchRecord.from_json(values["batch"])
            self.feed.setdefault(values["table"], []).append(batch)
        elif event == "killed":
            before, now = values["pids"]
            self.killed, self.after_kill = (before, now), Job.from_json(values["job"])


def store_report(console: Console, folder: Path, args: argparse.Namespace) -> StoreReport:
    """Run all of it and return the report.

    Args:
        console: Shows progress.
        folder: Holds the feed, logs and copies of the tables.
        args: The command line.

    Raises:
        JobFailedError: The Spark process failed.
    """
    began = time.perf_counter()
    # Chosen here: a process that is killed couldn't delete the wrapper of a Java.
    os.environ["JAVA_HOME"] = str(java_home(version("pyspark")))
    with StepBar.running(console, _total_s(args.days)) as bar:
        bar.begin("the flights are read", _READ_S)
        days = land(folder / "feed", args.partitions, args.days)
        with StoreServer.running(folder, args.delay_ms / 1000) as server:
            lake = StoreLake(folder, server.direct)
            _make(bar, lake, days, args)
            capacity = _capacity(bar, server, args)
            told = _told(bar, server, folder, days, args)
            assert told.loading is not None
            assert told.after_kill is not None
            counted = server.count([told.loading, *told.jobs, told.after_kill])
            proofs, tables = {}, {}
            for table in TABLES:
                bar.begin(f"three readers prove the rows of {table}", _PROVE_S)
                tables[table] = lake.files(table)
                proofs[table] = prove(tables[table], days.end)
        bar.begin("the tables' file groups are compared", _COMPARE_S)
        on, off = (file_groups(tables[table]) for table in (ON, OFF))
    return StoreReport(
        partitions=args.partitions,
        delay_ms=args.delay_ms,
        capacity=capacity,
        table_version=args.table_version,
        table_type=args.table_type,
        rows=len(days.end),
        loading=counted[0],
        jobs=tuple(counted[1:-1]),
        after_kill=replace(counted[-1], is_disturbed=True),
        killed=told.killed,
        feed={table: tuple(told.feed[table]) for table in TABLES},
        proofs=proofs,
        groups=compare(off, on),
        life=file_life(tables[ON]),
        logs=log_record(tables[ON]),
        platform=told.platform,
        seconds=time.perf_counter() - began,
    )


def clear(folder: Path) -> None:
    """Delete what an earlier run left in a folder."""
    for name in ("feed", "made", *TABLES):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("s3-server.log", "requests.jsonl", "job.log"):
        (folder / name).unlink(missing_ok=True)


def land(folder: Path, partitions: int, days: int) -> Days:
    """Write the batches of the days, and return them with the rows before and after."""
    rows = flights()
    base, landing = after(rows, partitions), Landing(folder)
    sent = list(batches(rows, partitions + days, first=partitions + 1))
    for batch in sent:
        landing.write(batch)
    before = Batch(partitions, FIRST_DAY, base, base.iloc[:0])
    return Days(base, landing, arrow(replay([before, *sent]).rows))


def _total_s(days: int) -> float:
    each_day = len(TABLES) * WRITE_S + sum(ASK_S.values())
    once = _READ_S + _MAKE_S + _CAPACITY_S + _START_S + 2 * ASK_S[KEPT]
    return once + days * each_day + len(TABLES) * _PROVE_S + _COMPARE_S


def _make(bar: StepBar, lake: StoreLake, days: Days, args: argparse.Namespace) -> None:
    bar.begin(f"a table of {args.partitions} partitions is made", _MAKE_S)
    options = write_options(args.table_version, args.table_type, service=False)
    part_s = _MAKE_S / (len(loads(args.partitions)) + 2)
    for text in lake.make(days.base, args.partitions, options):
        bar.part(text, part_s)


def _capacity(bar: StepBar, server: StoreServer, args: argparse.Namespace) -> float:
    bar.begin("what the S3 server can answer is measured", _CAPACITY_S)
    return server.capacity(
        ON, [f"{TABLE}/dt={day_text(number)}" for number in range(1, args.partitions + 1)]
    )


def _told(
    bar: StepBar, server: StoreServer, folder: Path, days: Days, args: argparse.Namespace
) -> _Told:
    """Run the Spark process and return what it told."""
    plan = StorePlan(
        feed=str(days.landing.folder),
        first=args.partitions + 1,
        last=args.partitions + args.days,
        options={name: dict(server.options(name)) for name in (*WAYS, "writer")},
        direct=dict(server.direct),
        table_version=args.table_version,
        table_type=args.table_type,
        master=args.master,
    )
    told = _Told()
    bar.begin("Spark starts", _START_S)
    with closing(events(plan.command(), folder / "job.log")) as found:
        for event, values in found:
            if event == "step":
                bar.begin(values["text"], values["seconds"])
            else:
                told.add(event, values)
    return told

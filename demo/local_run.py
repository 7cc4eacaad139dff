"""The run on a local disk: the feed with the service on, off, and killed half-way.

The feed of flights is written to files. The job (``demo.job``, a process of its own) writes them
into a Hudi table batch by batch, with the embedded timeline service on. In one batch the job is
killed between its data files and its commit; the table is checked in that state, and the job is
started again. Everything is repeated with the service off, and once more with the service killed
half-way (``demo.kill``).
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pyarrow as pa
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from demo.feed import Batch, Landing, arrow, batches, flights
from demo.file_groups import compare, file_groups
from demo.file_life import file_life, log_record
from demo.prove import prove
from demo.record import BatchRecord, GroupProof, LogRecord, Proof, RunRecord, ServiceKill
from demo.replay import replay
from demo.report.report import Report
from demo.run import Plan, run
from demo.spark import java_home

_RUNS: Final = ("service on", "service off", "service killed")
_WIDE: Final = 118


@dataclass(frozen=True, slots=True)
class Feed:
    """The feed's files, and the rows that the tables must hold.

    Attributes:
        landing: The batches' files.
        die_on: Number of the batch in which the job is killed.
        before_death: The rows after the batch before ``die_on``.
        end: The rows after the last batch.
    """

    landing: Landing
    die_on: int
    before_death: pa.Table
    end: pa.Table


@dataclass(slots=True)
class Demo:
    """The runs and their proofs; used by one thread.

    Attributes:
        console: Shows progress.
        folder: Holds the feed, the logs and the tables.
        args: The command line.
    """

    console: Console
    folder: Path
    args: argparse.Namespace
    proofs: dict[str, tuple[Proof, ...]] = field(default_factory=dict)

    def report(self) -> Report:
        """Run the feed with the service on and off, and return the report."""
        # Chosen once for all jobs: a job that is killed couldn't delete the wrapper of a Java.
        os.environ["JAVA_HOME"] = str(java_home(version("pyspark")))
        feed = land(self.folder / "feed", self.args.days)
        days, outage = self.args.days, self.args.outage
        on = self._run(feed, "service on", die_on=feed.die_on)
        off = self._run(feed, "service off", service=False, die_on=feed.die_on)
        killed = None
        if outage:
            kill = ServiceKill.within(days, outage)
            killed = self._run(feed, "service killed", service_kill=kill)
        return Report(
            days=days,
            table_version=self.args.table_version,
            table_type=self.args.table_type,
            rows=len(feed.end),
            on=on,
            off=off,
            killed=killed,
            proofs=dict(self.proofs),
            groups=self._compare_groups(),
            logs=self._logs(),
            life=file_life(self._files("service on")),
        )

    def _run(
        self,
        feed: Feed,
        name: str,
        *,
        service: bool = True,
        die_on: int | None = None,
        service_kill: ServiceKill | None = None,
    ) -> RunRecord:
        table = _table(name)
        plan = Plan(
            feed=feed.landing.folder,
            table=(self.folder / table).resolve().as_uri(),
            log=self.folder / f"{table}.log",
            days=self.args.days,
            table_version=self.args.table_version,
            table_type=self.args.table_type,
            master=self.args.master,
            service=service,
            die_on=die_on,
            service_kill=service_kill,
        )

        def on_death() -> None:
            killed = f"{name}, batch {die_on} killed"
            self.proofs[killed] = prove(self._files(name), feed.before_death)

        with _progress(self.console, name, self.args.days) as progress:
            record = run(plan, progress.add, on_death)
        self.proofs[name] = prove(self._files(name), feed.end)
        return record

    def _files(self, name: str) -> Path:
        """Return the folder of a run's table."""
        return self.folder / _table(name)

    def _logs(self) -> dict[str, LogRecord]:
        """Return run → its table's logs; nothing for copy-on-write tables."""
        runs = [name for name in _RUNS if name in self.proofs]
        found = ((name, log_record(self._files(name))) for name in runs)
        return {name: record for name, record in found if record is not None}

    def _compare_groups(self) -> dict[str, GroupProof]:
        """Compare each table's file groups with those of the run with the service on."""
        tables = [self._files(name) for name in _RUNS if name in self.proofs]
        wanted, *others = (file_groups(table) for table in tables)
        return dict(zip(_RUNS[1:], (compare(found, wanted) for found in others), strict=False))


def clear(folder: Path) -> None:
    """Delete what an earlier run left in a folder."""
    for name in ("feed", *map(_table, _RUNS)):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / f"{name}.log").unlink(missing_ok=True)


def _table(name: str) -> str:
    """Return the name of a run's table."""
    return name.replace(" ", "-")


def land(folder: Path, days: int) -> Feed:
    """Write the batches of the first ``days`` days, and replay them."""
    landing, die_on = Landing(folder), days // 2 + 1
    sent: list[Batch] = []
    for batch in batches(flights(), days):
        landing.write(batch)
        sent.append(batch)
    before, end = (arrow(replay(sent[:upto]).rows) for upto in (die_on - 1, days))
    return Feed(landing, die_on, before, end)


@dataclass(slots=True)
class _Counts:
    """The counts that the progress bar shows; used by one thread."""

    progress: Progress
    task: TaskID
    every: int
    rows: int = 0
    lookups: int = 0
    calls: int = 0

    def add(self, batch: BatchRecord) -> None:
        """Count a finished batch."""
        self.rows += batch.rows
        self.lookups += len(batch.lookups_s)
        self.calls += batch.all_calls
        text = (
            f"{batch.day} [bold]{self.rows:,}[/] rows [bold]{self.lookups:,}[/] look-ups "
            f"[bold]{self.calls:,}[/] file-system calls"
        )
        self.progress.update(self.task, completed=batch.number, text=text)
        console = self.progress.console
        if not console.is_terminal and batch.number % self.every == 0:
            console.print(f"day {batch.number:>3} {text}")


@contextmanager
def _progress(console: Console, name: str, days: int) -> Iterator[_Counts]:
    """Show a progress bar on a terminal, elsewhere a line per seventh of the days."""
    wide = (BarColumn(bar_width=24), TimeElapsedColumn()) if console.width >= _WIDE else ()
    progress = Progress(
        TextColumn("{task.description}"),
        *wide[:1],
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        *wide[1:],
        console=console,
    )
    with progress:
        task = progress.add_task(f"{name:<14}", total=days, text="starting Spark")
        yield _Counts(progress, task, max(1, days // 7))

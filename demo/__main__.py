"""The demo from the feed to the report: ``python -m demo``, or ``tox -e demo``.

The feed of flights is written to files. The job (``demo.job``, a process of its own) writes them
into a Hudi table batch by batch, with the embedded timeline service on. In one batch the job is
killed between its data files and its commit; the table is checked in that state, and the job is
started again. Everything is repeated with the service off, and once more with the service killed
half-way (``demo.kill``). The command fails unless three readers see all tables equal to a plain
replay of the feed, their file groups are equal, and the service saved list calls.

Exit codes: 0 success, 1 a check or the job failed, 2 bad usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import FrameType
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

from demo.feed import DAYS, Batch, FeedError, Landing, arrow, batches, flights
from demo.file_groups import compare, file_groups
from demo.file_life import file_life, log_record
from demo.lake import Lake, LocalLake, ObjectStoreLake
from demo.prove import prove
from demo.record import (
    COPY_ON_WRITE,
    TABLE_TYPES,
    BatchRecord,
    GroupProof,
    LogRecord,
    Proof,
    RunRecord,
    ServiceKill,
)
from demo.replay import replay
from demo.report.files import write
from demo.report.report import Report
from demo.report.terminal import show
from demo.run import JobFailedError, Plan, run
from demo.spark import NoJavaError, java_home

FEWEST_DAYS: Final = 3
LOCAL: Final = "local"
S3: Final = "s3"
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
        folder: Holds the feed and the logs.
        lake: Holds the tables.
        args: The command line.
    """

    console: Console
    folder: Path
    lake: Lake
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
            life=file_life(self.lake.files(_table("service on"))),
            request_ms=self.args.delay_ms if self.args.storage == S3 else None,
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
            table=self.lake.address(table),
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
            self.proofs[f"{name}, batch {die_on} killed"] = prove(
                self.lake.files(table), feed.before_death
            )

        with _progress(self.console, name, self.args.days) as progress:
            record = run(plan, progress.add, on_death)
        self.proofs[name] = prove(self.lake.files(table), feed.end)
        return record

    def _logs(self) -> dict[str, LogRecord]:
        """Return run → its table's logs; nothing for copy-on-write tables."""
        runs = [name for name in _RUNS if name in self.proofs]
        found = ((name, log_record(self.lake.files(_table(name)))) for name in runs)
        return {name: record for name, record in found if record is not None}

    def _compare_groups(self) -> dict[str, GroupProof]:
        """Compare each table's file groups with those of the run with the service on."""
        tables = [self.lake.files(_table(name)) for name in _RUNS if name in self.proofs]
        wanted, *others = (file_groups(table) for table in tables)
        return dict(zip(_RUNS[1:], (compare(found, wanted) for found in others), strict=False))


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    args = _arguments(arguments)
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _folder(args.path) as folder, _lake(args, folder) as lake:
            report = Demo(console, folder, lake, args).report()
        show(report, console)
        for path in write(report, args.report):
            console.print(f"written: {path}", style="dim", highlight=False)
    except (FeedError, JobFailedError, NoJavaError) as failure:
        console.print(f"FAILED  {failure}", style="bold red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; every process of the job was ended")
        return 130
    return 1 if report.failures else 0


@contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    """Yield the folder for feed and tables: the given one, cleared, or a temporary one."""
    if path is None:
        with tempfile.TemporaryDirectory(prefix="strandline-demo-") as folder:
            yield Path(folder)
        return
    for name in ("feed", *map(_table, _RUNS)):
        shutil.rmtree(path / name, ignore_errors=True)
        (path / f"{name}.log").unlink(missing_ok=True)
    path.mkdir(parents=True, exist_ok=True)
    yield path


@contextmanager
def _lake(args: argparse.Namespace, folder: Path) -> Iterator[Lake]:
    """Yield the place of the tables."""
    if args.storage == LOCAL:
        yield LocalLake(folder)
        return
    with ObjectStoreLake.running(folder, args.delay_ms / 1000) as lake:
        yield lake


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_args(arguments)
    longest = ServiceKill.longest(args.days)
    if args.outage is None:
        args.outage = min(3, max(1, args.days // 9))
    if not 0 <= args.outage <= longest:
        parser.error(
            f"argument --outage: {args.outage} is not 0 to {longest}; the outage begins in batch "
            f"{args.days // 2 + 1} of --days {args.days}, and a batch must be left after it"
        )
    return args


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Replay the flights of 2013 into a Hudi table, check it, and report.",
    )
    parser.add_argument(
        "--days",
        type=_days,
        default=28,
        help=f"how many days of the feed, {FEWEST_DAYS} to {DAYS} (default 28)",
    )
    parser.add_argument(
        "--outage",
        type=_number,
        metavar="BATCHES",
        help="in how many batches the third run kills the service for good; 0 leaves that run out "
        "(default: a ninth of the days, 1 to 3)",
    )
    parser.add_argument(
        "--table-version", type=int, choices=(6, 8, 9), default=9, help="of the table (default 9)"
    )
    parser.add_argument(
        "--table-type",
        choices=TABLE_TYPES,
        default=COPY_ON_WRITE,
        help="of the table; one that merges on read is compacted after every fourth commit "
        f"(default {COPY_ON_WRITE})",
    )
    parser.add_argument(
        "--path", type=Path, help="keep feed, tables and logs here (default: a temporary folder)"
    )
    parser.add_argument(
        "--storage",
        choices=(LOCAL, S3),
        default=LOCAL,
        help=f"where the tables are: {LOCAL} disk (the default), or {S3}: an S3 server of its own, "
        "behind a proxy that delays each request",
    )
    parser.add_argument(
        "--delay-ms",
        type=_number,
        default=30,
        help=f"delay of each request with --storage {S3} (default 30)",
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("report"),
        help="where the report goes (default report/)",
    )
    parser.add_argument("--master", default="local[2]", help="where Spark runs (default local[2])")
    return parser


def _days(text: str) -> int:
    days = _number(text)
    if not FEWEST_DAYS <= days <= DAYS:
        raise argparse.ArgumentTypeError(f"{days} is not {FEWEST_DAYS} to {DAYS}")
    return days


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

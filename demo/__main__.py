"""The demo from the feed to the report: ``python -m demo``, or ``tox -e demo``.

On an object store (the default, ``demo.object_store``) tasks of Spark ask which files make up a
table, without a service and with one, and requests and waiting are compared. On a local disk
(``--storage local``, ``demo.local_run``) the feed is written day by day while the job and the
service are killed. The command fails unless every check of the report holds: the readers see the
rows of a plain replay, the counts agree with the S3 server's log, and the service saved requests.

Exit codes: 0 success, 1 a check or the job failed, 2 bad usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from demo import packages_of

with packages_of("demo"):
    from rich.console import Console

    from benchmarks.object_store.delay import ServerFailedError
    from demo import local_run
    from demo.feed import DAYS, FeedError
    from demo.object_store import files as store_files
    from demo.object_store import run as store_run
    from demo.object_store import terminal as store_terminal
    from demo.object_store.record import TASKS
    from demo.record import COPY_ON_WRITE, TABLE_TYPES, ServiceKill
    from demo.report import files, terminal
    from demo.run import JobFailedError
    from demo.spark import NoJavaError

FEWEST_DAYS: Final = 3
LOCAL: Final = "local"
S3: Final = "s3"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    args = _arguments(arguments)
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _folder(args.path) as folder:
            failures = (_on_disk if args.storage == LOCAL else _on_store)(console, folder, args)
    except (FeedError, JobFailedError, NoJavaError, ServerFailedError) as failure:
        console.print(f"FAILED  {failure}", style="bold red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; every process of the job was ended")
        return 130
    return 1 if failures else 0


def _on_disk(console: Console, folder: Path, args: argparse.Namespace) -> list[str]:
    """Run the demo on a local disk, show and write its report, and return what failed."""
    local_run.clear(folder)
    report = local_run.Demo(console, folder, args).report()
    terminal.show(report, console)
    _say_written(console, files.write(report, args.report))
    return report.failures


def _on_store(console: Console, folder: Path, args: argparse.Namespace) -> list[str]:
    """Run the demo on an object store, show and write its report, and return what failed."""
    store_run.clear(folder)
    report = store_run.store_report(console, folder, args)
    store_terminal.show(report, console)
    _say_written(console, store_files.write(report, args.report))
    return report.failures


def _say_written(console: Console, paths: Sequence[Path]) -> None:
    for path in paths:
        console.print(f"written: {path}", style="dim", highlight=False)


@contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    """Yield the folder for feed and tables: the given one, or a temporary one."""
    if path is None:
        with tempfile.TemporaryDirectory(prefix="strandline-demo-") as folder:
            yield Path(folder)
        return
    path.mkdir(parents=True, exist_ok=True)
    yield path.resolve()


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.storage == LOCAL:
        _check_local(parser, args)
    else:
        _check_store(parser, args)
    return args


def _check_local(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse what a run on a local disk can't do, and fill in its defaults."""
    args.days = 28 if args.days is None else args.days
    if not FEWEST_DAYS <= args.days <= DAYS:
        parser.error(f"argument --days: {args.days} is not {FEWEST_DAYS} to {DAYS}")
    longest = ServiceKill.longest(args.days)
    if args.outage is None:
        args.outage = min(3, max(1, args.days // 9))
    if not 0 <= args.outage <= longest:
        parser.error(
            f"argument --outage: {args.outage} is not 0 to {longest}; the outage begins in batch "
            f"{args.days // 2 + 1} of --days {args.days}, and a batch must be left after it"
        )


def _check_store(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse what a run on an object store can't do, and fill in its defaults."""
    args.days = 3 if args.days is None else args.days
    if args.outage is not None:
        parser.error(f"argument --outage: it needs --storage {LOCAL}")
    if not TASKS <= args.partitions < DAYS:
        parser.error(f"argument --partitions: {args.partitions} is not {TASKS} to {DAYS - 1}")
    if not 1 <= args.days <= DAYS - args.partitions:
        parser.error(
            f"argument --days: {args.days} is not 1 to {DAYS - args.partitions}; the feed has "
            f"{DAYS} days, of which --partitions {args.partitions} are in the table at the start"
        )
    if not 0 <= args.delay_ms <= 1000:
        parser.error(f"argument --delay-ms: {args.delay_ms} is not 0 to 1000")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Write the flights of 2013 into a Hudi table, ask for its files, and report.",
    )
    parser.add_argument(
        "--storage",
        choices=(S3, LOCAL),
        default=S3,
        help=f"where the tables are: {S3} (the default), an S3 server of its own that delays each "
        f"request; or the {LOCAL} disk, where days are written while job and service are killed",
    )
    parser.add_argument(
        "--days",
        type=_number,
        help=f"how many days of the feed are written (default 3; with --storage {LOCAL} 28)",
    )
    parser.add_argument(
        "--partitions",
        type=_number,
        default=300,
        help=f"days that the table has at the start, with --storage {S3} (default 300)",
    )
    parser.add_argument(
        "--delay-ms",
        type=_number,
        default=30,
        help=f"delay of each request with --storage {S3} (default 30)",
    )
    parser.add_argument(
        "--outage",
        type=_number,
        metavar="BATCHES",
        help=f"with --storage {LOCAL}: in how many batches the third run kills the service for "
        "good; 0 leaves that run out (default: a ninth of the days, 1 to 3)",
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
        "--report",
        type=Path,
        default=Path("report"),
        help="where the report goes (default report/)",
    )
    parser.add_argument("--master", default="local[2]", help="where Spark runs (default local[2])")
    return parser


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

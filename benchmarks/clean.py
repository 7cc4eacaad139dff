"""Planning and carrying out cleans, beside Hudi's cleaner: ``python -m benchmarks.clean``.

A table of 10,000 partitions with 20 files each has had a clean and then 10 commits, which wrote to
100 of the partitions. Both sides plan the next clean and put it on the timeline, in turns; the plan
is taken off again. Hudi's writer does so in a warm JVM, by its incremental cleaning, with empty
cleans on, and by listing all partitions. Ours has a view that has followed the timeline, or a new
one (cold). Then the same with ten times the partitions; a clean that has nothing to do; and 100,000
files deleted on an S3 server (moto, in a process of its own), also if ten of them fail.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.java.cleans import JavaCleans
from benchmarks.java.server import JavaHudi
from benchmarks.object_store.delay import delayed
from benchmarks.object_store.s3_server import s3_options, s3_process
from benchmarks.results.ratios import Bound, Ratio, detail_table
from benchmarks.results.ratios import table as markdown
from benchmarks.servers.big_table import AVRO_VERSION, BigTable, Shape
from benchmarks.write.request_count import kind_of
from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.table_services.clean.execution import (
    CleanExecution,
    File,
    delete_files,
    names_by_partition,
)
from strandline.table_services.clean.parts import Before
from strandline.table_services.clean.policy import CleanSettings
from strandline.table_services.clean.run import Cleaner
from timeline.clock import SystemClock, TimeGenerator
from timeline.instant import Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanerPlan
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.local import LocalStorage

FILES: Final = 20
WRITTEN: Final = 100
"""Partitions that the commits since the last clean wrote to."""
TOGETHER: Final = 1000
"""Partitions that one commit adds."""
COMMITS: Final = 10
SETTINGS: Final = CleanSettings(retained=COMMITS)
HUDI: Final[Mapping[str, str]] = {
    "hoodie.table.name": "plans",
    "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
    "hoodie.clean.commits.retained": str(COMMITS),
    "hoodie.metadata.enable": "false",
}
INCREMENTAL: Final = "Hudi, incremental"
EMPTY_CLEANS: Final = "Hudi, empty cleans every 24 h"
LISTING: Final = "Hudi, all partitions"
WAYS: Final[Mapping[str, Mapping[str, str]]] = {
    INCREMENTAL: {},
    EMPTY_CLEANS: {"hoodie.write.empty.clean.interval.hours": "24"},
    LISTING: {"hoodie.clean.incremental.enabled": "false"},
}
GOALS: Final = {INCREMENTAL: 0.1, LISTING: 0.02}
"""Most of Hudi's time that planning may take."""
SAME: Final = 1.2
"""Most of the CPU with a tenth of the partitions."""
IDLE_S: Final = 0.005
PARTITIONS_S3: Final = 100
FAILING: Final = 10
KINDS: Final = ("list", "stat", "read")
DELETES: Final = {0: 100, FAILING: 120}
"""Failing keys → most requests that delete 100,000 files."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What planning one clean took.

    Attributes:
        seconds: Wall time.
        cpu_s: CPU seconds of all threads of the process.
        calls: Storage calls by kind.
        files: Number of files that are to be deleted.
    """

    seconds: float
    cpu_s: float
    calls: Mapping[str, int]
    files: int = 0


class OurCleans:
    """Plans cleans of one table in this process, with a view that follows the timeline."""

    def __init__(self, base: Path) -> None:
        self._meta = TableMetaClient.open(LocalStorage(str(base)))
        self._times = TimeGenerator(SystemClock(), "UTC")
        self._tables, self.view = new_view(base)

    def run(self) -> None:
        """Plan a clean and carry it out."""
        done = Cleaner(self._meta, self.view, self._times, SETTINGS).run()
        assert done is not None

    def plan(self) -> Planned:
        """Plan a clean as a client that has a view; take it off again."""
        before = calls_of(self._meta, self._tables)
        with measured() as took:
            requested, files = self._request()
        made = calls_of(self._meta, self._tables) - before
        withdraw(self._meta, requested)
        return Planned(*took, made, files)

    def plan_anew(self) -> Planned:
        """Plan a clean as a new process, which opens table and view; take it off again."""
        with measured() as took:
            new = OurCleans(Path(self._meta.storage.base_path))
            requested, files = new._request()
        withdraw(self._meta, requested)
        return Planned(*took, calls_of(new._meta, new._tables), files)

    def _request(self) -> tuple[Instant, int]:
        """Return a clean put on the timeline, and the number of its files."""
        timeline = self._meta.active_timeline()
        cleaner = Cleaner(self._meta, self.view, self._times, SETTINGS)
        bounds = cleaner.planner.bounds(timeline, due=True)
        assert bounds is not None
        (part,) = cleaner.planner.due(timeline, bounds)
        now = self._times.next(timeline.last_time)
        planned = part.requested(now, Before.of(timeline, None))
        execution = CleanExecution(self._meta, self._times, lambda files, done: ())
        return execution.request(now, planned), planned.files

    def idle(self) -> Planned:
        """Ask a new client for a clean that has nothing to do."""
        meta = TableMetaClient.open(LocalStorage(self._meta.storage.base_path))
        before = calls_of(meta, self._tables)
        with measured() as took:
            done = Cleaner(meta, self.view, self._times, SETTINGS).run()
        assert done is None
        return Planned(*took, calls_of(meta, self._tables) - before)


def new_view(base: Path) -> tuple[TableView, LocalView]:
    """Return a table's view in memory that is in step with the timeline, and has no files yet."""
    tables = TableView(LocalStorage(str(base)))
    return tables, LocalView.newest(tables)


def calls_of(meta: TableMetaClient, tables: TableView) -> Counter[str]:
    """Return the calls of storage so far by kind, of cleaner and view."""
    found: Counter[str] = Counter()
    for storage in {id(each): each for each in (meta.storage, tables.storage)}.values():
        for (kind, _), count in storage.calls.snapshot().items():
            found[kind] += count
    return found


@contextmanager
def measured() -> Iterator[list[float]]:
    """Yield a list that has the wall and CPU seconds of the block after it."""
    took: list[float] = []
    wall, cpu = time.perf_counter(), time.process_time()
    yield took
    took += [time.perf_counter() - wall, time.process_time() - cpu]


def withdraw(meta: TableMetaClient, requested: Instant) -> None:
    """Take a requested clean off the timeline, so that it can be planned once more."""
    meta.storage.delete(meta.path_of(requested))


def made(folder: Path, partitions: int) -> tuple[BigTable, OurCleans]:
    """Make a table with a clean and the commits that the next one has to examine.

    Of the partitions behind the first 10,000 there are no data files: our cleaner lists none.
    """
    first = min(partitions, 10_000)
    table = BigTable.create(folder / str(partitions), Shape(first, FILES), AVRO_VERSION)
    for _ in range(first, partitions, TOGETHER):
        table.extend(TOGETHER)
    ours = OurCleans(table.path)
    commit(table)  # what the first clean deletes is older
    ours.view.load_all_partitions()
    table.follow_clock()
    commit(table)
    ours.run()
    commit(table)
    ours.view.sync()
    return table, ours


def commit(table: BigTable) -> None:
    """Commit new files for all groups of some partitions."""
    written = table.partitions[:WRITTEN]
    each = len(written) // COMMITS
    for number in range(COMMITS):
        table.update(written[number * each : (number + 1) * each], FILES)


def planning(
    folder: Path, rounds: int, partitions: int, hudi: JavaHudi | None
) -> Iterator[tuple[str, list[Planned], str, list[Planned]]]:
    """Yield each comparison: what, our plans, with what it is compared, that one's plans."""
    table, ours = made(folder, partitions)
    _, larger = made(folder, 10 * partitions)
    what = f"plan, {partitions:,} partitions"
    with ExitStack() as stack:
        if hudi is not None:
            cleans = stack.enter_context(JavaCleans(hudi))
            for way, options in WAYS.items():
                plan = partial(hudis, cleans, table, {**HUDI, **options})
                yield f"{what}, warm view", *in_turns(rounds, ours.plan, plan, way)
            plan = partial(hudis, cleans, table, HUDI)
            yield f"{what}, new process", *in_turns(rounds, ours.plan_anew, plan, INCREMENTAL)
    name = f"plan, {10 * partitions:,} partitions, warm view"
    yield name, *in_turns(5 * rounds, larger.plan, ours.plan, f"{partitions:,} partitions")
    ours.run()
    ours.idle()
    yield "nothing to do, a new client", [ours.idle() for _ in range(5 * rounds)], "", []


def in_turns(
    rounds: int, run: Callable[[], Planned], partner: Callable[[], Planned], other: str
) -> tuple[list[Planned], str, list[Planned]]:
    """Plan by two sides in turns, of which the first turn isn't counted."""
    pairs = [(run(), partner()) for _ in range(rounds + 1)][1:]
    assert len({plan.files for pair in pairs for plan in pair}) == 1, "the sides differ"
    return [mine for mine, _ in pairs], other, [theirs for _, theirs in pairs]


def hudis(cleans: JavaCleans, table: BigTable, options: Mapping[str, str]) -> Planned:
    """Have Hudi plan a clean; take it off again."""
    found = cleans.schedule(str(table.path), options)
    assert found.instant, "Hudi planned nothing"
    meta = TableMetaClient.open(LocalStorage(str(table.path)))
    (requested,) = meta.active_timeline().pending()
    plan = meta.read_plan(requested)
    assert isinstance(plan, CleanerPlan)
    files = sum(map(len, names_by_partition(plan).values()))
    withdraw(meta, requested)
    return Planned(found.seconds, found.cpu_s, found.calls, files)


def deletes(folder: Path, files: int) -> Iterator[Ratio]:
    """Count the requests that delete files on an S3 server, without and with failing keys."""
    with s3_process() as endpoint, delayed(endpoint, 0, folder / "requests.jsonl") as proxy:
        storage = FsspecStorage("s3://bench/t", s3_options(proxy.endpoint))
        storage._fs.call_s3("create_bucket", Bucket="bench")
        for failing, most in DELETES.items():
            each = files // PARTITIONS_S3
            names = [
                (f"p{partition}", f"f{failing}-{number}.parquet")
                for partition in range(PARTITIONS_S3)
                for number in range(each)
            ]
            with ThreadPoolExecutor(16) as threads:
                list(threads.map(lambda file: storage.create("/".join(file)), names))
            lost = names[:: len(names) // failing] if failing else []
            deny(storage, lost)
            first = len(proxy.requests())
            with measured() as took:
                failed = delete_files(storage, names, SETTINGS.parallelism)
            assert failed == set(lost)
            requests = sum(kind_of(each) == "delete" for each in proxy.requests()[first:])
            what = f"{len(names):,} files on S3, {failing or 'no'} keys fail"
            yield Ratio(f"{what}: requests that delete", [requests], "", bound=Bound(most))
            yield Ratio(f"{what}: CPU", took[1:], "s")


def deny(storage: FsspecStorage, files: Sequence[File]) -> None:
    """Have the bucket refuse to delete some files."""
    if not files:
        return
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteObject",
        "Resource": [f"arn:aws:s3:::bench/t/{partition}/{name}" for partition, name in files],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    storage._fs.call_s3("put_bucket_policy", Bucket="bench", Policy=policy)


def bound_of(what: str, other: str) -> Bound | None:
    """Return the goal of a comparison."""
    if not other:
        return Bound(IDLE_S)
    if other in WAYS:
        return Bound(ratio=GOALS[other]) if "warm" in what and other in GOALS else None
    return Bound(ratio=SAME)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clean", description=__doc__)
    parser.add_argument(
        "--partitions", type=int, default=10_000, help="100 or more; then ten times as many"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--s3-files", type=int, default=100_000, help="0: no S3 server")
    parser.add_argument("--no-java", action="store_true", help="our side only")
    parser.add_argument("--folder", type=Path, help="where tables are made")
    given = parser.parse_args()
    rows: list[Ratio] = []
    calls: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        hudi = None if given.no_java else JavaHudi.ready(folder)
        for what, mine, other, theirs in planning(folder, given.rounds, given.partitions, hudi):
            bound = bound_of(what, other)
            # Our planning has one thread, and so has Hudi's driver; but Hudi's JVM has helpers.
            is_wall = other in WAYS
            value = (lambda plan: plan.seconds) if is_wall else (lambda plan: plan.cpu_s)
            unit = "wall" if is_wall else "CPU"
            sides = [*map(value, mine)], "ms", other, [*map(value, theirs)]
            rows.append(Ratio(f"{what}: {unit}", *sides, bound))
            if is_wall:
                cpu = [each.cpu_s for each in mine], "ms", other, [each.cpu_s for each in theirs]
                rows.append(Ratio(f"{what}: CPU", *cpu))
            for side, plans in (("", mine), (f": {other}", theirs)):
                if plans:
                    calls.append(
                        (f"{what}{side}", *(str(plans[-1].calls.get(kind, 0)) for kind in KINDS))
                    )
        if given.s3_files:
            rows += deletes(folder, given.s3_files)
    print(markdown(rows), detail_table(("storage calls", *KINDS), calls), sep="\n\n")


if __name__ == "__main__":
    main()

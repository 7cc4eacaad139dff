"""The look-ups of a whole job, on local disk and on an object store, and with a dead service.

A job has 200 tasks that look up five partitions each, one after the other in one worker process;
each task opens a view of its own. Its look-up time is the sum over its tasks. The same job runs

* through ``strandline serve``, whose process has just started or has loaded the partitions;
* in Hudi's ``RemoteHoodieTableFileSystemView``, in a JVM, against Hudi's own server or ours;
* by listing storage, without a service: tasks of one worker share what it reads, and it reads the
  table from its commits once that is cheaper; or each task is a worker of its own.

Requests to storage are those of the job and of the server together.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.java.lookups import JavaLookups
from benchmarks.java.server import JavaHudi, JavaServer
from benchmarks.lookups.single import location_of
from benchmarks.object_store import slow_store
from benchmarks.results.ratios import Bound, Ratio, seconds
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.servers.server import Server, StrandlineServer
from executor_proxy import LookupReport, ViewLocation
from executor_proxy.worker_state import start_anew

TASKS: Final = 200
EACH: Final = 5
"""Partitions of a task."""
FILES: Final = 10
"""Files of a partition."""

LATER: Final = 20
"""Tasks of a worker after its first one."""

Tasks = Sequence[Sequence[str]]


@dataclass(slots=True)
class Runs:
    """The runs of one way to do the job: seconds and requests to storage, run by run."""

    seconds: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)

    def add(self, run_s: float, requests: float) -> None:
        """Add a run."""
        self.seconds.append(run_s)
        self.requests.append(requests)


ByWay = dict[str, Runs]
OURS, JAVA, MIXED, LISTING, ALONE = (
    "proxy and service",
    "Java's REMOTE view and server",
    "Java's REMOTE view, our service",
    "listing, in one worker",
    "listing, each task anew",
)


def in_this_worker(location: ViewLocation, tasks: Tasks) -> tuple[float, LookupReport]:
    """Run the job's look-ups as a new worker process would; return their seconds and report."""
    start_anew()
    report = LookupReport()
    started = time.perf_counter()
    for partitions in tasks:
        view = location.open(report)
        for partition in partitions:
            assert len(view.latest_base_files(partition)) == FILES
        view.close()
    elapsed = time.perf_counter() - started
    assert not report.fallbacks or not location.urls, report.fallbacks
    return elapsed, report


def jobs(folder: Path, hudi: JavaHudi | None, rounds: int, tasks: int = TASKS) -> Iterator[Ratio]:
    """Measure the job on both kinds of storage."""
    big = BigTable.create(folder / "job", Shape(tasks * EACH, FILES))
    job = [big.partitions[at : at + EACH] for at in range(0, len(big.partitions), EACH)]
    for storage, request_s in (
        ("local disk", 0.0),
        (f"{slow_store.REQUEST_S * 1e3:.0f} ms a request", slow_store.REQUEST_S),
    ):
        all_runs: tuple[ByWay, ByWay] = (_no_runs(), _no_runs())
        for _ in range(rounds):
            _run(big, job, hudi, request_s, *all_runs)
        what = f"{tasks} tasks, {len(big.partitions):,} partitions, {storage}"
        yield from _ratios(what, *all_runs)


def _ratios(what: str, new: ByWay, loaded: ByWay) -> Iterator[Ratio]:
    for state, runs in (("just started", new), ("loaded", loaded)):
        ours = runs[OURS]
        for way in (JAVA, MIXED, LISTING, ALONE):
            if runs[way].seconds:
                about = f"{what}: look-ups, service {state}"
                yield Ratio(about, ours.seconds, "ms", way, runs[way].seconds)
    for way in (JAVA, LISTING, ALONE):
        if new[way].requests:
            about = f"{what}: requests to storage"
            yield Ratio(about, new[OURS].requests, "", way, new[way].requests)


def _no_runs() -> ByWay:
    return {way: Runs() for way in (OURS, JAVA, MIXED, LISTING, ALONE)}


def _run(
    big: BigTable,
    job: Tasks,
    hudi: JavaHudi | None,
    request_s: float,
    new: ByWay,
    loaded: ByWay,
) -> None:
    """Run the job once in each way with servers that have just started, then again."""
    base_path = f"{slow_store.SCHEME}://{big.path}" if request_s else str(big.path)
    module = slow_store.__name__ if request_s else "strandline"
    with ExitStack() as stack:
        ours = StrandlineServer(base_path, module=module)
        stack.enter_context(ours)
        url = f"http://127.0.0.1:{ours.port}"
        location = location_of(big, (url,), base_path=base_path)
        for runs in (new, loaded):
            _add(runs[OURS], ours, lambda: in_this_worker(location, job)[0])
        listing = location_of(big, (), base_path=base_path)
        for way, workers in ((LISTING, [job]), (ALONE, [[task] for task in job])):
            found = [in_this_worker(listing, tasks) for tasks in workers]
            requests = sum(sum(report.storage_calls().values()) for _, report in found)
            for runs in (new, loaded):
                runs[way].add(sum(run_s for run_s, _ in found), requests)
        if hudi is None:
            return
        java = JavaServer(hudi, request_s=request_s)
        stack.enter_context(java)
        jvm = stack.enter_context(JavaLookups(hudi, str(big.path)))
        for runs in (new, loaded):
            _add(runs[JAVA], java, lambda: _in_java(jvm, java, job))
        if not request_s:  # else our service has the table under a path that Java doesn't know
            _add(loaded[MIXED], ours, lambda: _in_java(jvm, ours, job))


def _in_java(jvm: JavaLookups, server: Server, job: Tasks) -> float:
    run_s, files = jvm.job(server.port, job)
    assert files == sum(map(len, job)) * FILES
    return run_s


def _add(runs: Runs, server: Server, run: Callable[[], float]) -> None:
    """Add a run through a server, with the requests that the server sent to storage."""
    before = sum(server.calls().values())
    run_s = run()
    runs.add(run_s, sum(server.calls().values()) - before)


def dead_service(folder: Path, rounds: int) -> Iterator[Ratio]:
    """Measure what the proxy adds to listing if the service is dead, task by task."""
    big = BigTable.create(folder / "dead", Shape(2 + LATER * 2, FILES))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            ports = {"closed port": closed, "no answer": silent}
            dead = {why: server.getsockname()[1] for why, server in ports.items()}
        for why, port in dead.items():
            location = location_of(big, (f"http://127.0.0.1:{port}",))
            yield from _dead(big, f"service dead, {why}", location, rounds)


def _dead(big: BigTable, what: str, location: ViewLocation, rounds: int) -> Iterator[Ratio]:
    listing = location_of(big, ())
    first: list[float] = []
    later: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        listed_s = in_this_worker(listing, [big.partitions[:1]])[0]
        start_anew()
        first.append(_look_up_s(location, big.partitions[0]) - listed_s)
        # All these are tasks of one worker, which shares one local view.
        _look_up_s(listing, big.partitions[1])
        more = iter(big.partitions[2:])
        for one, other in zip(more, more, strict=True):
            later[0].append(_look_up_s(location, one))
            later[1].append(_look_up_s(listing, other))
    yield Ratio(f"{what}: added to a worker's first task", first, "s", bound=Bound(value=3))
    yield Ratio(f"{what}: look-up of a later task", later[0], "us", LISTING, later[1])


def _look_up_s(location: ViewLocation, partition: str) -> float:
    return seconds(lambda: location.open().latest_base_files(partition))

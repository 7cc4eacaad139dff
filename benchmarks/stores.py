"""Our stores, and the kinds of storage of Hudi's Java server: ``python -m benchmarks.stores``.

Each server is a process of its own, measured from outside. Operations that Hudi's server has, too,
alternate between both. ``--scale 0.01`` makes the tables small, ``--no-java`` needs no Java.
``benchmarks/README.md`` describes the figures and has results.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.command import Bench, Part, all_partitions, load_all, opened, run
from benchmarks.results.figures import NO_TARGET, Figure, Target
from benchmarks.servers.big_table import FILES_A_COMMIT, BigTable, Shape
from benchmarks.servers.resident import grown
from benchmarks.servers.server import Server, ServerError, StrandlineServer, target
from benchmarks.store_commits import commits
from fsview.store.stores import KINDS

SMALL = (1000, 100, 3)
"""Partitions, groups in each, slices of each: 300,000 files."""

LARGE = (10_000, 100, 3)
MEMORY_MIB = 64
"""The memory budget when resident memory is measured."""

SPREADS = ((1000, 10), (200, 100), (1000, 1), (10, 10))
"""Numbers of partitions that a commit touches, and of groups in each."""

SYNCED = ((6, "JSON"), (9, "Avro"))
"""Table versions, and the formats of their commit metadata."""

COMMITS = 12
"""A sync's cost is the mean of these; chunks are rewritten only once in several commits."""

MANY_GROUPS = 10
MANY_FILES = 1000
"""The target is for commits of at least these numbers of groups a partition and of files."""

WARM_UP = 100
ASKED = 300
SETTLING = 2
"""How often Java answers for the whole table before its second measurement."""

MIB = 1 << 20

BySide = dict[bool, list[float]]
"""Values of our side (true) and of Java's (false)."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How a service keeps its views.

    Attributes:
        kind: The kind of store, as in ``--storage``.
        folder: The folder for its files.
        memory_mib: The budget.
    """

    kind: str
    folder: Path
    memory_mib: int = 512

    @property
    def options(self) -> tuple[str, ...]:
        """Options of our command line."""
        kept = ("--storage", self.kind, "--memory", str(self.memory_mib), "--check-interval", "0")
        if self.kind == "sql":
            return (*kept, "--store-url", f"sqlite://{self.folder}/views.db")
        return kept if self.kind == "memory" else (*kept, "--store-dir", str(self.folder))

    def start(self, big: BigTable) -> StrandlineServer:
        """Start our service."""
        return StrandlineServer(str(big.path), *self.options)

    def start_java(self, bench: Bench, stack: ExitStack, *, incremental: bool = False) -> Any:
        """Start Hudi's server with the same kind, unless only our side is measured."""
        budget = self.memory_mib * MIB
        kind = KINDS[self.kind].kind
        return bench.start_java(stack, incremental=incremental, kind=kind, memory_bytes=budget)


def restart(bench: Bench) -> Iterator[Figure]:
    """Measure a restart after which the table hasn't changed."""
    big = _small(bench.folder.parent, _scaled(bench, SMALL))
    kept = Kept("rocksdb", bench.folder / "store")
    with kept.start(big) as server:
        opened(server, big)
        load_all(server, big)
    yield from _restarts(bench, big, kept, Target(at_most=200))


def restart_large(bench: Bench) -> Iterator[Figure]:
    """Measure the same with a table that the service has followed while it grew."""
    shape = _scaled(bench, LARGE)
    kept = Kept("rocksdb", bench.folder / "store")
    step = min(shape.partitions, max(1, FILES_A_COMMIT // shape.groups))
    big = bench.table("followed", Shape(step, shape.groups, shape.slices))
    with kept.start(big) as server:
        cpu_s = _followed(big, shape.partitions, step, server)
    followed = "table that grows by 20,000 files a commit, RocksDB: CPU us a file of a sync"
    yield Figure(followed, cpu_s)
    yield from _restarts(bench, big, kept, Target(at_most=1000))


@cache
def _small(folder: Path, shape: Shape) -> BigTable:
    """Return the table that is shared by parts that don't change it."""
    return BigTable.create(folder / "small", shape)


def _scaled(bench: Bench, shape: tuple[int, int, int]) -> Shape:
    partitions, groups, slices = shape
    return Shape(bench.many(partitions), groups, slices)


def _followed(big: BigTable, partitions: int, step: int, server: StrandlineServer) -> list[float]:
    """Grow a table while a server follows; return each sync's CPU microseconds per file.

    The files aren't created: the service follows a loaded table without listing it, and creating 3
    million files would take longer than the measurement.
    """
    opened(server, big)
    load_all(server, big)
    cpu = []
    for made in range(step, partitions, step):
        added = min(step, partitions - made)
        big.extend(added)
        files = added * big.shape.groups * big.shape.slices
        cpu.append(server.cost([_refresh(big)], "POST").cpu_s / files * 1e6)
    return cpu


def _refresh(big: BigTable) -> str:
    return target("sync", str(big.path), big.state())


def _restarts(bench: Bench, big: BigTable, kept: Kept, at_most: Target) -> Iterator[Figure]:
    asked = all_partitions(big)[-1]
    store = (f"kind={kept.kind}", f"directory={kept.folder}")
    module = "benchmarks.servers.first_answer"
    command = [sys.executable, "-m", module, str(big.path), asked, *store]
    wall, cpu, lists = [], [], []
    for _ in range(bench.rounds):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerError(f"no first answer: {done.stderr[-2000:]}")
        answer = json.loads(done.stdout)
        if answer["status"] != 200 or answer["partitions"] != big.shape.partitions:
            raise ServerError(f"not a restart: {answer}")
        wall.append(answer["wall_s"] * 1e3)
        cpu.append(answer["cpu_s"] * 1e3)
        lists.append(_partition_lists(answer["calls"]))
    what = f"restart with {big.shape} ({big.shape.files:,} files) in RocksDB"
    yield Figure(f"{what}, to the first answer: ms", wall, target=at_most)
    yield Figure(f"{what}, to the first answer: CPU ms", cpu)
    yield Figure(f"{what}: list calls of partitions", lists, target=Target(at_most=0))


def _partition_lists(calls: list[dict[str, Any]]) -> float:
    """Return the number of list calls except those of the timeline, by opening and syncs."""
    causes = ("table", "sync")
    return sum(c["count"] for c in calls if c["kind"] == "list" and c["cause"] not in causes)


def cold(bench: Bench) -> Iterator[Figure]:
    """Measure first answers for partitions that aren't in memory."""
    big = _small(bench.folder.parent, _scaled(bench, SMALL))
    for kind, times in (("rocksdb", 10), ("spillable", 5)):
        kept = Kept(kind, bench.folder / kind, 1 if kind == "spillable" else 512)
        if kind == "rocksdb":
            with kept.start(big) as server:  # the measured servers are others, with empty caches
                opened(server, big)
                load_all(server, big)
        found, settled = _cold_answers(bench, big, kept)
        what = f"{big.shape.groups}-file partition, not in memory, {kind}: CPU us an answer"
        yield Figure(what, found[True], found[False], Target(times=times))
        asked_often = f"the same, Java asked {SETTLING * big.shape.partitions:,} times before"
        yield Figure(asked_often, found[True], settled)


def _cold_answers(bench: Bench, big: BigTable, kept: Kept) -> tuple[BySide, list[float]]:
    """Return CPU microseconds an answer, by side, and Java's once it is long-lived.

    Both are new in each round and are asked as often before.
    """
    asked = all_partitions(big)
    few = min(WARM_UP, len(asked) // 2)
    warm_up, measured = asked[:few], asked[few : few + ASKED]
    found: BySide = {True: [], False: []}
    settled: list[float] = []

    def cost_us(server: Server) -> float:
        return server.cost(measured).cpu_s / len(measured) * 1e6

    for _ in range(bench.rounds):
        with ExitStack() as stack:
            ours = stack.enter_context(kept.start(big))
            java = kept.start_java(bench, stack)
            for server in filter(None, (ours, java)):
                if server is java or not KINDS[kept.kind].lasts:
                    opened(server, big)
                    load_all(server, big)
                server.cost(warm_up)
                found[server is ours].append(cost_us(server))
            if java is not None:
                for _ in range(SETTLING):
                    java.cost(asked)  # so that the JVM compiles all of it
                settled.append(cost_us(java))
    return found, settled


def memory(bench: Bench) -> Iterator[Figure]:
    """Measure the resident memory of servers that have loaded a whole table."""
    big = _small(bench.folder.parent, _scaled(bench, SMALL))
    for kind in ("memory", "spillable", "rocksdb"):
        kept = Kept(kind, bench.folder / kind, MEMORY_MIB)
        states = ("loaded", "each partition asked for")
        found: dict[str, BySide] = {state: {True: [], False: []} for state in states}
        for _ in range(bench.rounds):
            with ExitStack() as stack:
                ours = stack.enter_context(kept.start(big))
                java = kept.start_java(bench, stack)
                for server in filter(None, (ours, java)):
                    opened(server, big)
                    load_all(server, big)
                    found[states[0]][server is ours].append(server.resident_bytes() / MIB)
                    server.cost(all_partitions(big))
                    found[states[1]][server is ours].append(server.resident_bytes() / MIB)
        for state in states:
            what = f"resident, {big.shape.files:,} files, {kind}, {MEMORY_MIB} MiB, {state}: MiB"
            yield Figure(what, found[state][True], found[state][False], Target(at_most=200))


def sync(bench: Bench) -> Iterator[Figure]:
    """Measure commits to many loaded partitions, for all kinds of store in alternation."""
    for version, encoding in SYNCED:
        yield from _syncs(bench, version, encoding)


def _syncs(bench: Bench, version: int, encoding: str) -> Iterator[Figure]:
    shape = _scaled(bench, SMALL)
    big = BigTable.create(bench.folder / f"version-{version}", shape, version)
    spreads = [(bench.many(partitions), groups) for partitions, groups in SPREADS]
    found: dict[tuple[str, tuple[int, int]], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        servers: dict[str, StrandlineServer] = {}
        for kind in KINDS:
            server = Kept(kind, bench.folder / f"{kind}-{version}").start(big)
            stack.enter_context(server)
            servers[kind] = server
            opened(server, big)
            load_all(server, big)
        for _ in range(bench.rounds):
            for partitions, groups in spreads:
                cpu_s = dict.fromkeys(servers, 0.0)
                for _ in range(COMMITS):
                    big.update(big.partitions[:partitions], groups, with_files=False)
                    for kind, server in servers.items():
                        cost = server.cost([_refresh(big)], "POST", until_idle=True)
                        cpu_s[kind] += cost.cpu_s
                changed = COMMITS * partitions * groups
                for kind in servers:
                    found[kind, (partitions, groups)].append(cpu_s[kind] / changed * 1e6)
    for (kind, (partitions, groups)), values in found.items():
        spread = f"{groups} of {big.shape.groups} groups in {partitions:,} partitions"
        rate = f"{1e6 / median(values):,.0f} files a CPU second"
        what = f"sync of a commit ({encoding}) to {spread}, {kind}: CPU us a changed file ({rate})"
        is_large = groups >= MANY_GROUPS and partitions * groups >= MANY_FILES
        yield Figure(what, values, target=Target(at_most=20) if is_large else NO_TARGET)


def budget(bench: Bench) -> Iterator[Figure]:
    """Measure counted against resident bytes of a store with ten times its budget."""
    limit = bench.many(MEMORY_MIB) * MIB
    difference, excess = [], []
    for _ in range(bench.rounds):
        counted, resident = grown(bench.folder, limit)
        pairs = zip(counted, resident, strict=True)
        difference.append(max(abs(grew / count - 1) for count, grew in pairs) * 100)
        excess.append((max(resident) / limit - 1) * 100)
    what = f"spillable of {limit // MIB} MiB under load of ten times that: resident growth"
    at_most = Target(at_most=10)
    yield Figure(f"{what} off what is counted, at most: %", difference, target=at_most)
    yield Figure(f"{what} above the limit, at most: %", excess, target=at_most)


PARTS: Mapping[str, Part] = {
    "restart": restart,
    "restart-large": restart_large,
    "cold": cold,
    "memory": memory,
    "sync": sync,
    "budget": budget,
    "commits": commits,
}


if __name__ == "__main__":
    run("benchmarks.stores", __doc__, PARTS)

"""Our view against that of Hudi's Java server: ``python -m benchmarks.view``.

Both serve the same synthetic tables and get the same requests, alternating round by round. Each is
a process of its own, measured from outside. ``--scale 0.01`` makes the tables small, ``--no-java``
needs no Java. ``benchmarks/README.md`` describes the figures and has results.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from benchmarks.command import Bench, Part, all_partitions, load_all, opened, run
from benchmarks.results.figures import Figure, Target
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.servers.server import Server, StrandlineServer, target

TOUCHED = 10
"""Partitions that a commit touches, and file groups in each of them, at most."""

OF_GROUP = "latest_base_file"


BySide = dict[bool, list[float]]
"""Values of our side (true) and of Java's (false)."""


def memory(bench: Bench) -> Iterator[Figure]:
    """Measure the memory of a table's loaded files."""
    shape = Shape(bench.many(1000), 1000)
    big = bench.table("memory", shape)
    ours: list[float] = []
    java: list[float] = []
    java_resident: list[float] = []
    for _ in range(bench.rounds):
        with bench.start_ours() as server:
            opened(server, big)
            before = server.resident_bytes()
            load_all(server, big)
            ours.append((server.resident_bytes() - before) / shape.files)
        with ExitStack() as stack:
            peer = bench.start_java(stack)
            if peer is not None:
                opened(peer, big)
                before, heap = peer.resident_bytes(), peer.heap_bytes()
                load_all(peer, big)
                java_resident.append((peer.resident_bytes() - before) / shape.files)
                java.append((peer.heap_bytes() - heap) / shape.files)
    what = f"memory, {shape}: bytes a file"
    yield Figure(f"{what} (resident growth; Java: live heap)", ours, java, Target(at_most=100))
    yield Figure(f"{what} (resident growth of both)", ours, java_resident)


def load(bench: Bench) -> Iterator[Figure]:
    """Measure the load of a whole table by processes that have just started."""
    shape = Shape(bench.many(1000), 100, 3)
    big = bench.table("load", shape)
    what = f"load of {shape} ({shape.files:,} files)"
    for way in ("from commit metadata", "by listing"):
        if way == "by listing":
            big.begin_write()
        # One list call finds the partitions; those of the timeline aren't counted.
        most = 1 if way == "from commit metadata" else shape.partitions + 1
        cpu, lists, grown = loads(bench, big)
        yield Figure(f"{what} {way}: CPU s", cpu[True], cpu[False], Target(times=3))
        at_most = Target(at_most=most)
        yield Figure(f"{what} {way}: list calls", lists[True], lists[False], at_most)
        yield Figure(f"{what} {way}: resident growth, bytes a file", grown[True], grown[False])


def loads(bench: Bench, big: BigTable) -> tuple[BySide, BySide, BySide]:
    """Load a table in each round; return CPU seconds, list calls, and bytes per file."""
    cpu: BySide = {True: [], False: []}
    lists: BySide = {True: [], False: []}
    grown: BySide = {True: [], False: []}
    for _ in range(bench.rounds):
        with ExitStack() as stack:
            ours, java = stack.enter_context(bench.start_ours()), bench.start_java(stack)
            for server in filter(None, (ours, java)):
                opened(server, big)
                before, resident = partition_lists(server), server.resident_bytes()
                cpu[server is ours].append(load_all(server, big))
                lists[server is ours].append(partition_lists(server) - before)
                added = server.resident_bytes() - resident
                grown[server is ours].append(added / big.shape.files)
    return cpu, lists, grown


def partition_lists(server: Server) -> int:
    """Return the number of list calls so far that look for files or partitions."""
    if isinstance(server, StrandlineServer):
        return server.calls("lookup")["list"]
    return server.calls()["list"]


def commits(bench: Bench) -> Iterator[Figure]:
    """Measure the answers after a commit to a few partitions of a loaded table."""
    shape = Shape(bench.many(1000), 100, 3)
    big = bench.table("commits", shape)
    with ExitStack() as stack:
        ours = stack.enter_context(bench.start_ours())
        default = bench.start_java(stack)
        incremental = bench.start_java(stack, incremental=True)
        servers: list[Server] = [s for s in (ours, default, incremental) if s is not None]
        for server in servers:
            opened(server, big)
            load_all(server, big)
            server.cost(all_partitions(big))
        first: dict[Server, list[float]] = {server: [] for server in servers}
        everything: dict[Server, list[float]] = {server: [] for server in servers}
        wall: dict[Server, list[float]] = {server: [] for server in servers}
        for touched in touched_partitions(bench, big):
            big.update(touched, TOUCHED)
            asked = first_look_up(big, touched[0])
            for server in servers:
                one = server.cost([asked])
                all_ = server.cost(all_partitions(big))
                first[server].append(one.cpu_s * 1e3)
                everything[server].append(one.cpu_s + all_.cpu_s)
                wall[server].append(one.wall_s + all_.wall_s)
    count = min(TOUCHED, shape.partitions)
    what = f"after a commit to {count} of {shape.partitions:,} partitions"
    every = f"{what}: all of them answered once"

    def of(values: Mapping[Server, list[float]], server: Server | None) -> Sequence[float]:
        return () if server is None else values[server]

    yield Figure(f"{every}, CPU s", everything[ours], of(everything, default), Target(times=20))
    yield Figure(f"{every}, s with the client", wall[ours], of(wall, default))
    yield Figure(f"{every}, CPU s, Java incremental", everything[ours], of(everything, incremental))
    answer = f"{what}: first answer, CPU ms"
    yield Figure(
        f"{answer}, Java incremental", first[ours], of(first, incremental), Target(times=3)
    )
    yield Figure(f"{answer}, Java's default", first[ours], of(first, default))


def growth(bench: Bench) -> Iterator[Figure]:
    """Measure how the first answer after a commit depends on the number of partitions loaded."""
    shapes = (Shape(bench.many(1000), TOUCHED), Shape(bench.many(100_000), 1))
    with ExitStack() as stack:
        ours = stack.enter_context(bench.start_ours())
        java = bench.start_java(stack, incremental=True)
        servers: list[Server] = [s for s in (ours, java) if s is not None]
        tables = [bench.table(f"growth-{shape.partitions}", shape) for shape in shapes]
        for server in servers:
            for big in tables:
                opened(server, big)
                load_all(server, big)
        spent: dict[Server, list[list[float]]] = {server: [[], []] for server in servers}
        rounds = zip(*(touched_partitions(bench, big, times=5) for big in tables), strict=True)
        for round_ in rounds:
            for at, (big, touched) in enumerate(zip(tables, round_, strict=True)):
                big.update(touched, 1)
                for server in servers:
                    cost = server.cost([first_look_up(big, touched[0])])
                    spent[server][at].append(cost.cpu_s * 1e3)
    step = (shapes[1].partitions - shapes[0].partitions) / 100_000

    def grown(server: Server | None) -> list[float]:
        pairs = () if server is None else zip(*spent[server], strict=True)
        return [(large - small) / step for small, large in pairs]

    what = "growth of the first answer by 100,000 loaded partitions: CPU ms"
    yield Figure(f"{what}, Java incremental", grown(ours), grown(java), Target(at_most=2))


def one_file(bench: Bench) -> Iterator[Figure]:
    """Measure a sync and a look-up after a file was added to a huge partition."""
    shape = Shape(1, bench.many(50_000))
    big = bench.table("huge", shape)
    partition = big.partitions[0]
    ours: list[float] = []
    theirs: list[float] = []
    with ExitStack() as stack:
        server = stack.enter_context(bench.start_ours())
        java = bench.start_java(stack, incremental=True)
        for peer in filter(None, (server, java)):
            opened(peer, big)
            peer.cost([first_look_up(big, partition)])
        for _ in range(3 * bench.rounds):
            added = big.insert(partition)
            asked = target(OF_GROUP, str(big.path), big.state(), partition=partition, fileid=added)
            ours.append(server.cost([asked]).cpu_s * 1e3)
            if java is not None:
                theirs.append(java.cost([asked]).cpu_s * 1e3)
    what = f"one file added to {shape.groups:,} of one partition: sync and look-up, CPU ms"
    yield Figure(f"{what}, Java incremental", ours, theirs, Target(at_most=5))


def hot(bench: Bench) -> Iterator[Figure]:
    """Measure hot answers: repeated requests on one connection, of an unchanged table."""
    shape = Shape(bench.many(100), 100)
    big = bench.table("hot", shape)
    state, path = big.state(), str(big.path)
    look_ups = [
        target(OF_GROUP, path, state, partition=partition, fileid=file_id)
        for partition in big.partitions[:10]
        for file_id in big.file_ids(partition)
    ]
    whole = all_partitions(big)[:20]
    found: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    with ExitStack() as stack:
        ours, java = stack.enter_context(bench.start_ours()), bench.start_java(stack)
        peers = [peer for peer in (ours, java) if peer is not None]
        for peer in peers:
            peer.cost(look_ups * 20 + whole * 200)  # until the JVM has compiled it
        for _ in range(bench.rounds):
            for what, targets in (("one file", look_ups * 2), ("all files", whole * 50)):
                for peer in peers:
                    spent = peer.cost(targets).cpu_s / len(targets) * 1e6
                    found[peer is ours].setdefault(what, []).append(spent)
    for what, values in found[True].items():
        asked = f"hot: {what} of a {shape.groups}-file partition, gzip accepted: CPU us"
        yield Figure(asked, values, found[False].get(what, ()))


def first_look_up(big: BigTable, partition: str) -> str:
    """Return the request of a tagging look-up: the newest base file of one group."""
    file_id = big.file_ids(partition)[0]
    return target(OF_GROUP, str(big.path), big.state(), partition=partition, fileid=file_id)


def touched_partitions(bench: Bench, big: BigTable, times: int = 1) -> Iterator[list[str]]:
    """Yield, ``times`` times for each round, the partitions that a commit touches."""
    choice = random.Random(big.path.name)
    for _ in range(bench.rounds * times):
        yield sorted(choice.sample(big.partitions, min(TOUCHED, len(big.partitions))))


PARTS: Mapping[str, Part] = {
    "memory": memory,
    "load": load,
    "commits": commits,
    "growth": growth,
    "one-file": one_file,
    "hot": hot,
}


if __name__ == "__main__":
    run("benchmarks.view", __doc__, PARTS)

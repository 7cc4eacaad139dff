"""What a service costs that shows itself: ``python -m benchmarks.observe --no-java``.

``metrics`` is an answer of ``/metrics`` about 100 tables; ``picture`` are summaries of the
partitions of a table of 1,000,000 files, the first and after each commit; ``watchers`` are 1,000
requests that wait for a change, how long after ``refresh/`` they are told of a commit, and look-ups
beside them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from statistics import quantiles
from typing import Final
from urllib.parse import urlencode

from benchmarks.command import Bench, Part, load_all, opened, run
from benchmarks.results.figures import Figure, Target
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.servers.server import StrandlineServer, target
from benchmarks.view import TOUCHED, first_look_up, touched_partitions
from fsview.wire.routes import BY_NAME

LOOK_UPS: Final = 2_000
"""Look-ups of which a p99 is taken."""
NEVER: Final = ("--watch", "80000")
"""So that only a commit that tells the service wakes the watchers."""


def asked(name: str, **params: str) -> str:
    """Return the request target of an operation of ``/v2``."""
    return f"/v2/{name}?{urlencode(params)}"


def metrics(bench: Bench) -> Iterator[Figure]:
    """Measure a scrape of a service with many tables, each of which was asked."""
    tables = [bench.table(f"t{n:03d}", Shape(2, 2)) for n in range(bench.many(100))]
    wall: list[float] = []
    cpu: list[float] = []
    size: list[float] = []
    with bench.start_ours() as server:
        for big in tables:
            opened(server, big)
            server.cost([first_look_up(big, big.partitions[0])] * 2)
        for _ in range(bench.rounds + 1):
            cost = server.cost(["/metrics"])
            wall.append(cost.wall_s * 1e3)
            cpu.append(cost.cpu_s * 1e3)
            size.append(len(server.ask("/metrics")) / 1e6)
    what = f"/metrics of {len(tables)} tables"
    # Without the first, which makes a registry.
    yield Figure(f"{what}: ms with the client", wall[1:], target=Target(at_most=50))
    yield Figure(f"{what}: CPU ms", cpu[1:])
    yield Figure(f"{what}: MB as sent", size[1:], target=Target(at_most=1))


def picture(bench: Bench) -> Iterator[Figure]:
    """Measure the summary of a large table's partitions: first, and after commits."""
    shape = Shape(bench.many(1000), 1000)
    big = bench.table("picture", shape)
    summary = asked("partitions", table=str(big.path), summary="true")
    first: list[float] = []
    first_cpu: list[float] = []
    after: list[float] = []
    size: list[float] = []
    for _ in range(bench.rounds):
        with bench.start_ours(*NEVER) as server:
            opened(server, big)
            load_all(server, big)
            cost = server.cost([summary])
            first.append(cost.wall_s)
            first_cpu.append(cost.cpu_s)
            touched = next(touched_partitions(bench, big))
            big.update(touched, TOUCHED)
            sync = _refresh(big)
            spent = server.cost([sync], "POST").cpu_s + server.cost([summary]).cpu_s
            after.append(spent * 1e3)
            size.append(len(server.ask(summary)) / 1e3)
    what = f"summary of {shape}"
    yield Figure(f"{what}: first, s with the client", first, target=Target(at_most=2))
    yield Figure(f"{what}: first, CPU s", first_cpu)
    commit = f"{what}: a commit to {min(TOUCHED, shape.partitions)} partitions, CPU ms"
    yield Figure(f"{commit} with the sync", after, target=Target(at_most=100))
    yield Figure(f"{what}: kB as sent", size, target=Target(at_most=256))


def watchers(bench: Bench) -> Iterator[Figure]:
    """Measure how fast watchers are told of a commit, and look-ups beside them."""
    many = bench.many(1000)
    big = bench.table("watched", Shape(10, 10))
    told: list[float] = []
    beside: list[float] = []
    alone: list[float] = []
    ratios: list[float] = []
    with bench.start_ours(*NEVER) as server:
        opened(server, big)
        load_all(server, big)
        for _ in range(bench.rounds):
            look_up = first_look_up(big, big.partitions[0])
            _p99_us(server, look_up)
            alone.append(_p99_us(server, look_up))
            found = asyncio.run(_told(server, big, many, look_up))
            told.append(found["told_s"])
            beside.append(found["beside_us"])
            ratios.append(beside[-1] / alone[-1])
    what = f"{many:,} watchers"
    yield Figure(f"{what}: told of a commit, p99 s", told, target=Target(at_most=1.5))
    yield Figure("a look-up alone, p99 us", alone)
    yield Figure(f"{what}: a look-up beside them, p99 us", beside)
    yield Figure(f"{what}: the same, times alone", ratios, target=Target(at_most=1.1))


def _refresh(big: BigTable) -> str:
    return target("sync", str(big.path), big.state())


def _p99_us(server: StrandlineServer, look_up: str) -> float:
    taken = []
    for _ in range(LOOK_UPS):
        began = time.perf_counter()
        server.ask(look_up)
        taken.append((time.perf_counter() - began) * 1e6)
    return quantiles(taken, n=100)[98]


async def _told(
    server: StrandlineServer, big: BigTable, many: int, look_up: str
) -> dict[str, float]:
    """Have many watchers told of a commit; return the p99 of that, and of look-ups before it."""
    state = json.loads((await _answer(server.port, asked("watch", table=str(big.path))))[1])
    where = asked("watch", table=str(big.path), after=state["state"], timeout="300")
    waiting = [asyncio.create_task(_answer(server.port, where)) for _ in range(many)]
    await _until_open(server, many)
    beside_us = await asyncio.to_thread(_p99_us, server, look_up)
    big.update(big.partitions[:1], 1)
    began = time.perf_counter()
    await asyncio.to_thread(server.ask, _refresh(big), BY_NAME["sync"].method)
    answers = await asyncio.gather(*waiting)
    late = [at - began for at, _ in answers]
    assert all(json.loads(body)["changed"] for _, body in answers)
    return {"told_s": quantiles([*late, late[-1]], n=100)[98], "beside_us": beside_us}


async def _until_open(server: StrandlineServer, many: int) -> None:
    """Wait until the service has the connections of all watchers, and they have asked."""
    while (await asyncio.to_thread(server.told))["connections"]["open"] < many:
        await asyncio.sleep(0.1)
    await asyncio.to_thread(server.settle)


async def _answer(port: int, where: str) -> tuple[float, bytes]:
    """Ask on a connection of its own; return when the answer came, and its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {where} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    await writer.drain()
    answer = await reader.read()
    at = time.perf_counter()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head[:20]:
        raise AssertionError(head)
    return at, body


PARTS: Mapping[str, Part] = {"metrics": metrics, "picture": picture, "watchers": watchers}


if __name__ == "__main__":
    run("benchmarks.observe", __doc__, PARTS)

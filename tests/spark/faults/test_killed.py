"""The driver's service killed at each stage of a write, twenty times in a row, and for good."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
from collections import Counter
from functools import partial

import pytest

from strandline.server.process.supervisor import RESTARTS
from strandline.write.engine.local import LocalEngine
from strandline.write.tasks.key_task import KeyProfileTask
from strandline.write.tasks.write_task import WriteTask
from tests.spark.faults import job
from tests.spark.faults.engines import SEARCH, First, Interrupted
from timeline.errors import StrandlineError

pytestmark = [pytest.mark.spark, pytest.mark.faults]


def kill(client) -> int:
    """Kill the process of a client's service, and return its id."""
    while True:
        try:
            pid = client.service.status()["pid"]
        except StrandlineError:
            continue  # the driver gave up replacing it; the client starts another service
        os.kill(pid, signal.SIGKILL)
        return pid


def kill_for_good(service) -> int:
    """Kill each process of a service until the driver gives up; return their number."""
    killed = set()
    while service.is_running:
        try:
            pid = service.status()["pid"]
        except StrandlineError:
            continue  # the end of the last one hasn't been noticed yet
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
    return len(killed)


STAGES = {
    # The kind of task; whether the first of them does it, or the driver before their stage.
    "before the look-up": (KeyProfileTask, False),
    "during the search": (SEARCH, True),
    "between search and writes": (WriteTask, False),
    "during the writes": (WriteTask, True),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_write_goes_on_with_the_replacement(several_tasks, base, tmp_path, expected, stage):
    kind, by_task = STAGES[stage]
    with job.client(LocalEngine(), base) as other:
        pid = other.service.status()["pid"]
        if by_task:
            first = partial(First, pid=pid, flag=str(tmp_path / "killed"))
            engine = Interrupted(several_tasks, kind, wrap=first)
        else:
            engine = Interrupted(several_tasks, kind, lambda: kill(other))
        with job.client(engine, base) as c:
            assert c.service is other.service
            result = c.upsert(job.frame(several_tasks, job.changes()))
        status = other.service.status()
        left = job.left_in(base)
        with job.client(several_tasks, base) as c:
            assert c.service is other.service
            after = c.upsert(job.frame(several_tasks, job.changes()))
    assert left == expected
    assert status["restarts"] == 1
    assert status["pid"] != pid
    for each in (result, after):
        assert each.fallbacks == ()
        assert set(job.sources(each)) == {"service"}


def test_a_write_goes_on_without_a_service_that_is_given_up(several_tasks, base, expected):
    """The driver closes the socket, so its view is refused; the next write has another."""
    killed = []
    with job.client(LocalEngine(), base) as other:
        service = other.service
        engine = Interrupted(
            several_tasks, KeyProfileTask, lambda: killed.append(kill_for_good(service))
        )
        with job.client(engine, base) as c:
            assert c.service is service
            result = c.upsert(job.frame(several_tasks, job.changes()))
    left = job.left_in(base)
    with job.client(several_tasks, base) as c:
        assert c.service is not service
        after = c.upsert(job.frame(several_tasks, job.changes()))
    assert killed[0] > RESTARTS
    assert left == expected
    assert set(job.sources(result)) == {"local"}
    assert job.causes(result) == {"unreachable"}
    assert after.fallbacks == ()
    assert set(job.sources(after)) == {"service"}


WRITES = 20


def batch(number: int) -> list[tuple]:
    """Rows for one partition: two updates, in different file groups, and an insert."""
    partition = job.PARTITIONS[number % len(job.PARTITIONS)]
    return [
        (f"{partition}-{row}", partition, 2 + number, f"write {number}")
        for row in ("a0", "b1", f"new{number}")
    ]


def test_twenty_kills_in_a_row(spark, base, prepared, tmp_path, report):
    """One for each write, at each stage in turn: services are replaced, given up, and started."""
    well = tmp_path / "well"
    shutil.copytree(prepared, well)
    with job.client(LocalEngine(), well) as c:
        for number in range(WRITES):
            assert c.upsert(job.table(batch(number))).fallbacks == ()
    pids: list[int] = []
    sources, causes = Counter(), Counter()
    with job.client(LocalEngine(), base) as other:

        def strike() -> None:
            pids.append(kill(other))

        engines = {kind: Interrupted(spark, kind, strike) for kind in (KeyProfileTask, WriteTask)}
        with contextlib.ExitStack() as stack:
            clients = {
                kind: stack.enter_context(job.client(engine, base))
                for kind, engine in engines.items()
            }
            for number, kind in zip(range(WRITES), itertools.cycle(clients), strict=False):
                result = clients[kind].upsert(job.frame(spark, batch(number)))
                assert (result.rows_updated, result.rows_inserted) == (2, 1)
                sources.update(job.sources(result))
                causes.update(each.cause for each in result.fallbacks)
    assert len(set(pids)) == WRITES
    assert set(causes) <= {"unreachable"}
    assert job.left_in(base) == job.left_in(well)
    report(f"{WRITES} kills in {WRITES} writes: look-ups {dict(sources)}, fallbacks {dict(causes)}")

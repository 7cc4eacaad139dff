"""Slow answers, garbage, half bodies and errors between tasks that look up and the service.

The driver talks to the service itself, its tasks to a server in front of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from executor_proxy.failover import DEFAULT_PATIENCE, Patience
from strandline.write.engine.local import LocalEngine
from tests.executor_proxy.scripted_server import Reply
from tests.spark.faults import job
from tests.spark.faults.front import DRIP, GARBAGE, HALF, Front
from tests.spark.faults.lookup_task import look_up_at, names_in

pytestmark = [pytest.mark.spark, pytest.mark.faults]

CORES = 2
WORKERS = 2 * CORES
"""Python processes of the session at most: two cores, each with two functions in one stage."""


def slow(front, _number, request):
    front.delay(3)
    return front.forward(request)


@dataclass(frozen=True)
class Fault:
    """What a look-up is answered, and the cause under which the fallback is counted.

    Attributes:
        asks: Questions of one worker at most, if it doesn't ask again after the first fallback;
            ``None``: each task asks once.
        patience: That of the tasks.
    """

    answer: object
    cause: str
    asks: int | None = None
    patience: Patience = DEFAULT_PATIENCE


FAULTS = {
    "3 s an answer": Fault(slow, "late", asks=1, patience=Patience(first_s=1)),
    "headers that drip": Fault(DRIP, "late", asks=1, patience=Patience(first_s=1)),
    # Two more rounds with jitter.
    "half a body": Fault(HALF, "unreachable", asks=3),
    "garbage": Fault(GARBAGE, "wrong-answer"),
    "garbage in place of JSON": Fault(Reply(b'[{"path": '), "wrong-answer"),
    "400 of a server without codes": Fault(Reply(b"behind", 400), "behind"),
    "401": Fault(Reply(b"who is this", 401), "refused"),
    "413": Fault(Reply(b"too long", 413), "refused"),
    "500": Fault(Reply(b"null", 500), "refused"),
    "503": Fault(Reply(b"away", 503), "refused"),
}


PARTITIONS = job.PARTITIONS


def look_up(spark, base, answer, patience):
    """Return what tasks find and how often they asked."""
    with job.client(LocalEngine(), base) as other:
        script = answer if callable(answer) else lambda *_: answer
        with Front(other.service, script) as front:
            return look_up_at(spark, other, PARTITIONS, (front.url,), patience), front.asked


def sources(found):
    return {each.source for each in found.report.lookups}


def causes(found):
    return {each.cause for each in found.report.fallbacks}


@pytest.mark.parametrize("name", FAULTS)
def test_tasks_list_storage(spark, base, name):
    fault = FAULTS[name]
    found, asked = look_up(spark, base, fault.answer, fault.patience)
    assert found.names == names_in(base, PARTITIONS)
    assert causes(found) == {fault.cause}
    assert sources(found) == {"local"}
    # More than workers, so that one of them has a second task.
    tasks = len(found.report.fallbacks)
    assert tasks > WORKERS
    if fault.asks is None:
        assert asked == tasks
    else:
        assert 1 <= asked <= WORKERS * fault.asks


def test_tasks_list_storage_at_the_deadline_of_a_service_that_loads_forever(spark, base):
    busy = Reply(b"loading", 503, {"Retry-After": "0"})
    found, asked = look_up(spark, base, busy, Patience(deadline_s=1))
    assert found.names == names_in(base, PARTITIONS)
    assert causes(found) == {"late"}
    assert sources(found) == {"local"}
    assert asked > len(found.report.fallbacks)


def test_tasks_wait_for_a_service_that_is_loading(spark, base):
    def loading(front, number, request):
        if number < 3:
            return Reply(b"loading", 503, {"Retry-After": "1"})
        return front.forward(request)

    found, asked = look_up(spark, base, loading, Patience(first_s=120))
    assert found.names == names_in(base, PARTITIONS)
    assert causes(found) == set()
    assert sources(found) == {"service"}
    assert asked == len(found.report.lookups) + 3


def test_tasks_wait_for_slow_answers_within_their_settings(spark, base):
    """The first answer that a worker gets takes longer than it waits by default."""

    def slow_at_first(front, number, request):
        front.delay(4 if number < CORES else 0)
        return front.forward(request)

    found, asked = look_up(spark, base, slow_at_first, Patience(first_s=120))
    assert found.names == names_in(base, PARTITIONS)
    assert causes(found) == set()
    assert sources(found) == {"service"}
    assert asked == len(found.report.lookups)

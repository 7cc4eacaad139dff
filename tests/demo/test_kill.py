"""Killing the service under a write: real services, the local engine."""

import pytest

from demo.feed import arrow, batches
from demo.job import ServiceCalls, options
from demo.kill import LookupHook, ServiceKiller, kill_for_good
from demo.record import ServiceKill
from strandline import WriteClient
from strandline.write.engine.local import LocalEngine


class HookedLocal(LookupHook, LocalEngine):
    """The local engine, with a hook."""


@pytest.fixture
def days(rows):
    return list(batches(rows, 4))


def test_a_service_is_killed_in_the_batches_of_the_plan(tmp_path, days):
    killer, engine = ServiceKiller(ServiceKill(2, 3, 3)), HookedLocal()
    engine.before_lookups = killer.strike
    told, urls = [], []
    with WriteClient(engine, str(tmp_path / "table"), options(9, service=True)) as client:
        for day in days:
            killer.begin(day.number)
            killer.service = client.service
            urls.append(client.service.url)
            result = client.upsert(arrow(day.upserts))
            sources = {lookup.source for lookup in result.lookups}
            causes = {fallback.cause for fallback in result.fallbacks}
            told.append((killer.kills, sources, causes))
    assert told[0] == told[3] == (0, {"service"}, set())
    assert told[1] == (1, {"service"}, set())
    # The replacement of batch 2 may count among the restarts that the driver allows.
    assert told[2] in [(kills, {"local"}, {"unreachable"}) for kills in (3, 4)]
    first, second, third, last = urls
    assert first == second == third != last


def test_without_a_service_nothing_is_killed():
    killer = ServiceKiller(ServiceKill(1, 2, 2))
    killer.begin(1)
    killer.strike()
    assert killer.kills == 0


def test_the_calls_of_a_replacement_count_from_zero(tmp_path, days):
    calls, killer, engine = ServiceCalls(), ServiceKiller(ServiceKill(2, 9, 9)), HookedLocal()
    engine.before_lookups = killer.strike
    with WriteClient(engine, str(tmp_path / "table"), options(9, service=True)) as client:
        found = []
        for day in days[:2]:
            killer.begin(day.number)
            killer.service = client.service
            client.upsert(arrow(day.upserts))
            found.append(calls.since_last(client.service))
        # The replacement lists the timeline anew: its counters are below those of the first.
        assert all(n > 0 for of_batch in found for n in of_batch.values())
        assert found[1]["list", "timeline"] == 1
        service = client.service
        assert kill_for_good(service) > 1
        assert not service.is_running
        assert calls.since_last(service) == {}
        assert kill_for_good(service) == 0
    assert calls.since_last(None) == {}

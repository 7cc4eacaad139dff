"""With the service, tasks list nothing; without it, or when it dies, the rows are the same."""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter

import pytest

from strandline.write.engine import LocalEngine
from tests.kit import reader
from tests.strandline.write.tables import client, row, table

pytestmark = pytest.mark.property

ROUNDS = [
    table(row("a"), row("b", "us")),
    table(row("a", ts=2), row("c", "asia")),
    table(row("b", "us", ts=3), row("d")),
]
ON = {"embed__timeline__server": True, "clean__automatic": True}


def service_process(c) -> int:
    """The process of a client's service."""
    return c.service._runner._process.pid


class Killing(LocalEngine):
    """Kills the service's process when the ``at``-th transform begins."""

    def __init__(self, at):
        super().__init__()
        self.at, self.client = at, None

    def transform(self, data, task, schema, *, by=None):
        self.at -= 1
        if self.at == 0:
            process = self.client.service._runner._process
            process.kill()
            process.wait()
        return super().transform(data, task, schema, by=by)


def listings(result):
    return Counter(
        {cause: n for (kind, cause), n in result.storage_calls.items() if kind == "list"}
    )


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """Rows after each round, and each round's result, without the service."""
    base = tmp_path_factory.mktemp("without") / "t"
    found = []
    with client(base, clean__automatic=True) as c:
        assert c.service is None
        for rows in ROUNDS:
            result = c.upsert(rows)
            found.append((reader.rows(base), result))
    return found


def test_with_the_service_tasks_list_nothing(tmp_path, without):
    with client(tmp_path, **ON) as c:
        assert c.service.url.startswith("http://127.0.0.1:")
        for rows, (expected, alone) in zip(ROUNDS, without, strict=True):
            result = c.upsert(rows)
            assert reader.rows(tmp_path) == expected
            assert result.fallbacks == ()
            assert len(result.lookups) == len(alone.lookups) > 0
            assert "lookup" not in listings(result)
            assert "sync" not in listings(result)
            assert listings(result).total() < listings(alone).total()
        pid = service_process(c)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_clients_of_one_driver_share_a_service(tmp_path):
    with client(tmp_path / "1", **ON) as one, client(tmp_path / "2", **ON) as two:
        assert one.service is two.service
        one.upsert(ROUNDS[0])
        two.upsert(ROUNDS[0])
        one.close()
        assert two.upsert(ROUNDS[1]).fallbacks == ()
    own = {**ON, "embed__timeline__server__reuse__enabled": False}
    with client(tmp_path / "1", **own) as one, client(tmp_path / "2", **own) as two:
        assert one.service is not two.service


@pytest.mark.parametrize("at", [1, 3, 4])
def test_a_service_that_is_killed_costs_one_warning(tmp_path, without, caplog, at):
    """At the keys, before the look-ups, after them: the rows are the same each time."""
    engine = Killing(0)
    with client(tmp_path, engine=engine, **ON) as c:
        c.upsert(ROUNDS[0])
        engine.at, engine.client = at, c
        with caplog.at_level(logging.WARNING):
            result = c.upsert(ROUNDS[1])
        assert reader.rows(tmp_path) == without[1][0]
        assert result.fallbacks
        assert result.fallbacks[0].cause == "unreachable"
        assert result.clean is None or result.clean.files_deleted == 0
        (record,) = (each for each in caplog.records if each.name == "strandline.write.result")
        assert "listed storage" in record.getMessage()
        assert result.fallbacks[0].reason in record.getMessage()
        # The next write starts another.
        after = c.upsert(ROUNDS[2])
        assert after.fallbacks == ()
    assert reader.rows(tmp_path) == without[2][0]


def test_a_service_that_can_not_start_is_done_without(tmp_path, without, caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = {**ON, "embed__timeline__server__port": taken.getsockname()[1]}
        with client(tmp_path, **options) as c, caplog.at_level(logging.WARNING):
            result = c.upsert(ROUNDS[0])
            assert c.service is None
    assert reader.rows(tmp_path) == without[0][0]
    assert result.fallbacks == ()
    assert "can't be started" in caplog.records[0].getMessage()

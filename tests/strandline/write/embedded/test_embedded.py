"""With the service, tasks list nothing; without it, or when it dies, the rows are the same."""

from __future__ import annotations

import logging
import os
from collections import Counter

import pytest

from strandline import TimelineService
from strandline.server.process.shared_service import SharedService
from strandline.server.process.supervisor import RESTARTS
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader
from tests.strandline.server.process.services import kill as kill_once
from tests.strandline.server.process.services import status_of
from tests.strandline.write.tables import OPTIONS, client, row, table
from timeline.errors import ConfigError, ServiceUnreachableError

pytestmark = pytest.mark.property

ROUNDS = [
    table(row("a"), row("b", "us")),
    table(row("a", ts=2), row("c", "asia")),
    table(row("b", "us", ts=3), row("d")),
]
ON = {"embed__timeline__server": True, "clean__automatic": True}


def kill_for_good(service: TimelineService) -> None:
    """Kill the service's processes until it gives up."""
    for _ in range(RESTARTS + 1):
        kill_once(service)
    with pytest.raises(ServiceUnreachableError):
        service.add_root("/another")


class Killing(LocalEngine):
    """Kills the service when the ``at``-th transform begins."""

    def __init__(self, kill=kill_once):
        super().__init__()
        self.at, self.kill, self.client = 0, kill, None

    def transform(self, data, task, schema):
        self.at -= 1
        if self.at == 0:
            self.kill(self.client.service)
        return super().transform(data, task, schema)


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
            # The driver asks for all partitions at once; without the service it lists each.
            assert [each.source for each in result.lookups] == ["service"]
            assert {each.source for each in alone.lookups} == {"local"}
            assert "lookup" not in listings(result)
            assert "sync" not in listings(result)
            assert listings(result).total() < listings(alone).total()
        pid = status_of(c.service)["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_tasks_trust_the_certificate_that_the_service_made(tmp_path, without):
    """Its replacement has the same one (#32)."""
    options = OPTIONS | {"hoodie.embed.timeline.server": "true", "strandline.service.tls": "auto"}
    with WriteClient(LocalEngine(), tmp_path, options) as c:
        for number, (rows, (expected, _)) in enumerate(zip(ROUNDS, without, strict=True)):
            assert c.service.url.startswith("https://127.0.0.1:")
            result = c.upsert(rows)
            assert reader.rows(tmp_path) == expected
            assert result.fallbacks == ()
            assert [each.source for each in result.lookups] == ["service"]
            if number == 0:
                kill_once(c.service)
        assert c.service.status()["restarts"] == 1


def test_a_write_that_looks_nothing_up_starts_no_service(tmp_path):
    with client(tmp_path, **{**ON, "clean__automatic": False}) as c:
        c.bulk_insert(ROUNDS[0])
        assert not c._context.embedded.is_begun
        c.insert(table(row("c")))
        assert c._context.embedded.is_begun
    assert len(reader.rows(tmp_path)) == 3


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
    early = {**ON, "write__concurrency__early__conflict__detection__enable": True}
    with client(tmp_path / "1", **ON) as one, client(tmp_path / "2", **early) as two:
        assert one.service is not two.service


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_write_whose_service_is_killed_finds_its_replacement(tmp_path, without, caplog, at):
    """At the keys, before the look-ups, after them."""
    engine = Killing()
    with client(tmp_path, engine=engine, **ON) as c:
        c.upsert(ROUNDS[0])
        url, token = c.service.url, c.service.token
        engine.at, engine.client = at, c
        with caplog.at_level(logging.WARNING):
            result = c.upsert(ROUNDS[1])
        assert result.fallbacks == ()
        assert "sync" not in listings(result)
        assert reader.rows(tmp_path) == without[1][0]
        assert (c.service.url, c.service.token) == (url, token)
        assert status_of(c.service)["restarts"] == 1
        # Returns once the replacement counts as serving: until then ``close`` would kill it.
        c.service.add_root(str(tmp_path / "other"))
        assert c.upsert(ROUNDS[2]).fallbacks == ()
    assert reader.rows(tmp_path) == without[2][0]
    # The replacement may answer before it is logged. ``close`` joins the thread that logs.
    (record,) = caplog.records
    assert f"replaces it on {url}" in record.getMessage()


def test_a_client_keeps_one_service_over_many_writes(tmp_path):
    """As a streaming driver, whose batches write one after the other."""
    with client(tmp_path, **ON) as c:
        c.upsert(ROUNDS[0])
        service, status = c.service, status_of(c.service)
        for rows in ROUNDS * 2:
            assert c.upsert(rows).fallbacks == ()
            assert c.service is service
        assert status_of(service)["pid"] == status["pid"]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_service_that_gives_up_costs_one_warning(tmp_path, without, caplog, at):
    """At the keys, before the look-ups, after them: the rows are the same each time."""
    engine = Killing(kill_for_good)
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


class OnAnotherHost(LocalEngine):
    """A driver whose executors reach it at another address than it binds."""

    driver_host = "driver.invalid"
    bind_address = "0.0.0.0"


def test_the_driver_uses_its_own_address(tmp_path, without):
    """The name that it gives to executors can't be resolved here."""
    with client(tmp_path, engine=OnAnotherHost(), **ON) as c:
        assert c.service
        result = c.upsert(ROUNDS[0])
        assert [each.source for each in result.lookups] == ["service"]
        assert result.fallbacks == ()
        assert status_of(c.service)["requests"]["sync"] > 0
    assert reader.rows(tmp_path) == without[0][0]


@pytest.mark.parametrize(
    ("host", "bound", "url", "local"),
    [
        ("", "", "driver.invalid", "127.0.0.1"),
        ("localhost", "", "localhost", "127.0.0.1"),
        ("", "127.0.0.2", "driver.invalid", "127.0.0.2"),
        ("::1", "::", "[::1]", "[::1]"),
        ("[::1]", "[::]", "[::1]", "[::1]"),
    ],
)
def test_settings_name_the_address_to_advertise_and_the_one_to_bind(
    tmp_path, host, bound, url, local
):
    options = {
        **OPTIONS,
        "hoodie.embed.timeline.server": "true",
        "strandline.embed.timeline.server.host": host,
        "strandline.embed.timeline.server.bind.address": bound,
    }
    with WriteClient(OnAnotherHost(), str(tmp_path), options) as c:
        port = c.service.url.rpartition(":")[2]
        assert c.service.url == f"http://{url}:{port}"
        assert c.service.local_url == f"http://{local}:{port}"
        assert status_of(c.service)["ready"]


NO_HOSTS = (
    "10.0.0.5:26754",
    "http://10.0.0.5",
    "driver host",
    "a..b",
    "x" * 64,
    "-a",
    "[1.2.3.4:5]",
)


@pytest.mark.parametrize("setting", ["host", "bind.address"])
@pytest.mark.parametrize("host", NO_HOSTS)
def test_a_malformed_host_refuses_the_client(tmp_path, setting, host):
    name = f"strandline.embed.timeline.server.{setting}"
    with pytest.raises(ConfigError) as caught:
        WriteClient(LocalEngine(), str(tmp_path), {**OPTIONS, name: host})
    assert str(caught.value).startswith(f"{name} is {host!r}; allowed: a host name, ")


class WithBadHost(LocalEngine):
    """A driver with a malformed ``spark.driver.host``."""

    driver_host = "driver host"
    bind_address = "127.0.0.1"


def test_a_malformed_host_of_the_driver_costs_one_warning(tmp_path, without, caplog):
    with client(tmp_path, engine=WithBadHost(), **ON) as c, caplog.at_level(logging.WARNING):
        assert c.service is None
        (record,) = caplog.records
        result = c.upsert(ROUNDS[0])
    assert "driver host can't be started, so tasks list storage: " in record.getMessage()
    assert "allowed: http://HOST:PORT" in record.getMessage()
    assert result.fallbacks == ()
    assert reader.rows(tmp_path) == without[0][0]


def test_a_start_that_fails_in_any_way_costs_one_warning(tmp_path, monkeypatch, caplog):
    def no_thread(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(SharedService, "acquire", no_thread)
    with client(tmp_path, **ON) as c, caplog.at_level(logging.WARNING):
        assert c.service is None
        (record,) = caplog.records
        assert c.upsert(ROUNDS[0]).fallbacks == ()
    assert "can't be started, so tasks list storage: can't start new thread" in record.getMessage()

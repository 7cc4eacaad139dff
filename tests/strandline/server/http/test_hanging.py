"""Requests that hold threads for long: in the status, and in the log once a minute a table."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from strandline.server.http.connection_registry import PERIOD_S, HangingRequests
from strandline.server.table_threads import NO_TABLE, TableThreads
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S


class Server:
    """What a server knows, and its requests that hang after 10 s."""

    def __init__(self) -> None:
        self.held: dict[str, float] = {}
        self.calls: dict[tuple[str, str], float] = {}
        self.clients: dict[str, list[str]] = {}
        self.looked_at: list[str] = []
        self.hanging = HangingRequests(
            lambda least: {t: s for t, s in self.held.items() if s >= least},
            self.calls_of,
            lambda: self.clients,
            10.0,
        )

    def calls_of(self, table: str) -> dict[tuple[str, str], float]:
        self.looked_at.append(table)
        return self.calls


@pytest.fixture
def server() -> Server:
    return Server()


def told(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    yield from caplog.messages
    caplog.clear()


def test_a_table_is_logged_once_a_minute_while_it_hangs(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.held, server.clients = {"/t": 9.0}, {"/t": ["10.0.0.8", "10.0.0.7", "10.0.0.7"]}
    server.hanging.log_due(0.0)
    assert [*told(caplog)] == []
    assert server.hanging.status() == []
    server.held = {"/t": 12.0, "/u": 11.0}
    server.calls = {("list", "sync"): 12.0, ("read", "load"): 0.1}
    server.hanging.log_due(1.0)
    slow = "a request has held a thread for {} s; calls to its storage: list for sync, 12 s;"
    assert [*told(caplog)] == [
        f"/t: {slow.format(12)} waited for by 10.0.0.7, 10.0.0.8",
        f"/u: {slow.format(11)} waited for by nobody",
    ]
    server.calls = {}
    server.hanging.log_due(PERIOD_S)
    assert [*told(caplog)] == []
    server.hanging.log_due(1.0 + PERIOD_S)
    assert [line.partition(": ")[0] for line in told(caplog)] == ["/t", "/u"]
    # One that goes on, and hangs again, is a new fault.
    server.held = {}
    server.hanging.log_due(2.0 + PERIOD_S)
    server.held = {"/t": 10.0}
    server.hanging.log_due(3.0 + PERIOD_S)
    (line,) = told(caplog)
    assert "calls to its storage: none that takes long" in line


def test_the_log_looks_only_at_calls_of_tables_that_are_due(server: Server) -> None:
    server.held = {"/t": 12.0}
    server.hanging.log_due(1.0)
    server.held["/u"] = 11.0
    server.hanging.log_due(2.0)
    assert server.looked_at == ["/t", "/u"]


def test_the_status_has_the_calls_that_take_long_and_some_clients(server: Server) -> None:
    server.held = {"/t": 10.5, "/u": 30.0}
    server.calls = {("read", "load"): 0.1, ("list", "sync"): 10.25}
    server.clients = {"/t": [f"10.0.0.{number}" for number in range(20)]}
    slow, fast = server.hanging.status()
    assert (slow["table"], slow["seconds"], slow["clients"]) == ("/u", 30.0, [])
    assert fast["calls"] == [{"kind": "list", "cause": "sync", "seconds": 10.25}]
    assert len(fast["clients"]) == 10


def test_a_call_that_began_after_its_request_is_named(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.held, server.calls = {"/t": 10.0}, {("list", "sync"): 9.99, ("read", "load"): 4.0}
    server.hanging.log_due(0.0)
    (line,) = told(caplog)
    assert "calls to its storage: list for sync, 10 s; waited" in line


def test_threads_know_the_oldest_task_of_each_table() -> None:
    clock = ManualClock(0)
    threads = TableThreads("t", 4, clock=clock)
    go = threading.Event()

    def hold(table: str) -> None:
        threads.submit(table, lambda: go.wait(PATIENCE_S))

    for table in ("/t", NO_TABLE, "/u"):
        hold(table)
        clock.advance(5_000)
    hold("/t")
    assert threads.held_for(10.0) == {"/t": 15.0}
    assert threads.held_for(0.0) == {"/t": 15.0, "/u": 5.0}
    go.set()
    threads.close(finish_s=PATIENCE_S)
    assert threads.held_for(0.0) == {}

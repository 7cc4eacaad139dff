"""At the limit of connections idle ones make room, others are refused, and probes are answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from strandline.server.http import limits as module
from strandline.server.http.connection_registry import (
    RESERVED,
    SEARCH_AGAIN_S,
    SPARED_S,
)
from strandline.server.http.limits import RESERVED_FILES, Limits
from strandline.server.http.server import ServiceServer
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.concurrency.stopped_loop import StoppedLoop
from tests.kit.servers.live_service import TOKEN, parts_of, serving
from tests.kit.servers.raw_http import RawConnection, request
from tests.strandline.server.http.limited_server import (
    GREETING,
    LOOK_UP,
    SLOW,
    TABLES,
    Blocked,
    Endless,
    connections,
    limited,
    registry_of,
)
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage


@contextmanager
def full(root: Path) -> Iterator[ServiceServer]:
    """Run a service of two connections, which both wait for their answers."""
    began, go = threading.Event(), threading.Event()

    def opener(path: str, _options: object) -> Storage:
        return LocalStorage(path) if path == str(root) else Blocked(path, began, go)

    slow = request(SLOW.replace("/golden", str(root)), token=TOKEN)
    with (
        serving(str(root), opener=opener, limits=Limits(connections=2)) as server,
        ExitStack() as stack,
    ):
        inside = [stack.enter_context(RawConnection(server.port)) for _ in range(2)]
        for raw in inside:
            raw.socket.sendall(slow)
        assert began.wait(PATIENCE_S)
        while server.parts.threads()["taken"] < 2:
            pass
        try:
            yield server
        finally:
            go.set()
        for raw in inside:
            answer = raw.answer()
            assert answer is not None
            assert answer.status == 200


FULL = b"the service has 2 connections, no more may come"


def test_connections_above_the_limit_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with full(tmp_path) as server, ExitStack() as stack:
        outside = [stack.enter_context(RawConnection(server.port)) for _ in range(3)]
        for raw in outside:
            raw.send_what_is_taken(request(LOOK_UP, token=TOKEN) * 3)
            (answer,) = raw.answers()
            assert (answer.status, answer.body) == (503, FULL)
        assert server.parts.connections()["refused"] == 3
    assert "connections were refused: there are 2 already" in caplog.text


def test_a_refused_connection_that_stays_is_counted_once(tmp_path: Path) -> None:
    with full(tmp_path) as server, ExitStack() as stack:
        for _ in range(2 * RESERVED):
            raw = stack.enter_context(RawConnection(server.port))
            assert raw.ask(request(LOOK_UP, token=TOKEN)).status == 503
        assert server.parts.connections()["refused"] == 2 * RESERVED


@pytest.mark.property
def test_a_silent_connection_above_the_limit_is_refused_in_the_end(tmp_path: Path) -> None:
    with full(tmp_path) as server:
        for said in (b"", GREETING[:10]):
            with RawConnection(server.port) as raw:
                raw.socket.sendall(said)
                (answer,) = raw.answers()
                assert (answer.status, answer.body) == (503, FULL)


def test_probes_are_answered_when_no_connection_is_left(tmp_path: Path) -> None:
    with full(tmp_path) as server:
        for target, body in (
            ("/healthz", b'"ok": true'),
            ("/readyz", b'"ok": true'),
            ("/", b"Hello Hudi"),
        ):
            with RawConnection(server.port) as raw:
                raw.socket.sendall(request(target) * 3)
                (answer,) = raw.answers()
                assert (answer.status, body in answer.body) == (200, True)
                assert answer.headers["connection"] == "close"


def test_probes_are_answered_among_waiting_connections(tmp_path: Path) -> None:
    with full(tmp_path) as server, ExitStack() as stack:
        silent = [stack.enter_context(RawConnection(server.port)) for _ in range(2 * RESERVED)]
        with RawConnection(server.port) as raw:
            raw.socket.sendall(request("/healthz"))
            assert [answer.status for answer in raw.answers()] == [200]
        assert silent[0].rest() == b""  # the first that came made room for those that followed


@pytest.mark.property
@pytest.mark.parametrize("sent", [0, 10, len(GREETING)])
def test_the_longest_idle_connections_make_room_for_others(
    sent: int, caplog: pytest.LogCaptureFixture
) -> None:
    with limited(connections=2) as server, ExitStack() as stack:
        idle = [stack.enter_context(RawConnection(server.port)) for _ in range(2)]
        idle[0].socket.sendall(GREETING[:sent])
        status = 503
        while status == 503:  # until the first has been idle for long
            assert idle[1].ask(request(LOOK_UP, token=TOKEN)).status == 200
            with RawConnection(server.port) as raw:
                status = raw.ask(request(LOOK_UP, token=TOKEN)).status
            pause()
        assert status == 200
        assert idle[0].rest() == b"" or sent == len(GREETING)
        assert idle[1].ask(request(LOOK_UP, token=TOKEN)).status == 200
        assert connections(server)["displaced"] >= 1
    assert "idle connections were closed to make room: no more than 2 may be open" in caplog.text


class Waiting:
    """A connection that has waited for its client since some time, or doesn't."""

    def __init__(self, idle_since: float | None) -> None:
        self.idle_since = idle_since
        self.aborted = False

    def check(self, now: float) -> None:
        raise AssertionError("it isn't looked at so soon")

    def shutdown(self) -> None:
        self.abort()

    def abort(self) -> None:
        self.aborted = True


def test_busy_and_recent_connections_are_not_displaced() -> None:
    async def play() -> None:
        parts = parts_of(TABLES.root)
        registry = registry_of(parts, Endless(), Limits(connections=200))
        now = registry.loop.time()
        busy = [Waiting(None) for _ in range(100)]
        recent = [Waiting(now - SPARED_S / 2) for _ in range(50)]
        idle = [Waiting(now - 10 - number) for number in range(50)]
        inside = [*busy, *recent, *idle]
        assert all(map(registry.add, inside))
        came = [Waiting(None) for _ in range(60)]
        welcome = [registry.add(connection) for connection in came]
        assert welcome == [True] * 50 + [False] * 10
        assert [connection for connection in inside if connection.aborted] == idle
        assert not any(connection.aborted for connection in came)
        for connection in (*inside, *came):
            registry.remove(connection)
        await registry.close(0)
        parts.close()

    asyncio.run(play())


def test_the_longest_idle_are_closed_first() -> None:
    async def play() -> None:
        parts = parts_of(TABLES.root)
        registry = registry_of(parts, Endless(), Limits(connections=200))
        now = registry.loop.time()
        idle = [Waiting(now - 10 - number) for number in range(200)]
        assert all(map(registry.add, idle))
        assert registry.add(Waiting(None))
        gone = [connection for connection in idle if connection.aborted]
        assert gone
        assert gone == idle[-len(gone) :]
        assert len(gone) < 10
        assert registry.status()["displaced"] == len(gone)

    asyncio.run(play())


class CountedWaiting(Waiting):
    """A waiting connection that counts the reads of ``idle_since``."""

    asked = 0

    @property
    def idle_since(self) -> float | None:
        self.asked += 1
        return self._idle_since

    @idle_since.setter
    def idle_since(self, since: float | None) -> None:
        self._idle_since = since


def test_a_fruitless_search_for_idle_connections_is_not_repeated() -> None:
    """It takes 10 ms of the loop among 6,000 connections, at each arrival."""
    loop = StoppedLoop()

    async def play() -> None:
        parts = parts_of(TABLES.root)
        registry = registry_of(parts, Endless(), Limits(connections=200))
        inside = [CountedWaiting(loop.at) for _ in range(200)]
        assert all(map(registry.add, inside))
        outside = [Waiting(None) for _ in range(100)]
        assert not any(map(registry.add, outside))
        assert sum(connection.asked for connection in inside) == 200
        loop.at += SPARED_S + SEARCH_AGAIN_S
        came = [Waiting(None) for _ in range(100)]
        assert all(map(registry.add, came)), "the search goes on as long as it finds any"
        for connection in (*inside, *outside, *came):
            registry.remove(connection)
        await registry.close(0)
        parts.close()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


def test_no_more_connections_are_taken_than_files_may_be_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Resource:
        RLIMIT_NOFILE, RLIM_INFINITY = 7, -1
        limits = (1024, 4096)

        def getrlimit(self, which: int) -> tuple[int, int]:
            assert which == self.RLIMIT_NOFILE
            return self.limits

        def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
            assert which == self.RLIMIT_NOFILE
            self.limits = limits

    resource = Resource()
    # Patched: the test's own process must keep its limit.
    monkeypatch.setattr(module, "_resource", lambda: resource)
    assert module.possible_connections(100) == 100
    assert module.possible_connections(2000) == 1024 - RESERVED_FILES
    assert module.possible_connections(2000, 500) == 1024 - RESERVED_FILES - 500
    module.check_open_files()
    module.allow_open_files(500, 500)
    assert resource.limits == (1000 + RESERVED_FILES, 4096)
    module.allow_open_files(100_000)
    assert resource.limits == (4096, 4096)
    module.allow_open_files(10)
    assert resource.limits == (4096, 4096)
    resource.limits = (-1, -1)
    module.allow_open_files(100_000)
    assert resource.limits == (-1, -1)
    assert module.possible_connections(100_000) == 100_000

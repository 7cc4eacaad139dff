"""Limits on what one client can make the server hold, without effect on others; on real sockets.

Limits are settings, so the tests make them tiny and wait for what must happen. For the server's
own counts they poll.
"""

from __future__ import annotations

import asyncio
import json
import logging
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from strandline import TimelineService
from strandline.service.http import limits as module
from strandline.service.http.connection import ServiceProtocol
from strandline.service.http.connection_registry import (
    RESERVED,
    SEARCH_AGAIN_S,
    SPARED_S,
    ConnectionRegistry,
)
from strandline.service.http.limits import RESERVED_FILES, Limits
from strandline.service.http.reply import Reply
from strandline.service.http.request import Application, Fields, Request
from strandline.service.http.server import ServiceServer
from strandline.service.http.server_options import ServerOptions
from strandline.service.lookup.ready_answer import HotCount
from strandline.service.process.options import Birth, PartsOptions
from strandline.service.process.parts import Parts
from strandline.service.table_threads import TableThreads
from strandline.settings.service import SERVICE_SETTINGS
from strandline.settings.setting import Settings
from tests.kit import golden
from tests.kit.live_service import TOKEN, GoldenTables, HttpClient, parts_of, serving
from tests.kit.patience import PATIENCE_S
from tests.kit.raw_http import Answer, RawConnection, request
from tests.kit.stopped_loop import StoppedLoop
from timeline.errors import StorageUnavailableError
from timeline.storage.base import FileInfo, Storage
from timeline.storage.local import LocalStorage

TABLES = GoldenTables()
GREETING = request("/", token=TOKEN)
LATEST = "/v1/hoodie/view/slices/partition/latest/"
LOOK_UP = f"{LATEST}?{urlencode(TABLES.known('cow_basic_v9', 7, partition='2024-01-01'))}"
SLOW = f"{LATEST}?basepath=/golden/t&partition=2024-01-01&refreshoff=true"
INSTANTS = "/v1/hoodie/view/timeline/instants/all?basepath=/golden/t&refreshoff=true"
SHORT_S = 0.05
"""A limit of time that a test waits for to be over."""


@contextmanager
def limited(*, keep_alive_s: float = 120, **limits: Any) -> Iterator[ServiceServer]:
    """Run a service with some limits."""
    with serving(
        TABLES.root, opener=TABLES, limits=Limits(**limits), keep_alive_s=keep_alive_s
    ) as server:
        yield server


@pytest.fixture(scope="module")
def usual() -> Iterator[ServiceServer]:
    with limited() as server:
        yield server


def registry_of(parts: Parts, app: Application, limits: Limits) -> ConnectionRegistry:
    """Return a registry of connections like a service's, but for another application."""
    threads = TableThreads("requests", 1)
    return ConnectionRegistry(app, threads, parts.hot, parts.admission, limits, 120, parts.refusals)


def connections(server: ServiceServer) -> dict[str, int]:
    """Return the server's counts of its connections."""
    with HttpClient(server.port) as client:
        counted: dict[str, int] = json.loads(client.ask("GET", "/v1/strandline/status", {})[1])[
            "connections"
        ]
    return counted


def until(server: ServiceServer, holds: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """Ask the server for its counts until something holds."""
    while True:
        counted = connections(server)
        if holds(counted):
            return counted


def refused(server: ServiceServer, data: bytes) -> Answer:
    """Send bytes, return the one answer to them, after which the connection ends."""
    with RawConnection(server.port) as raw:
        raw.send_what_is_taken(data)
        answer = raw.answer()
        assert answer is not None
        assert answer.headers["connection"] == "close"
        assert raw.rest() == b""
    return answer


def cut_off(raw: RawConnection) -> None:
    """Wait until a connection that nothing is read from is cut off."""
    poll = select.poll()
    poll.register(raw.socket, select.POLLERR | select.POLLHUP)
    assert poll.poll(20_000)


# Bytes.


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([f"X-{n}: y" for n in range(300)], "more than 100 headers"),
        (["X-A: " + "y" * (1 << 16)], "headers of more than 65536 bytes"),
        (["X" * (1 << 16) + ": y"], "headers of more than 65536 bytes"),
        ([f"X-{n}: " + "y" * 1000 for n in range(70)], "headers of more than 65536 bytes"),
    ],
)
def test_too_many_headers_are_refused(usual: ServiceServer, lines: list[str], said: str) -> None:
    answer = refused(usual, request("/", *lines, token=TOKEN))
    assert (answer.status, answer.body) == (431, said.encode())


@pytest.mark.parametrize(
    "endless", [b"X-A: " + b"y" * (1 << 20), b"y" * (1 << 20), b"X-A: y\r\n" * (1 << 18)]
)
def test_headers_without_an_end_are_refused_before_it(usual: ServiceServer, endless: bytes) -> None:
    answer = refused(usual, b"GET / HTTP/1.1\r\nHost: h\r\n" + endless)
    assert answer.status == 431


def test_as_many_headers_as_allowed_are_taken(usual: ServiceServer) -> None:
    lines = [f"X-{n}: " + "y" * 600 for n in range(98)]
    with RawConnection(usual.port) as raw:
        assert raw.ask(request("/", *lines, token=TOKEN)).status == 200
        long = f"/?x={'y' * (1 << 20)}"
        assert raw.ask(request(long, *lines, token=TOKEN)).status == 200


def test_a_long_target_is_refused() -> None:
    with limited(target_bytes=1000) as server:
        with RawConnection(server.port) as raw:
            assert raw.ask(request("/?x=" + "y" * 996, token=TOKEN)).status == 200
        answer = refused(server, request("/?x=" + "y" * 997, token=TOKEN))
        assert (answer.status, answer.body) == (414, b"request target of more than 1000 bytes")
        endless = refused(server, b"GET /?" + b"x" * (1 << 20))
        assert endless.status == 414
        assert connections(server)["refused_414"] == 2


def test_a_long_body_is_refused_by_its_announced_length() -> None:
    with limited(body_bytes=1000) as server:
        with RawConnection(server.port) as raw:
            for _ in range(2):
                sent = request("/", token=TOKEN, method="POST", body=b"x" * 1000)
                assert raw.ask(sent).status == 404
        sent = request("/", token=TOKEN, method="POST", body=b"x" * 1001)
        answer = refused(server, sent)
        assert (answer.status, answer.body) == (413, b"body of more than 1000 bytes")


def chunked(body: bytes) -> bytes:
    head = request("/nowhere", "Transfer-Encoding: chunked", method="POST", token=TOKEN)
    return head + body


@pytest.mark.parametrize(
    "endless",
    [
        b"400\r\n" + b"x" * 1024 + b"\r\n" + b"1\r\nx\r\n" * 100,
        b"1\r\nx\r\n" * 100_000,
        b"1;" + b"y" * (1 << 20),
        b"0\r\nX-Trailer: " + b"y" * (1 << 20),
        b"0\r\n" + b"X-Trailer: y\r\n" * 100_000,
    ],
)
def test_a_body_without_an_end_ends_the_connection(endless: bytes) -> None:
    """It was answered at once, as its route reads no body; there is no second answer."""
    with limited(body_bytes=1000) as server, RawConnection(server.port) as raw:
        raw.send_what_is_taken(chunked(endless))
        answer = raw.answer()
        assert answer is not None
        assert answer.status == 404
        assert raw.rest() == b""


def test_a_trailer_is_dropped(usual: ServiceServer) -> None:
    with RawConnection(usual.port) as raw:
        for _ in range(2):
            assert raw.ask(chunked(b"1\r\nx\r\n0\r\nX-Trailer: y\r\n\r\n")).status == 404


# Time.


def test_a_silent_connection_is_closed() -> None:
    with limited(request_s=SHORT_S) as server, RawConnection(server.port) as raw:
        assert raw.rest() == b""
        assert connections(server)["silent"] == 1


@pytest.mark.parametrize("half", [b"G", b"GET / HTTP/1.1\r\nHost:", GREETING[:-2]])
def test_half_a_request_times_out_with_408(half: bytes) -> None:
    with limited(request_s=SHORT_S) as server:
        answer = refused(server, half)
        assert (answer.status, answer.body) == (408, b"no whole request in 0.05 seconds")


def test_half_a_request_behind_a_whole_one_times_out_too() -> None:
    with limited(request_s=SHORT_S) as server, RawConnection(server.port) as raw:
        raw.socket.sendall(GREETING + GREETING[:-1])
        assert [answer.status for answer in raw.answers()] == [200, 408]


def test_half_a_body_ends_the_connection_after_the_answer() -> None:
    with limited(request_s=SHORT_S) as server, RawConnection(server.port) as raw:
        sent = request("/nowhere", method="POST", token=TOKEN, body=b"x" * 100)
        raw.socket.sendall(sent[:-1])
        assert [answer.status for answer in raw.answers()] == [404]


def test_blank_lines_are_no_sign_of_life() -> None:
    with limited(request_s=SHORT_S) as server, RawConnection(server.port) as raw:
        answered = select.poll()
        answered.register(raw.socket, select.POLLIN)
        while not answered.poll(1):
            raw.send_what_is_taken(b"\r\n")
        assert raw.rest() == b""


def test_an_idle_connection_is_closed_after_an_answer_of_either_way() -> None:
    with limited(keep_alive_s=SHORT_S) as server:
        for target in ("/", LOOK_UP, LOOK_UP):
            with RawConnection(server.port) as raw:
                assert raw.ask(request(target, token=TOKEN)).status == 200
                assert raw.rest() == b""
        assert server.parts.hot.counts.total() > 0
        assert connections(server)["idle"] >= 3


# Connections.


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
        for target, body in (("/healthz", b'"ok": true'), ("/", b"Hello Hudi")):
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
    module.allow_open_files(1000)
    assert resource.limits == (1000 + RESERVED_FILES, 4096)
    module.allow_open_files(100_000)
    assert resource.limits == (4096, 4096)
    module.allow_open_files(10)
    assert resource.limits == (4096, 4096)
    resource.limits = (-1, -1)
    module.allow_open_files(100_000)
    assert resource.limits == (-1, -1)
    assert module.possible_connections(100_000) == 100_000


# Clients that don't read, that pipeline, that leave.


class BigAnswers:
    """Answers ``/big`` with a mebibyte; counts the requests."""

    body = b"x" * (1 << 20)

    def __init__(self) -> None:
        self.given = 0
        self.counts: Counter[HotCount] = Counter()

    def respond(self, target: bytes, fields: Fields) -> bytes | None:
        if target != b"/big":
            return None
        self.given += 1
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(self.body), self.body)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    hot = BigAnswers()
    with (
        serving(TABLES.root, opener=TABLES, hot=hot, limits=Limits(write_s=SHORT_S)) as server,
        RawConnection(server.port) as raw,
    ):
        raw.socket.sendall(request("/big", token=TOKEN) * 100)
        cut_off(raw)
        assert until(server, lambda counted: counted.get("unread", 0) == 1)["open"] == 1
        assert hot.given < 30


def test_a_slow_reader_is_answered() -> None:
    hot = BigAnswers()
    with (
        serving(TABLES.root, opener=TABLES, hot=hot, limits=Limits(write_s=20)) as server,
        RawConnection(server.port) as raw,
    ):
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        raw.socket.sendall(request("/big", token=TOKEN) * 10)
        answers = [raw.answer() for _ in range(10)]
    lengths = [len(answer.body) for answer in answers if answer is not None]
    assert len(lengths) == 10
    # What can't be sent at once isn't answered at once: only the hot path knows this route.
    assert lengths[: hot.given] == [1 << 20] * hot.given
    assert hot.given < 10


class Endless:
    """An application whose answers have no end; counts their parts of 64 KiB."""

    def __init__(self) -> None:
        self.parts = 0

    async def __call__(self, request: Request) -> Reply:
        return Reply(200, b"", rest=self._endless())

    def _endless(self) -> Iterator[bytes]:
        while True:
            self.parts += 1
            yield b"x" * (1 << 16)


@pytest.mark.parametrize("line", ["Connection: close", "Connection: keep-alive"])
def test_an_answer_in_parts_is_made_as_it_is_taken(line: str) -> None:
    endless = Endless()

    async def serve() -> None:
        parts = parts_of(TABLES.root)
        registry = registry_of(parts, endless, Limits(write_s=SHORT_S))
        listener = await registry.loop.create_server(
            lambda: ServiceProtocol(registry), "127.0.0.1", 0
        )
        with RawConnection(listener.sockets[0].getsockname()[1]) as raw:
            raw.socket.sendall(request("/", line, token=TOKEN))
            while not registry.counts["unread"]:
                await asyncio.sleep(0)
        listener.close()
        await registry.close(1)
        parts.close()

    asyncio.run(serve())
    assert 0 < endless.parts < 300


async def broken_off(request: Request) -> Reply:
    """Answer with a part, and fail."""

    def parts() -> Iterator[bytes]:
        yield b"part"
        raise StorageUnavailableError("gone")

    return Reply(200, b"", rest=parts())


def test_a_partial_answer_to_http_1_0_is_reset() -> None:
    """Its body has neither a length nor chunks, so an orderly end would make it look whole."""

    def received(port: int) -> bytes:
        with RawConnection(port) as raw:
            raw.socket.sendall(GREETING.replace(b"HTTP/1.1", b"HTTP/1.0"))
            return b"".join(iter(lambda: raw.socket.recv(1 << 16), b""))

    async def serve() -> None:
        parts = parts_of(TABLES.root)
        registry = registry_of(parts, broken_off, Limits())
        listener = await registry.loop.create_server(
            lambda: ServiceProtocol(registry), "127.0.0.1", 0
        )
        try:
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(received, listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
            await registry.close(1)
            parts.close()

    asyncio.run(serve())


def test_clients_that_do_not_read_block_no_other() -> None:
    hot = BigAnswers()
    with serving(TABLES.root, opener=TABLES, hot=hot, threads=1) as server, ExitStack() as stack:
        for _ in range(20):
            raw = stack.enter_context(RawConnection(server.port))
            raw.socket.sendall(request("/big", token=TOKEN) * 30 + GREETING * 30)
        with RawConnection(server.port) as other:
            assert other.ask(request(LOOK_UP, token=TOKEN)).status == 200
            assert other.ask(GREETING).status == 200
        until(server, lambda counted: counted["open"] == 21)
    assert hot.given < 20 * 30


def test_many_pipelined_requests_are_answered_in_order_a_few_at_a_time() -> None:
    with limited(pipelined=2) as server, RawConnection(server.port) as raw:
        targets = [f"/nowhere/{n}" for n in range(500)]
        sent = b"".join(
            request(t, token=TOKEN, method="HEAD" if "7" in t else "GET") for t in targets
        )
        sender = threading.Thread(target=raw.socket.sendall, args=(sent + GREETING,))
        sender.start()
        for target in targets:
            answer = raw.answer(to_head="7" in target)
            assert answer is not None
            assert answer.status == 404
        last = raw.answer()
        assert last is not None
        assert last.body == b"Hello Hudi"
        sender.join()


class Blocked(golden.GoldenStorage):
    """Lists a partition when it is let go."""

    def __init__(self, path: str, began: threading.Event, go: threading.Event) -> None:
        super().__init__("cow_basic_v9", 7, path)
        self._began, self._go = began, go

    def list(self, path: str) -> tuple[FileInfo, ...]:
        if path == "2024-01-01":
            self._began.set()
            assert self._go.wait(PATIENCE_S)
        return super().list(path)


def asked(server: ServiceServer) -> Mapping[str, int]:
    """Return how many requests of each route were answered by the app."""
    requests: Mapping[str, int] = server.parts.status()["requests"]
    return requests


@pytest.mark.parametrize("leaves_by", ["reset", "close", "half-close"])
def test_a_client_that_leaves_is_forgotten_with_all_it_asked(
    leaves_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    began, go = threading.Event(), threading.Event()
    with (
        serving("/golden", opener=lambda path, _: Blocked(path, began, go), threads=1) as server,
        HttpClient(server.port) as other,
        caplog.at_level(logging.DEBUG),
    ):
        gone, waiting = RawConnection(server.port), RawConnection(server.port)
        with gone, waiting:
            gone.socket.sendall(request(SLOW, token=TOKEN) + request(INSTANTS, token=TOKEN) * 20)
            assert began.wait(PATIENCE_S)
            # The only thread is taken: this waits for it.
            waiting.socket.sendall(request(INSTANTS, token=TOKEN))
            accepted = lambda: server.parts.connections().get("accepted", 0)  # noqa: E731
            while accepted() < 2:
                pass
            for raw in (gone, waiting):
                if leaves_by == "reset":
                    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                elif leaves_by == "half-close":
                    raw.end_of_requests()
                    assert raw.answers() == []
        # A connection is closed a moment before its request leaves the queue.
        while server.parts.connections()["open"] or server.parts.threads()["waiting"]:
            pass
        go.set()
        while server.parts.threads()["taken"]:
            pass
        assert other.ask("GET", "/v1/strandline/status", {})[0] == 200
        # Of 22 requests one had been begun.
        assert sum(asked(server).values()) == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_expect_100_continue_is_answered_at_once(usual: ServiceServer) -> None:
    with RawConnection(usual.port) as raw:
        sent = request("/nowhere", "Expect: 100-continue", method="POST", token=TOKEN, body=b"xx")
        raw.socket.sendall(sent[:-2])
        assert [answer.status for answer in raw.answers()] == [404]


UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAA")


@pytest.mark.parametrize("lines", [UPGRADE, ("Expect: 100-continue",), ("Connection: close",)])
def test_what_follows_the_last_request_is_not_looked_at(
    lines: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    refusable = request("/", *(f"X-{n}: y" for n in range(30)))
    with limited(header_count=20) as server:
        with RawConnection(server.port) as raw:
            # Answered by a thread, so that the rest is there before the connection ends.
            raw.send_what_is_taken(request("/nowhere", *lines, token=TOKEN) + refusable * 1000)
            assert [answer.status for answer in raw.answers()] == [404]
        assert not any(name.startswith("refused") for name in connections(server))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.property
def test_limits_and_networks_reach_a_child(tmp_path: Path) -> None:
    golden.build("cow_basic_v9", 7, tmp_path / "t")
    named = {
        "strandline.service.header.max.count": "20",
        "strandline.service.admit.networks": "127.0.0.0/8=reads, ::1",
    }
    settings = Settings.parse(named, SERVICE_SETTINGS)
    birth = Birth(
        PartsOptions(("/t",), "s", admit_networks="127.0.0.0/8=reads"),
        ServerOptions.of(settings, "127.0.0.1", 0),
    )
    assert Birth.of_line(birth.to_line()) == birth
    with TimelineService([str(tmp_path)], settings=settings) as service:
        with RawConnection(int(service.url.rpartition(":")[2])) as raw:
            assert raw.ask(request("/v1/strandline/status")).status == 200
            assert raw.ask(request("/v1/hoodie/marker/all")).status == 401
        with RawConnection(int(service.url.rpartition(":")[2])) as raw:
            assert raw.ask(request("/", *(f"X-{n}: y" for n in range(30)))).status == 431
        assert service.status()["connections"]["refused_431"] == 1


def test_limits_are_settings() -> None:
    named = {
        "strandline.service.request.line.max.bytes": "10000",
        "strandline.service.header.max.bytes": "10001",
        "strandline.service.header.max.count": "102",
        "strandline.service.body.max.bytes": "103",
        "strandline.service.request.timeout.secs": "1.5",
        "strandline.service.write.timeout.secs": "2.5",
        "strandline.service.connections.max": "106",
        "strandline.service.pipelined.max": "107",
    }
    settings = Settings.parse(named, SERVICE_SETTINGS)
    expected = Limits(10000, 10001, 102, 103, 1.5, 2.5, 106, 107)
    assert ServerOptions.of(settings, "::1", 0).limits == expected
    assert Limits.of(Settings({}, {})) == Limits()

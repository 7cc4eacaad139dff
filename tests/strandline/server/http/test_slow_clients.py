"""Clients that don't read, that pipeline, or that leave hold up no other client."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from strandline.server.http.connection import ServiceProtocol
from strandline.server.http.limits import Limits
from strandline.server.http.reply import Reply
from strandline.server.http.request import Fields, Request
from strandline.server.http.server import ServiceServer
from strandline.server.lookup.ready_answer import HotCount
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, HttpClient, parts_of, serving
from tests.kit.servers.raw_http import RawConnection, request
from tests.strandline.server.http.limited_server import (
    GREETING,
    LOOK_UP,
    SHORT_S,
    SLOW,
    TABLES,
    Blocked,
    Endless,
    asked,
    connections,
    limited,
    registry_of,
)
from timeline.errors import StorageUnavailableError

INSTANTS = "/v1/hoodie/view/timeline/instants/all?basepath=/golden/t&refreshoff=true"


def until(server: ServiceServer, holds: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """Ask the server for its counts until something holds."""
    while True:
        counted = connections(server)
        if holds(counted):
            return counted


def cut_off(raw: RawConnection) -> None:
    """Wait until a connection that nothing is read from is cut off."""
    poll = select.poll()
    poll.register(raw.socket, select.POLLERR | select.POLLHUP)
    assert poll.poll(20_000)


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


@pytest.mark.property
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


@pytest.mark.property
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

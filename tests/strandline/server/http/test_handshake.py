"""``TlsListener`` goes on accepting whatever happens to one connection."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable

import pytest

from strandline.server.http.connection_registry import ConnectionRegistry
from strandline.server.http.limits import Limits
from strandline.server.http.server import ACCEPT_AGAIN_S, TlsListener
from strandline.server.table_threads import TableThreads
from tests.kit.concurrency.stopped_loop import StoppedLoop
from tests.kit.servers.live_service import GoldenTables, parts_of

TABLES = GoldenTables()


class Accepting(StoppedLoop):
    """A loop that accepts the sockets, or raises the errors, that it is given."""

    def __init__(self, *outcomes: int | socket.socket) -> None:
        super().__init__()
        self.left = list(outcomes)

    async def sock_accept(self, sock: socket.socket) -> tuple[socket.socket, str]:
        if not self.left:
            await asyncio.Event().wait()
        outcome = self.left.pop(0)
        if isinstance(outcome, int):
            raise OSError(outcome, os.strerror(outcome))
        return outcome, ""


class Odd:
    """A connection that has been idle for ever and fails when it is closed."""

    idle_since = 0.0

    def check(self, now: float) -> None:
        raise AssertionError("no time passes")

    def shutdown(self) -> None:
        raise AssertionError("it has been forgotten")

    def abort(self) -> None:
        raise RuntimeError("this can't be")


async def settled() -> None:
    """Let the loop come to everything that is ready."""
    for _ in range(10):
        await asyncio.sleep(0)


def listening(loop: Accepting, play: Callable[[ConnectionRegistry], Awaitable[None]]) -> None:
    """Play something with a listener's registry, which has room for one."""

    async def whole() -> None:
        parts = parts_of(TABLES.root)
        limits = Limits(connections=1)
        threads = TableThreads("requests", 1)
        registry = ConnectionRegistry(
            parts.application(threads),
            threads,
            parts.hot,
            parts.admission,
            limits,
            120,
            parts.refusals,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        listener = TlsListener(registry, socket.socket(), context)
        try:
            await play(registry)
        finally:
            listener.close()
            parts.close()
            await settled()

    try:
        loop.run_until_complete(whole())
    finally:
        loop.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_want_of_descriptors_pauses_accepting_and_one_connection_that_is_gone_does_not(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Accepting(errno.ECONNABORTED, errno.EPROTO, number, errno.ECONNABORTED)

    async def play(registry: ConnectionRegistry) -> None:
        await settled()
        assert loop.left == [errno.ECONNABORTED]
        (record,) = caplog.records
        assert record.getMessage() == f"a connection can't be accepted: {os.strerror(number)}"
        loop.at += ACCEPT_AGAIN_S
        await settled()
        assert loop.left == []
        assert registry.counts["no_handshake"] == 3

    listening(loop, play)


def test_a_connection_that_fails_as_it_comes_in_is_closed_and_others_come_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (mine, first), (other, second) = socket.socketpair(), socket.socketpair()
    second.setblocking(False)
    loop = Accepting(first, second)

    async def play(registry: ConnectionRegistry) -> None:
        assert registry.add(Odd())
        await settled()
        assert loop.left == []
        assert mine.recv(1) == b""
        assert registry.status()["open"] == 1
        other.close()
        await registry.close(1)

    with mine, other:
        listening(loop, play)
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.getMessage() == "a connection can't be taken in"
    assert record.exc_info is not None

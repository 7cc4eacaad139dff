"""A server on the loop of a test, and what a test awaits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from strandline.fleet.peer import Peer
from strandline.fleet.peer_connection import PeerAnswer
from tests.kit.concurrency.patience import PATIENCE_S

T = TypeVar("T")
REQUEST: Final = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection."""


class LoopAhead(asyncio.SelectorEventLoop):
    """A loop whose clock can be set forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def run_ahead(play: Callable[[LoopAhead], Coroutine[object, object, None]]) -> None:
    """Run what sets the clock of its loop forward."""
    loop = LoopAhead()
    try:
        loop.run_until_complete(play(loop))
    finally:
        loop.close()


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """Run a server, and yield its address; each of its connections has ended afterwards."""
    served: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        if served:
            await asyncio.wait(served, timeout=PATIENCE_S)
        assert all(task.done() for task in served)


async def request_from(reader: asyncio.StreamReader) -> bytes:
    """Read a request without a body."""
    return await reader.readuntil(b"\r\n\r\n")


async def end_of(reader: asyncio.StreamReader) -> None:
    """Wait until the other side has left; nothing may come before."""
    with suppress(ConnectionError):
        assert await reader.read(1) == b""


def asking(peer: Peer, *, is_safe: bool = True) -> asyncio.Task[PeerAnswer]:
    """Begin to ask a peer."""
    asked = peer.ask(REQUEST, is_safe=is_safe, within_s=PATIENCE_S)
    return asyncio.get_running_loop().create_task(asked)


async def soon(awaited: Awaitable[T]) -> T:
    """Wait for what happens at once."""
    return await asyncio.wait_for(awaited, PATIENCE_S)


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""

    async def turns() -> None:
        while not holds():
            await asyncio.sleep(0)

    await soon(turns())

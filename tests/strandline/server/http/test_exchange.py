"""``Exchange``: sending replies whole or in parts, and errors in place of replies."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from strandline.server.http.exchange import Exchange, ResponseWriter
from strandline.server.http.reply import Reply
from strandline.server.http.request import Application, Request
from strandline.server.table_threads import TableThreads
from tests.kit.concurrency.patience import PATIENCE_S

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"


class Written(ResponseWriter):
    """A connection and its writer, which keeps all bytes written."""

    def __init__(self) -> None:
        self.written = b""
        self.refusals: list[Reply] = []
        self.whole: bool | None = None

    async def writable(self) -> None:
        """Be writable at once."""

    def write(self, data: bytes) -> None:
        self.written += data

    def refused(self, request: Request, reply: Reply) -> None:
        self.refusals.append(reply)

    def exchange_over(self, exchange: Exchange, *, whole: bool) -> None:
        self.whole = whole


def asked(method: str = "GET", version: str = "1.1", accept: bytes = b"") -> Request:
    return Request(method, "/", b"", {b"accept": accept}, version)


def played(request: Request, app: Application) -> tuple[Written, Exchange]:
    """Let an application answer a request; return what was written, and the exchange."""
    outlet, threads = Written(), TableThreads("requests", 1)
    exchange = Exchange(outlet, outlet, request, keep_alive=True)
    asyncio.run(exchange.run(app, threads))
    threads.close()
    return outlet, exchange


async def fails(_: Request) -> Reply:
    raise ZeroDivisionError


async def in_parts(_: Request) -> Reply:
    return Reply(200, b"", rest=iter([b"one", b"two"]))


@pytest.mark.parametrize("accept", [b"application/json", b"text/plain"])
def test_an_unforeseen_error_is_answered_in_the_form_that_is_accepted(accept: bytes) -> None:
    outlet, exchange = played(asked(accept=accept), fails)
    head, _, body = outlet.written.partition(b"\r\n\r\n")
    assert b"content-type: " + accept in head
    message = json.loads(body)["title"] if b"json" in accept else body.decode()
    assert message == "Internal server error"
    assert (outlet.whole, exchange.keep_alive) == (True, False)
    assert [reply.status for reply in outlet.refusals] == [500]


def test_a_head_that_can_not_be_sent_is_answered_with_500() -> None:
    async def app(_: Request) -> Reply:
        return Reply(200, b"body", "text/plain; of=\xe9")

    outlet, _ = played(asked(), app)
    assert outlet.written.startswith(b"HTTP/1.1 500 ")
    assert outlet.whole is True


def test_parts_are_chunks_and_the_connection_goes_on() -> None:
    outlet, exchange = played(asked(), in_parts)
    chunks = b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    assert outlet.written == HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks
    assert (outlet.whole, exchange.keep_alive) == (True, True)


def test_http_1_0_has_no_chunks_and_ends_with_the_connection() -> None:
    outlet, exchange = played(asked(version="1.0"), in_parts)
    assert outlet.written == HEAD + b"connection: close\r\n\r\nonetwo"
    assert (outlet.whole, exchange.keep_alive) == (True, False)


def test_head_makes_no_parts() -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError("nobody reads it")
        yield b""

    async def app(_: Request) -> Reply:
        return Reply(200, b"", rest=never())

    outlet, exchange = played(asked("HEAD"), app)
    assert outlet.written == HEAD + b"\r\n"
    assert (outlet.whole, exchange.keep_alive) == (True, True)


@pytest.mark.parametrize("sent", [0, 1])
def test_an_error_in_a_part_breaks_off_or_is_answered(sent: int) -> None:
    def parts() -> Iterator[bytes]:
        yield from [b"one"] * sent
        raise ZeroDivisionError

    async def app(_: Request) -> Reply:
        return Reply(200, b"", rest=parts())

    outlet, _ = played(asked(), app)
    assert outlet.whole is (sent == 0)
    assert outlet.written.startswith(b"HTTP/1.1 200 " if sent else b"HTTP/1.1 500 ")


def test_a_streamed_reply_ends_when_its_client_disconnects() -> None:
    """It would go on with a part of any length, and hold its table's thread."""
    began, go = threading.Event(), threading.Event()

    def parts() -> Iterator[bytes]:
        yield b"first"
        began.set()
        assert go.wait(PATIENCE_S)
        yield b"second"

    async def app(_: Request) -> Reply:
        return Reply(200, b"", rest=parts())

    async def play() -> None:
        outlet, threads, request = Written(), TableThreads("requests", 1), asked()
        running = asyncio.ensure_future(
            Exchange(outlet, outlet, request, keep_alive=True).run(app, threads)
        )
        while not began.is_set():
            await asyncio.sleep(0)
        assert not request.has_left()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        try:
            assert outlet.written.endswith(b"5\r\nfirst\r\n")
            assert (request.has_left(), outlet.whole) == (True, False)
        finally:
            go.set()
            threads.close()

    asyncio.run(play())


def test_a_handler_learns_that_its_client_disconnected() -> None:
    began, gone, ended = threading.Event(), threading.Event(), threading.Event()
    told: list[bool] = []

    def handle(request: Request) -> Reply:
        told.append(request.has_left())
        began.set()
        assert gone.wait(PATIENCE_S)
        told.append(request.has_left())
        ended.set()
        return Reply(200, b"")

    async def leave() -> None:
        threads, outlet = TableThreads("requests", 1), Written()

        async def app(request: Request) -> Reply:
            return await threads.run("", handle, request)

        running = asyncio.ensure_future(
            Exchange(outlet, outlet, asked(), keep_alive=True).run(app, threads)
        )
        assert await asyncio.to_thread(began.wait, 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        gone.set()
        assert await asyncio.to_thread(ended.wait, 20)
        threads.close()

    asyncio.run(leave())
    assert told == [False, True]

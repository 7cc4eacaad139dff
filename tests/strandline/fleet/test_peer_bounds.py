"""What a peer can make a server hold, whatever it sends."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain, product, repeat

import pytest

from strandline.fleet.peer import Peer
from strandline.fleet.peer_connection import PeerLimits, Received
from tests.kit.concurrency.patience import PATIENCE_S
from tests.strandline.fleet.loop_peer import (
    REQUEST,
    LoopAhead,
    asking,
    end_of,
    listening,
    request_from,
    run_ahead,
    soon,
    until,
)
from timeline.errors import BadAnswerError, ServiceTimeoutError, ServiceUnreachableError

LIMITS = PeerLimits(head_bytes=2000, body_bytes=100_000, bodies_bytes=150_000)
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LONG = HEAD + b"content-length: 100000\r\n\r\n"
K = b"x" * 1000

ENDLESS = {
    "a status": (b"HTTP/1.1 200 O", K),
    "a head": (HEAD, b"a: b\r\n"),
    "a name": (HEAD, K),
    "a value": (HEAD + b"a: ", K),
    "a body": (CHUNKED, b"3e8\r\n" + K + b"\r\n"),
    "a body of single bytes": (CHUNKED, b"1\r\nx\r\n"),
    "a chunk's extension": (CHUNKED + b"1;", K),
    "a trailer": (CHUNKED + b"1\r\nx\r\n0\r\n", b"a: b\r\n"),
    "a trailer's value": (CHUNKED + b"1\r\nx\r\n0\r\na: ", K),
}


@pytest.mark.property
@pytest.mark.parametrize("what", ENDLESS)
def test_what_has_no_end_is_refused(what: str) -> None:
    first, more = ENDLESS[what]
    # A buffer of the system that is filled with a few bytes a call takes seconds.
    more *= -(-10_000 // len(more))
    sent = 0

    async def play() -> None:
        async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await request_from(reader)
            for piece in chain((first,), repeat(more)):
                writer.write(piece)
                await writer.drain()
                sent += len(piece)

        received = Received()
        async with listening(stream) as url:
            peer = Peer(url, LIMITS, received)
            with pytest.raises(BadAnswerError):
                await soon(asking(peer))
            assert received.held_bytes == 0
            assert peer.may_be_asked(), "it is there, and its other answers may be right"

    asyncio.run(play())
    assert sent


MALFORMED = {
    "no length but an end": (HEAD + b"\r\nbody", ServiceUnreachableError),
    "a length that is no number": (HEAD + b"content-length: 1x\r\n\r\n", BadAnswerError),
    "a negative length": (HEAD + b"content-length: -1\r\n\r\n", BadAnswerError),
    "a length of many digits": (
        HEAD + b"content-length: %b\r\n\r\n" % (b"9" * 500),
        BadAnswerError,
    ),
    "two lengths": (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab", BadAnswerError),
    "a length and chunks": (
        HEAD + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        BadAnswerError,
    ),
    "a chunk's length that is no number": (CHUNKED + b"zz\r\n", BadAnswerError),
    "a chunk that is longer than its length": (CHUNKED + b"1\r\nabc\r\n", BadAnswerError),
    "half a chunk": (CHUNKED + b"5\r\nab", ServiceUnreachableError),
    "chunks without an end": (CHUNKED + b"1\r\na\r\n", ServiceUnreachableError),
    "a header without a colon": (HEAD + b"abc\r\n\r\n", BadAnswerError),
    "a header that is no ASCII": (HEAD + b"a: \xc3\xa9\r\n\r\n", BadAnswerError),
    "a zero in a header": (HEAD + b"a: \0\r\n\r\n", BadAnswerError),
    "a request": (REQUEST, BadAnswerError),
    "TLS": (bytes((22, 3, 1, 0, 200)), BadAnswerError),
    "another protocol": (HEAD.replace(b"200 OK", b"101 x") + b"upgrade: x\r\n\r\n", BadAnswerError),
}


def test_what_is_malformed_is_refused_however_it_is_cut(subtests: pytest.Subtests) -> None:
    async def play(data: bytes, size: int, error: type[Exception]) -> None:
        received = Received()
        async with listening(sending(pieces(data, size))) as url:
            with pytest.raises(error):
                await soon(asking(Peer(url, LIMITS, received)))
            assert received.held_bytes == 0

    for what, size in product(MALFORMED, [1, 7, 1000]):
        with subtests.test(what=what, size=size):
            data, error = MALFORMED[what]
            asyncio.run(play(data, size, error))


def test_bodies_count_together_until_they_are_dropped() -> None:
    async def play() -> None:
        more, received = asyncio.Event(), Received()

        async def halves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_from(reader)
            writer.write(LONG + 80 * K)
            await more.wait()
            writer.write(20 * K)
            await end_of(reader)

        async with listening(halves) as one, listening(sending((LONG + 100 * K,))) as other:
            first, second = Peer(one, LIMITS, received), Peer(other, LIMITS, received)
            half = asking(first)
            await until(lambda: received.held_bytes == 80_000)
            with pytest.raises(BadAnswerError, match="no room beside the others"):
                await soon(asking(second))
            assert received.held_bytes == 80_000
            more.set()
            answer = await soon(half)
            del half
            assert len(answer.body) == 100_000
            with pytest.raises(BadAnswerError, match="no room beside the others"):
                await soon(asking(second))
            assert received.held_bytes == 100_000, "it is whole, and not sent"
            del answer
            assert received.held_bytes == 0
            assert len((await soon(asking(second))).body) == 100_000
            assert received.held_bytes == 0
            first.close()
            second.close()

    asyncio.run(play())


@pytest.mark.property
def test_a_body_in_tiny_chunks_takes_the_memory_that_is_counted() -> None:
    async def play() -> None:
        received = Received()

        async def chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_from(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"2\r\nxx\r\n" * 40_000)
            await end_of(reader)

        async with listening(chunks) as url:
            tracemalloc.start()
            try:
                asked = asking(Peer(url, LIMITS, received))
                await until(lambda: received.held_bytes == 80_000)
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held < 1_000_000  # with what the test itself sends; an object a chunk: 1.7 MB
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked

    asyncio.run(play())


@pytest.mark.parametrize("how", ["its client leaves", "its connection is lost"])
def test_half_a_body_no_longer_counts_once(how: str) -> None:
    async def play() -> None:
        lost, received = asyncio.Event(), Received()

        async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_from(reader)
            writer.write(LONG + K)
            await lost.wait()
            writer.transport.abort()

        async with listening(half) as url:
            asked = asking(Peer(url, LIMITS, received))
            await until(lambda: received.held_bytes == 1000)
            if how == "its client leaves":
                asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked
            lost.set()
            if not asked.cancelled():
                with pytest.raises(ServiceUnreachableError):
                    await soon(asked)
            assert received.held_bytes == 0

    asyncio.run(play())


@pytest.mark.property
def test_an_answer_that_comes_drop_by_drop_is_late() -> None:
    async def play(loop: LoopAhead) -> None:
        received = Received()

        async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_from(reader)
            writer.write(LONG)
            for _ in range(99_999):
                writer.write(b"x")
                await writer.drain()
            await end_of(reader)  # the last byte never comes

        async with listening(drip) as url:
            peer = Peer(url, LIMITS, received)
            asked = asking(peer)
            await until(lambda: received.held_bytes > 0)
            loop.ahead_s += PATIENCE_S
            with pytest.raises(ServiceTimeoutError):
                await asked
            assert received.held_bytes == 0
            assert not peer.may_be_asked()

    run_ahead(play)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def sending(sent: Iterator[bytes] | tuple[bytes, ...]) -> Callable[..., Awaitable[None]]:
    """Return a server that answers each connection's request with these pieces, and hangs up."""
    whole = tuple(sent)

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_from(reader)
        for piece in whole:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)  # the other side reads it by itself
        writer.close()
        await end_of(reader)

    return send

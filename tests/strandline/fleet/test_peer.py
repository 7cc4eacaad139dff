"""One other server: who waits for it, who leaves, and when it isn't asked."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest
import uvloop

from strandline.fleet.peer import FIRST_S, Peer
from strandline.fleet.peer_connection import PeerAnswer, PeerLimits, Received
from tests.kit.concurrency.patience import PATIENCE_S
from tests.strandline.fleet.loop_peer import (
    ANSWER,
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
from timeline.errors import ServiceTimeoutError, ServiceUnreachableError

ONE = PeerLimits(connections=1)


class Held:
    """Answers each request once ``answered`` is set; counts requests and clients that left."""

    def __init__(self) -> None:
        self.came, self.answered, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.requests = self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            await request_from(reader)
            self.requests += 1
            self.came.set()
            ended = asyncio.ensure_future(end_of(reader))
            answered = asyncio.ensure_future(self.answered.wait())
            await asyncio.wait((ended, answered), return_when=asyncio.FIRST_COMPLETED)
            answered.cancel()
            if ended.done():
                self.left.set()
                return
            ended.cancel()
            await asyncio.wait((ended,))
            writer.write(ANSWER + b"ok")


def end_all(listener: socket.socket) -> None:
    """End each connection as soon as it was accepted."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # shut down
            return
        connection.close()


async def has_left(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_request_of_a_client_that_leaves_ends_at_the_peer_too() -> None:
    async def play() -> None:
        held = Held()
        async with listening(held) as url:
            peer = Peer(url, PeerLimits(), Received())
            asked = asking(peer)
            await soon(held.came.wait())
            await has_left(asked)
            await soon(held.left.wait())
            assert peer.is_idle
            assert peer.may_be_asked(), "it isn't the peer's fault"
            held.answered.set()
            assert (await soon(asking(peer))).body == b"ok"
            assert held.connections == 2, "the rest of that answer would precede this one"
            peer.close()

    asyncio.run(play())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_is_ended_at_once_has_sent_nothing_or_was_lost(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Nobody waits for an answer on it, or keeps it."""

    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ends = threading.Thread(target=end_all, args=[listener])
            ends.start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            peer = Peer(url, PeerLimits(), Received())
            for _ in range(30):
                with pytest.raises(ServiceUnreachableError):
                    await soon(asking(peer, is_safe=False))
                assert peer.is_idle
            assert not peer._open
            listener.shutdown(socket.SHUT_RDWR)
            ends.join()

    loop = new_loop()
    loop.run_until_complete(play())
    loop.close()


def test_a_client_that_leaves_while_it_connects_leaves_no_connection() -> None:
    async def play() -> None:
        came, left = asyncio.Event(), asyncio.Event()

        async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.read(1)
            came.set()
            while await reader.read(1000):
                pass
            left.set()

        async with listening(hang) as url:
            # Its handshake has no end.
            peer = Peer(url.replace("http", "https"), PeerLimits(connect_s=PATIENCE_S), Received())
            asked = asking(peer)
            await soon(came.wait())
            await has_left(asked)
            await soon(left.wait())
            assert peer.is_idle

    asyncio.run(play())


def test_who_leaves_gives_its_place_to_the_next_and_who_waits_gives_up_its_own() -> None:
    async def play() -> None:
        held = Held()
        async with listening(held) as url:
            peer = Peer(url, ONE, Received())
            first, second, third = asking(peer), asking(peer), asking(peer)
            await soon(held.came.wait())
            await has_left(second)
            await has_left(first)
            held.answered.set()
            assert (await soon(third)).body == b"ok"
            assert held.requests == 2, "the second was never sent"
            assert peer.is_idle
            peer.close()

    asyncio.run(play())


def test_who_leaves_as_it_is_given_a_place_gives_it_to_the_next() -> None:
    async def play() -> None:
        held = Held()
        async with listening(held) as url:
            peer = Peer(url, ONE, Received())
            first, second, third = asking(peer), asking(peer), asking(peer)
            await soon(held.came.wait())
            held.answered.set()
            # The first passes its place on in the step of the loop that precedes this call.
            first.cancel()
            asyncio.get_running_loop().call_soon(second.cancel)
            assert (await soon(third)).body == b"ok"
            assert first.cancelled()
            assert second.cancelled()
            assert peer.is_idle
            peer.close()

    asyncio.run(play())


def test_a_peer_of_which_too_much_is_asked_is_not_taken_for_dead() -> None:
    async def play() -> None:
        held = Held()
        async with listening(held) as url:
            peer = Peer(url, PeerLimits(connections=1, queued=1), Received())
            first, second = asking(peer), asking(peer)
            await soon(held.came.wait())
            with pytest.raises(ServiceUnreachableError, match="1 requests wait for it") as refused:
                await soon(asking(peer))
            assert not refused.value.may_have_arrived
            assert peer.may_be_asked()
            held.answered.set()
            assert [(await soon(each)).body for each in (first, second)] == [b"ok", b"ok"]
            assert held.connections == 1
            peer.close()

    asyncio.run(play())


def test_a_table_that_hangs_leaves_half_of_the_connections_to_others() -> None:
    async def play() -> None:
        answered = asyncio.Event()

        async def hang_for_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while b"hangs" not in await request_from(reader):
                writer.write(ANSWER + b"ok")
            await answered.wait()
            writer.write(ANSWER + b"ok")
            await end_of(reader)

        async with listening(hang_for_one) as url:
            peer = Peer(url, PeerLimits(connections=4), Received())

            def asked(table: str) -> asyncio.Task[PeerAnswer]:
                request = REQUEST.replace(b"host:", b"x: %b\r\nhost:" % table.encode(), 1)
                assert request != REQUEST
                ask = peer.ask(request, is_safe=True, within_s=PATIENCE_S, table=table)
                return asyncio.get_running_loop().create_task(ask)

            hanging = [asked("hangs") for _ in range(6)]
            for _ in range(3):
                others = [asked("other") for _ in range(5)]
                assert [(await soon(each)).body for each in others] == [b"ok"] * 5
            assert not any(each.done() for each in hanging)
            answered.set()
            for each in hanging[:2]:
                assert (await soon(each)).body == b"ok"
            for each in hanging:
                each.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)
            assert peer.is_idle
            peer.close()

    asyncio.run(play())


@pytest.mark.property
def test_a_peer_is_not_taken_for_dead_if_its_answer_may_be_late() -> None:
    async def play(loop: LoopAhead) -> None:
        held = Held()
        async with listening(held) as url:
            peer = Peer(url, PeerLimits(), Received())
            for requests, may_be_late in enumerate((True, False), 1):
                asked = loop.create_task(
                    peer.ask(REQUEST, is_safe=True, within_s=PATIENCE_S, may_be_late=may_be_late)
                )
                await until(lambda requests=requests: held.requests == requests)
                loop.ahead_s += PATIENCE_S
                with pytest.raises(ServiceTimeoutError):
                    await asked
                assert peer.may_be_asked() is may_be_late
            peer.close()

    run_ahead(play)


def test_requests_that_fail_together_shut_a_peer_once_and_one_trial_is_under_way() -> None:
    async def play(loop: LoopAhead) -> None:
        requests = 0

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            await request_from(reader)
            requests += 1
            await end_of(reader)

        async with listening(hang) as url:
            peer = Peer(url, PeerLimits(), Received())
            late = [asking(peer) for _ in range(20)]
            await until(lambda: requests == 20)
            loop.ahead_s += PATIENCE_S
            errors = await asyncio.gather(*late, return_exceptions=True)
            assert {type(error) for error in errors} == {ServiceTimeoutError}
            assert not peer.may_be_asked()
            assert not peer.may_be_asked(beside_trial=True), "nobody tries"
            loop.ahead_s += FIRST_S
            assert peer.may_be_asked()
            trial = asking(peer)
            await until(lambda: requests == 21)
            loop.ahead_s += 10 * FIRST_S
            assert not peer.may_be_asked(), "one tries already"
            assert peer.may_be_asked(beside_trial=True)
            await has_left(trial)
            assert peer.may_be_asked(), "nobody tries any more"
            peer.close()

    run_ahead(play)


def test_a_request_without_a_connection_in_time_has_not_been_sent() -> None:
    async def play() -> None:
        held = Held()
        async with listening(held) as url:
            peer = Peer(url, ONE, Received())
            first = asking(peer)
            await soon(held.came.wait())
            with pytest.raises(ServiceUnreachableError, match="no free connection") as late:
                await peer.ask(REQUEST, is_safe=False, within_s=0.01)
            assert not late.value.may_have_arrived
            held.answered.set()
            assert (await soon(first)).body == b"ok"
            assert held.requests == 1
            peer.close()

    asyncio.run(play())


@pytest.mark.parametrize("answers_meanwhile", [True, False])
def test_a_peer_is_not_asked_for_a_while_unless_it_answered_meanwhile(
    answers_meanwhile: bool,
) -> None:
    async def play() -> None:
        lost, came = asyncio.Event(), asyncio.Event()
        requests = 0

        async def lose_the_first(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            nonlocal requests
            await request_from(reader)
            requests += 1
            if requests > 1:
                writer.write(ANSWER + b"ok")
                await end_of(reader)
                return
            came.set()
            await lost.wait()
            writer.transport.abort()

        async with listening(lose_the_first) as url:
            peer = Peer(url, PeerLimits(), Received())
            first = asking(peer)
            await soon(came.wait())
            if answers_meanwhile:
                await soon(asking(peer))
            lost.set()
            with pytest.raises(ServiceUnreachableError):
                await soon(first)
            assert peer.may_be_asked() is answers_meanwhile
            peer.close()

    asyncio.run(play())


@pytest.mark.parametrize("is_safe", [True, False])
def test_a_kept_connection_that_the_peer_ends_is_replaced_if_that_is_safe(is_safe: bool) -> None:
    async def play() -> None:
        requests = 0

        async def one_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            await request_from(reader)
            requests += 1
            writer.write(ANSWER + b"ok")
            await request_from(reader)
            requests += 1
            writer.transport.abort()

        async with listening(one_each) as url:
            peer = Peer(url, PeerLimits(), Received())
            await soon(asking(peer))
            again = asking(peer, is_safe=is_safe)
            if is_safe:
                assert (await soon(again)).body == b"ok"
            else:
                with pytest.raises(ServiceUnreachableError) as lost:
                    await soon(again)
                assert lost.value.may_have_arrived
            assert requests == (3 if is_safe else 2)
            peer.close()

    asyncio.run(play())

"""The HTTP protocol: one connection; hot requests are answered where they are parsed.

A request that can be answered from ready bytes costs no task, no thread and no framework: the
bytes are written from the parser's callback. Whatever else comes becomes an ``Exchange`` and goes
to the application; of one connection one at a time, in order.

What a client can make a connection hold is bounded (``strandline.service.http.limits``):

* its bytes are parsed in slices, others in between, and while ``pipelined`` requests wait no more
  of them are read;
* a request too long, too late or not HTTP is refused: what was asked before is answered, then it
  hears why, and what it still sends is thrown away for a moment so that it can read that;
* who doesn't take his answers gets no others, and is cut off if he takes nothing for long;
* who has left is forgotten with all he asked.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from strandline.service.http.authorization import OPEN_PATHS, PROBING
from strandline.service.http.connection_registry import Guest, Reception
from strandline.service.http.exchange import Exchange
from strandline.service.http.head_rules import (
    check_admitted,
    check_bounds,
    checked_fields,
    path_of,
)
from strandline.service.http.limits import LINGER_S
from strandline.service.http.peer import NOBODY, Peer
from strandline.service.http.refusals import Refusal
from strandline.service.http.reply import Reply, failure
from strandline.service.http.request import Fields, Headers, Request
from strandline.service.http.request_reader import SLICE_BYTES, Incoming, RefusedError

_NO_LINGER: Final = struct.pack("ii", 1, 0)
_EMPTY: Final = memoryview(b"")


class ServiceProtocol(asyncio.Protocol):
    """One connection.

    ``_backlog`` has come and isn't parsed; ``_deaf``: what comes is thrown away. ``_current`` is
    being answered, ``_queue`` waits for that, and ``_last_words`` for both. ``_leaving_since`` is
    when the connection was ended, and ``_unsent_since`` when the client last took something.
    ``_only_probes``: there was no room for it, and it may ask nothing else.
    """

    __slots__ = (
        "_backlog",
        "_current",
        "_deaf",
        "_enter",
        "_feeding",
        "_incoming",
        "_last_words",
        "_leaving_since",
        "_only_probes",
        "_paused",
        "_peer",
        "_queue",
        "_reception",
        "_transport",
        "_unsent",
        "_unsent_since",
        "_waiters",
    )

    def __init__(self, reception: Reception, enter: Callable[[Guest], bool]) -> None:
        self._reception = reception
        self._enter = enter
        self._incoming = Incoming(reception, self)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._peer = NOBODY
        self._queue: deque[Exchange] = deque()
        self._current: Exchange | None = None
        self._backlog = _EMPTY
        self._deaf = self._paused = self._feeding = self._only_probes = False
        self._last_words: bytes | None = None
        self._leaving_since: float | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._unsent_since = 0.0
        self._unsent = 0

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Come in; where there is no room, only to ask what probes ask."""
        reception = self._reception
        self._transport = cast("asyncio.Transport", transport)
        self._only_probes = not self._enter(self)
        self._incoming.since = reception.now
        self._peer = Peer.of(transport, reception.admission)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was asked: nobody waits for it."""
        self._deaf = True
        self._backlog = _EMPTY
        self._queue.clear()
        self._wake()
        current, self._current = self._current, None
        if current is not None and current.task is not None:
            current.request.gone.set()
            current.task.cancel()
        self._reception.leave(self)
        self._incoming.close()

    def data_received(self, data: bytes) -> None:
        """Parse what came, at once or in slices."""
        if self._deaf:
            return
        if self._backlog:
            self._backlog = memoryview(bytes(self._backlog) + data)
        elif len(data) <= SLICE_BYTES and len(self._queue) < self._reception.limits.pipelined:
            self._feed(data)
        else:
            self._backlog = memoryview(data)
            self._transport.pause_reading()
            self._feed_slice()

    def pause_writing(self) -> None:
        """Send no more for now: the client doesn't take what it was sent."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self._wake()
        if self._current is None:
            self._next()

    # Requests in.

    def _feed_slice(self) -> None:
        """Parse the next slice; the rest waits for its turn, or until fewer requests wait."""
        self._feeding = False
        if not self._backlog or len(self._queue) >= self._reception.limits.pipelined:
            return
        piece, self._backlog = self._backlog[:SLICE_BYTES], self._backlog[SLICE_BYTES:]
        self._feed(piece)
        if self._backlog:
            self._feed_soon()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _feed_soon(self) -> None:
        if not self._feeding:
            self._feeding = True
            self._reception.loop.call_soon(self._feed_slice)

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self._incoming.feed(data)
        except RefusedError as refused:
            if not self._deaf:
                self._refuse(refused)

    def take(self, target: bytes, headers: Headers) -> None:
        """Answer now if the answer is ready; else go the long way."""
        if self._deaf:
            raise RefusedError(400, "request after the last one")
        incoming, peer, reception = self._incoming, self._peer, self._reception
        method, version = incoming.parser.get_method(), incoming.parser.get_http_version()
        try:
            fields = checked_fields(headers, method, version)
            bearer = fields.get(b"authorization")
            if not (peer.has_all or reception.admission.bears_token(bearer)):
                check_admitted(reception.admission, peer.free, target, fields, method)
            if (
                self._current is None
                and incoming.keeps
                and not self._paused
                and not self._only_probes
                and method == b"GET"
                and version == "1.1"
                and not self._transport.is_closing()
            ):
                response = reception.hot.respond(target, fields)
                if response is not None:
                    self._transport.write(response)
                    return
            self._hand_on(target, method.decode("ascii"), version, fields)
        except RefusedError as refused:
            refused.target = target
            refused.accept = dict(headers).get(b"accept", b"").decode("latin-1")
            raise

    def take_no_more(self) -> None:
        """Throw away what follows the last request."""
        self._deaf = True
        self._backlog = _EMPTY

    def _hand_on(self, target: bytes, method: str, version: str, fields: Fields) -> None:
        """Queue the request for the application."""
        incoming = self._incoming
        query = target.partition(b"?")[2]
        check_bounds(fields, query, self._reception.limits.body_bytes)
        path = path_of(target)
        if self._only_probes:
            if path not in OPEN_PATHS or method not in PROBING:
                raise self._no_room()
            incoming.keeps = False
        request = Request(method, path, query, fields, version, self._peer.address)
        self._queue.append(Exchange(self, request, keep_alive=incoming.keeps))
        if self._current is None:
            self._next()

    # Answers out; ``Exchange`` calls the first three.

    async def writable(self) -> None:
        """Wait until the client has taken most of what it was sent."""
        while self._paused and not self._transport.is_closing():
            waiter: asyncio.Future[None] = self._reception.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def write(self, data: bytes) -> None:
        """Send bytes; to a client that has left, none."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def refused(self, request: Request, reply: Reply) -> None:
        """Count a reply of 400 or more to an admitted client; none to one that has left."""
        if not self._transport.is_closing():
            # Readiness logs by itself what probes are told.
            silently = request.path in OPEN_PATHS
            self._reception.refusals.note(Refusal.of(request, reply), silently=silently)

    def exchange_over(self, exchange: Exchange, *, whole: bool) -> None:
        """Go on with what was asked next; not after an answer that was broken off."""
        if exchange is not self._current:
            return
        self._current = None
        if not self._incoming.receiving:
            self._incoming.since = self._reception.now
        if not whole:
            self._transport.close()
        elif not exchange.keep_alive:
            self._queue.clear()
            self._end(lingers=self._incoming.receiving)
        else:
            self._next()

    def _next(self) -> None:
        """Start the next request, unless the client doesn't take its answers."""
        if self._queue and not self._paused:
            self._current = self._queue.popleft()
            self._reception.start(self._current)
        elif not self._queue and self._last_words is not None:
            words, self._last_words = self._last_words, None
            if words:
                self.write(words)
            self._end(lingers=True)
        if self._backlog:
            self._feed_soon()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The end.

    def _no_room(self) -> RefusedError:
        self._reception.refuse(self)
        return RefusedError(
            503, f"the service has {self._reception.room} connections, no more may come"
        )

    def _refuse(self, refused: RefusedError) -> None:
        """Say why no more is taken, after what was asked before; then end."""
        self._reception.counts[f"refused_{refused.status}"] += 1
        with_body = self._incoming.parser.get_method() != b"HEAD"
        words = refused.words or failure(
            refused.status, refused.message, refused.accept
        ).last_words(with_body=with_body)
        # A body too long, or too late, of a request that has its answer: nothing is added to that.
        incoming = self._incoming
        if incoming.receiving and incoming.taken:
            words = b""
        else:
            path = refused.target.partition(b"?")[0].decode("latin-1")
            refusal = Refusal(refused.status, refused.message, path=path, peer=self._peer.address)
            self._reception.refusals.note(refusal)
        self._last_words = words
        self._deaf = True
        incoming.receiving = False
        self._backlog = _EMPTY
        if self._current is None:
            self._next()

    def _end(self, *, lingers: bool) -> None:
        """Hang up; a client that may still be sending has a moment to hear why.

        At once, the system would answer what still comes with a reset, and with that the client's
        system throws away what it hasn't read yet.
        """
        transport = self._transport
        if transport.is_closing():
            return
        self._deaf = True
        self._backlog = _EMPTY
        if lingers and transport.can_write_eof():
            self._leaving_since = self._reception.now
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    def shutdown(self) -> None:
        """End as soon as what was asked is answered."""
        self._deaf = True
        newest = self._queue[-1] if self._queue else self._current
        if newest is None and self._peer.encrypted and not self._unsent:
            # TLS would wait for the client to agree, and an idle client doesn't listen.
            self._transport.abort()
        elif newest is None:
            self._transport.close()
        else:
            newest.keep_alive = False

    def cut_off(self) -> None:
        """End now, whatever isn't sent: the system keeps none of it for the client either."""
        transport = self._transport
        if not transport.is_closing() or transport.get_write_buffer_size():
            taken: socket.socket = transport.get_extra_info("socket")
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()

    @property
    def waits_since(self) -> float | None:
        """Since when it waits for its client to ask something; ``None``: it doesn't."""
        is_busy = (
            self._current is not None
            or self._queue
            or self._backlog
            or self._transport.is_closing()
            or self._transport.get_write_buffer_size()
        )
        return None if is_busy else self._incoming.since

    def look(self, now: float) -> None:
        """End the connection if it is overdue."""
        reception, transport, incoming = self._reception, self._transport, self._incoming
        unsent = transport.get_write_buffer_size()
        if unsent:
            if not self._unsent or unsent < self._unsent:
                self._unsent_since = now
            self._unsent = unsent
            if now - self._unsent_since > reception.limits.write_s:
                reception.counts["unread"] += 1
                self.cut_off()
            return
        self._unsent = 0
        if transport.is_closing() and self._leaving_since is None:
            self._leaving_since = now
        if self._leaving_since is not None:
            if now - self._leaving_since > LINGER_S:
                self.cut_off()
        elif self._only_probes and not self._deaf and self._current is None:
            if now - incoming.since > LINGER_S:
                self._refuse(self._no_room())
        elif incoming.receiving:
            if self._backlog:
                incoming.since = now  # it is we who don't read
            elif now - incoming.since > reception.limits.request_s:
                message = f"no whole request in {reception.limits.request_s:g} seconds"
                self._refuse(RefusedError(408, message))
        elif self._current is None and not self._deaf:
            allowed = reception.keep_alive_s if incoming.used else reception.limits.request_s
            if now - incoming.since > allowed:
                reception.counts["idle" if incoming.used else "silent"] += 1
                transport.close()


def protocol_for(reception: Reception) -> Callable[[], ServiceProtocol]:
    """Return what makes a connection's protocol."""
    return lambda: ServiceProtocol(reception, reception.enter)

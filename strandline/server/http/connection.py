"""The HTTP protocol of one connection; hot requests are answered where they are parsed.

Ready bytes are written from the parser's callback, without a task or a thread. Every other request
becomes an ``Exchange`` and goes to the application, one at a time and in order.

The resources of a connection are bounded (``strandline.server.http.limits``):

* its bytes are parsed in slices, taking turns with other connections, and reading stops while
  ``pipelined`` requests wait;
* a request that is too long, too late or no HTTP is refused: earlier requests are answered, then
  the refusal is sent, and what still arrives is discarded for a moment so that the client reads it;
* a client that doesn't read its responses gets no others, and is disconnected after a while;
* when a client disconnects, or closes its sending side (the same FIN), its requests are dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, cast

from fsview.wire.param import FALLBACKS_HEADER, WATCH_PATH
from strandline.server.http.authorization import NOBODY, OPEN_PATHS, PROBING, AdmittedClient
from strandline.server.http.connection_registry import Connection, ConnectionRegistry
from strandline.server.http.exchange import JOINED_BYTES, Exchange, ResponseWriter
from strandline.server.http.limits import BODIES_BYTES, LINGER_S
from strandline.server.http.refusals import Refusal
from strandline.server.http.reply import Reply, failure
from strandline.server.http.request import (
    REQUEST_ID,
    Fields,
    Headers,
    RefusedError,
    Request,
    asked_table,
    check_admitted,
    checked_fields,
    may_report,
    request_of,
    unquoted,
)
from strandline.server.http.request_reader import SLICE_BYTES, Reading, RequestReader
from strandline.server.table_threads import NO_TABLE

_FALLBACKS: Final = FALLBACKS_HEADER.lower().encode()
_EMPTY: Final = memoryview(b"")


class ServiceProtocol(asyncio.Protocol):
    """One connection.

    ``_backlog`` is received but not parsed; if ``_discards``, further bytes are discarded.
    ``_current`` is being answered; ``_queue`` waits for it, and ``_last_words`` for both.
    ``_closing_since`` is when the connection was ended. ``_only_probes``: the server is full, and
    this connection may only send probes.
    """

    def __init__(
        self, registry: ConnectionRegistry, join: Callable[[Connection], bool] | None = None
    ) -> None:
        """Make the protocol; ``join`` registers the connection, ``None``: as a new one."""
        self._registry = registry
        self._join = join or registry.add
        self._reader = RequestReader(registry, self)
        self._writer = ResponseWriter(registry.loop)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._peer = NOBODY
        self._queue: deque[Exchange] = deque()
        self._bodies = BodyBuffer(registry)
        self._current: Exchange | None = None
        self._backlog = _EMPTY
        self._discards = self._parse_scheduled = self._only_probes = False
        self._last_words: bytes | None = None
        self._closing_since: float | None = None

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        registry = self._registry
        self._transport = self._writer.transport = cast("asyncio.Transport", transport)
        self._only_probes = not self._join(self)
        self._reader.since = registry.now
        self._peer = AdmittedClient.of(transport, registry.admission)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop all requests: nobody waits for the responses."""
        self._stop_reading()
        self._queue.clear()
        self._bodies.clear()
        # An exchange that waits for the client must notice that it has disconnected.
        self._writer.wake()
        current, self._current = self._current, None
        if current is not None and current.task is not None:
            # Work that runs on a thread can't be cancelled, but can check this event.
            current.request.cancelled.set()
            current.task.cancel()
        self._registry.remove(self)
        self._reader.close()

    def data_received(self, data: bytes) -> None:
        """Parse bytes, at once or in slices."""
        if self._discards:
            return
        if self._backlog:
            self._backlog = memoryview(bytes(self._backlog) + data)
        elif len(data) <= SLICE_BYTES and len(self._queue) < self._registry.limits.pipelined:
            self._parse(data)
        else:
            self._backlog = memoryview(data)
            self._transport.pause_reading()
            self._parse_slice()

    def pause_writing(self) -> None:
        """Send no more for now: the client is behind with reading."""
        self._writer.paused = True

    def resume_writing(self) -> None:
        """Send again."""
        self._writer.paused = False
        self._writer.wake()
        if self._current is None:
            self._next()

    # Requests in.

    def _parse_slice(self) -> None:
        """Parse the next slice of the backlog, unless too many requests wait."""
        self._parse_scheduled = False
        if not self._backlog or len(self._queue) >= self._registry.limits.pipelined:
            return
        piece, self._backlog = self._backlog[:SLICE_BYTES], self._backlog[SLICE_BYTES:]
        self._parse(piece)
        if self._backlog:
            self._parse_soon()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _parse_soon(self) -> None:
        if not self._parse_scheduled:
            self._parse_scheduled = True
            self._registry.loop.call_soon(self._parse_slice)

    def _parse(self, data: bytes | memoryview) -> None:
        try:
            self._reader.feed(data)
        except RefusedError as refused:
            if not self._discards:
                self._refuse(refused)

    def take(self, target: bytes, headers: Headers) -> bool:
        """Answer a request at once if its response is ready; else queue it for the application.

        Returns:
            ``False`` if its body is to follow first.
        """
        if self._discards:
            raise RefusedError(400, "request after the last one")
        reader, registry = self._reader, self._registry
        method, version = reader.parser.get_method(), reader.parser.get_http_version()
        try:
            fields = checked_fields(headers, method, version)
            check_admitted(registry.admission, self._peer, target, fields)
            if _FALLBACKS in fields and may_report(registry.admission, self._peer, fields):
                registry.refusals.note_fallbacks(fields[_FALLBACKS])
            if (
                # Responses keep the order of requests: only the first in line is answered here.
                self._current is None
                and reader.keep_alive
                # The transport would hold what a client doesn't read, without a bound.
                and not self._writer.paused
                and not self._only_probes
                and method == b"GET"
                and version == "1.1"
                and not self._transport.is_closing()
            ):
                response = registry.hot.respond(target, fields)
                if response is not None:
                    head = registry.ids.head_of(fields)
                    if len(response) <= JOINED_BYTES:
                        self._transport.write(head + response)
                    else:
                        self._transport.write(head)
                        self._transport.write(response)
                    return True
            fields = {**fields, REQUEST_ID: registry.ids.of(fields)}
            return self._enqueue(target, method.decode("ascii"), version, fields)
        except RefusedError as refused:
            found = dict(headers)
            refused.target = target
            refused.accept = found.get(b"accept", b"").decode("latin-1")
            refused.request_id = registry.ids.of(found)
            raise

    def take_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self._bodies.add(piece)

    def take_end(self) -> None:
        """Queue the request whose body is complete."""
        request = self._bodies.complete()
        if request is not None:
            self._queue_up(request)

    def take_no_more(self) -> None:
        """Discard what follows the last request."""
        self._stop_reading()

    def _stop_reading(self) -> None:
        self._discards = True
        self._backlog = _EMPTY

    def _enqueue(self, target: bytes, method: str, version: str, fields: Fields) -> bool:
        """Queue a request for the application, unless its body is awaited; return as ``take``."""
        reader, body_bytes = self._reader, self._registry.limits.body_bytes
        request = request_of(target, method, version, fields, self._peer.address, body_bytes)
        if self._only_probes:
            if request.path not in OPEN_PATHS or method not in PROBING:
                raise self._registry.refusal_of(self)
            reader.keep_alive = False
        if not request.reads_body:
            self._queue_up(request)
            return True
        self._bodies.incoming = request
        # Responses to earlier requests come first; without this line the client sends it soon, too.
        # Clients of HTTP/1.0 don't know it (RFC 9110, 10.1.1).
        expects = version == "1.1" and fields.get(b"expect", b"").lower() == b"100-continue"
        if expects and self._current is None:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return False

    def _queue_up(self, request: Request) -> None:
        keep_alive = self._reader.keep_alive
        self._queue.append(Exchange(self, self._writer, request, keep_alive=keep_alive))
        if self._current is None:
            self._next()

    # Responses out; ``Exchange`` calls the first two.

    def refused(self, request: Request, reply: Reply) -> None:
        """Count and log a refusal, unless the client has disconnected."""
        if not self._transport.is_closing():
            # ``Readiness`` logs what it answers to probes itself.
            silently = request.path in OPEN_PATHS
            self._registry.refusals.note(Refusal.of(request, reply), silently=silently)

    def exchange_over(self, exchange: Exchange, *, whole: bool) -> None:
        """Start the next request; end the connection after a partial response."""
        # ``connection_lost`` came first, and has stopped counting the bodies.
        if exchange is not self._current:
            return
        self._current = None
        self._bodies.release(exchange.request.body)
        took_s = time.perf_counter() - exchange.began_s
        # Requests that wait for a change last as long as their clients ask.
        if exchange.request.path.rstrip("/") != WATCH_PATH:
            self._registry.latencies.note_built(exchange.request.path, took_s)
        if self._reader.phase is Reading.IDLE:
            self._reader.since = self._registry.now
        if not whole and exchange.request.version != "1.1":
            # Without chunks, an orderly end of the connection would be the end of the body.
            self.abort()
        elif not whole:
            self._transport.close()
        elif not exchange.keep_alive:
            self._queue.clear()
            self._end(lingers=self._reader.phase is not Reading.IDLE)
        else:
            self._next()

    def _next(self) -> None:
        """Start the next request, unless the client is behind with reading."""
        if self._queue and not self._writer.paused:
            self._current = self._queue.popleft()
            self._registry.start(self._current)
        elif not self._queue and self._last_words is not None:
            words, self._last_words = self._last_words, None
            self._writer.write(words)
            self._end(lingers=True)
        if self._backlog:
            self._parse_soon()

    # The end.

    def _refuse(self, refused: RefusedError) -> None:
        """Send the refusal once earlier requests are answered; then end the connection."""
        reader, registry = self._reader, self._registry
        registry.counts[f"refused_{refused.status}"] += 1
        if reader.phase is Reading.SURPLUS:
            # Its body is too long or too late, but the request has its response already.
            self._last_words = b""
        else:
            path, accept = refused.target.partition(b"?")[0].decode("latin-1"), refused.accept
            table = _table_of(refused.target)
            request_id = (refused.request_id or registry.ids.of({})).decode("ascii")
            incoming = self._bodies.incoming
            if incoming is not None:
                path, accept, request_id = incoming.path, incoming.accept, incoming.request_id
                table = incoming.table
            registry.refusals.note(
                Refusal(
                    refused.status,
                    refused.message,
                    path=path,
                    table=table,
                    peer=self._peer.address,
                    request_id=request_id,
                )
            )
            reply = failure(refused.status, refused.message, accept)
            reply = replace(reply, headers=refused.headers)
            with_body = reader.parser.get_method() != b"HEAD"
            self._last_words = reply.last_words(request_id, with_body=with_body)
        self._stop_reading()
        reader.phase = Reading.IDLE
        if self._current is None:
            self._next()

    def _end(self, *, lingers: bool) -> None:
        """Close the connection; if it lingers, only the sending side for now.

        If it were closed at once, the system would answer what still arrives with a reset, which
        makes the client's system drop what the client hasn't read yet.
        """
        transport = self._transport
        if transport.is_closing():
            return
        self._stop_reading()
        if lingers and transport.can_write_eof():
            self._closing_since = self._registry.now
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    def shutdown(self) -> None:
        """End once all requests are answered."""
        self._discards = True
        newest = self._queue[-1] if self._queue else self._current
        if newest is not None:
            newest.keep_alive = False
        elif self._peer.encrypted and not self._writer.has_unsent:
            # TLS would wait for the client's agreement, which an idle client doesn't send.
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        """End now."""
        self._writer.abort()

    @property
    def idle_since(self) -> float | None:
        """Since when the client has asked nothing, by the loop's clock; ``None``: it is busy."""
        has_work = self._current is not None or self._queue or self._backlog
        is_busy = has_work or self._transport.is_closing() or self._writer.has_unsent
        return None if is_busy else self._reader.since

    def check(self, now: float) -> None:
        """End the connection if it is overdue."""
        registry, transport, reader = self._registry, self._transport, self._reader
        limits = registry.limits
        stalled_s = self._writer.stalled_s(now)
        if stalled_s is not None:
            if stalled_s > limits.write_s:
                registry.counts["unread"] += 1
                self.abort()
            return
        if transport.is_closing() and self._closing_since is None:
            self._closing_since = now
        waited_s = now - reader.since
        if self._closing_since is not None:
            if now - self._closing_since > LINGER_S:
                self.abort()
        elif self._only_probes and not self._discards and self._current is None:
            if waited_s > LINGER_S:
                self._refuse(registry.refusal_of(self))
        elif reader.phase is not Reading.IDLE:
            if self._backlog:
                reader.since = now  # the server has paused reading, not the client
            elif waited_s > limits.request_s:
                self._refuse(RefusedError(408, f"no whole request in {limits.request_s:g} seconds"))
        elif self._current is None and not self._discards:
            allowed_s = registry.keep_alive_s if reader.used else limits.request_s
            if waited_s > allowed_s:
                registry.counts["idle" if reader.used else "silent"] += 1
                transport.close()


_NAMING_BYTES: Final = 8192
"""Longer targets aren't searched for a table's name: who sent them may not be admitted."""


def _table_of(target: bytes) -> str:
    """Return the table that a refused request is about."""
    path, _, query = target.partition(b"?")
    return asked_table(unquoted(path), query) if len(target) <= _NAMING_BYTES else NO_TABLE


class BodyCount(Protocol):
    """Where the connections of a server count their bodies.

    Attributes:
        body_bytes: Bytes of all bodies received and not answered.
    """

    body_bytes: int


class BodyBuffer:
    """The body that is being received, and the count of those that aren't answered yet.

    Attributes:
        incoming: The request whose body is being received, if any.
    """

    def __init__(self, total: BodyCount) -> None:
        self._total = total
        # One array: a client may send its body in pieces of a byte.
        self._body = bytearray()
        self._held_bytes = 0
        self.incoming: Request | None = None

    def add(self, piece: bytes) -> None:
        """Keep a piece of the body.

        Raises:
            RefusedError: The bodies of all connections leave no room for it.
        """
        if self._total.body_bytes + len(piece) > BODIES_BYTES:
            raise RefusedError(503, "too many bodies of requests at a time", {"retry-after": "1"})
        self._total.body_bytes += len(piece)
        self._held_bytes += len(piece)
        self._body += piece

    def complete(self) -> Request | None:
        """Return the request with its whole body; ``None`` if no body was awaited."""
        request, self.incoming = self.incoming, None
        body, self._body = self._body, bytearray()
        return None if request is None else replace(request, body=bytes(body))

    def release(self, body: bytes) -> None:
        """Stop counting the body of a request that was answered."""
        self._total.body_bytes -= len(body)
        self._held_bytes -= len(body)

    def clear(self) -> None:
        """Drop and stop counting everything: the connection is lost."""
        self.incoming, self._body = None, bytearray()
        self._total.body_bytes -= self._held_bytes
        self._held_bytes = 0

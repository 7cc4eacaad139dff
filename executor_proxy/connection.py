"""Persistent connections to the service, and exchanges over them that are bounded as a whole.

A Python worker of Spark runs many tasks in sequence, each of which opens new views. Connections
outlive the tasks: each thread keeps one for each of the ``MAX_PEERS`` peers used last. They belong
to the process that opened them; a forked process opens its own.

Each wait for the socket ends at the exchange's deadline (``TimedSocket``).

Failures map to errors as follows::

    no connection, connection lost            ServiceUnreachableError   (retryable)
    a certificate that isn't trusted, TLS     ServiceUnreachableError
    no answer within the timeouts             ServiceTimeoutError       (retryable)
    not HTTP, or a body longer than allowed   BadAnswerError

The service may have closed a kept connection while it was idle. This is detected before the request
is sent (the socket is readable), or by the loss of the connection before the first byte of the
answer; then a request that is safe to repeat is sent once more on a new connection.

Source: Hudi 1.2.0 ``TimelineServiceClient``; the stale-connection test is urllib3's.
"""

from __future__ import annotations

import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final, cast

from executor_proxy.exchange import (
    MAX_BODY_BYTES,
    Endpoint,
    Incoming,
    Outgoing,
    Timeouts,
    fingerprint_of,
    pinned_context,
    tls_context,
    too_long,
)
from timeline.errors import (
    BadAnswerError,
    RemoteFailureError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
)

MAX_PEERS: Final = 64
"""Most connections of a thread."""
_CHUNK_BYTES: Final = 1 << 18
_LEAST_S: Final = 0.001
"""Least time-out of a connection opened at the deadline, as 0 would make it non-blocking."""
_MARGIN_BYTES: Final = 1 << 20
"""Allowance for the head of an answer and the framing of its chunks."""
_LOST: Final = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


class _Connection:
    """A connection that records whether it was used, and closes itself with its thread.

    With TLS the bytes of HTTP are the same; the encryption lies below them.

    Attributes:
        used: Whether a request was sent.
    """

    def __init__(self, peer: Endpoint) -> None:
        self._peer = peer
        self._host = _host_field(peer)
        self._sock: TimedSocket | None = None
        self.used = False

    def open(self, timeouts: Timeouts, deadline: float, what: str) -> None:
        """Connect and shake hands, unless it is connected; bound the exchange that follows.

        Raises:
            ServiceUnreachableError: No connection or no handshake; ``what`` names the request.
        """
        if self._sock is None:
            self._sock = TimedSocket(_connected(self._peer, timeouts, deadline, what))
        # Set for each exchange, as a kept connection still has those of the last one.
        self._sock.deadline, self._sock.read_s = deadline, timeouts.read_s
        self._sock.left_bytes = MAX_BODY_BYTES + _MARGIN_BYTES

    def exchange(self, request: Outgoing) -> Incoming:
        """Send a request on the open connection and read its answer."""
        sock: Any = self._sock
        # ``HTTPConnection`` would spend a third of an exchange on checking and joining the head.
        sock.sendall(_request_bytes(request, self._host))
        self.used = True
        response = http.client.HTTPResponse(sock, method=request.method)
        try:
            response.begin()
            body = _body(response)
        except ValueError as error:  # a chunk of negative size
            raise http.client.HTTPException(str(error)) from error
        if response.will_close:
            self.close()
        return Incoming(
            response.status,
            (response.getheader("Content-Encoding") or "").strip().lower(),
            response.getheader("Retry-After"),
            body,
        )

    def is_dropped(self) -> bool:
        """Whether the peer closed it: an idle connection is readable only at its end."""
        if self._sock is None:
            return True
        if hasattr(select, "poll"):  # select() fails for descriptors above 1023
            poll = select.poll()
            poll.register(self._sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([self._sock], [], [], 0)[0])

    def close(self) -> None:
        """Close the connection; the next exchange opens it again."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def __del__(self) -> None:
        self.close()


def _connected(peer: Endpoint, timeouts: Timeouts, deadline: float, what: str) -> socket.socket:
    """Connect to a peer and shake hands."""
    try:
        left_s = max(deadline - time.monotonic(), _LEAST_S)
        address = (peer.host, peer.port)
        sock = socket.create_connection(address, min(timeouts.connect_s, left_s))
    except TimeoutError as error:
        raise _not_sent(f"{what}: no connection within {timeouts.connect_s:g} s") from error
    try:
        # Without it the body of a POST would wait for the acknowledgement of its head.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not peer.encrypted:
            return sock
        # The system accepts connections for a busy service, but the handshake needs the service. So
        # it may take as long as an answer.
        sock.settimeout(min(timeouts.read_s, max(deadline - time.monotonic(), _LEAST_S)))
        fingerprint = fingerprint_of(peer.ca_file)
        if fingerprint is None:
            return tls_context(peer.ca_file).wrap_socket(sock, server_hostname=peer.host)
        encrypted = pinned_context().wrap_socket(sock, server_hostname=peer.host)
        sock = encrypted  # the socket that is closed below
        _check_fingerprint(encrypted, fingerprint, what)
    except TimeoutError as error:
        sock.close()
        raise _not_sent(f"{what}: no TLS handshake within {timeouts.read_s:g} s") from error
    except BaseException:
        sock.close()
        raise
    return encrypted


def _check_fingerprint(sock: ssl.SSLSocket, fingerprint: str, what: str) -> None:
    """Refuse a peer with another certificate than the trusted one.

    Before anything is sent: a program that has taken the port of an ended service gets no token.
    """
    found = sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()
    if found != fingerprint:
        raise _not_sent(
            f"{what}: its certificate has the fingerprint {found}; allowed: {fingerprint}"
        )


def _not_sent(message: str) -> ServiceUnreachableError:
    """Return the error of a request for which no connection was made."""
    error = ServiceUnreachableError(message)
    error.may_have_arrived = False
    return error


def _host_field(peer: Endpoint) -> str:
    """Return the ``Host`` header of requests to a peer."""
    host = f"[{peer.host}]" if ":" in peer.host else peer.host.encode("idna").decode()
    return f"{host}:{peer.port}"


def _request_bytes(request: Outgoing, host: str) -> bytes:
    """Return the bytes of a request.

    Raises:
        ValueError: The target or a header has a line end, or isn't Latin-1.
    """
    lines = [f"{request.method} {request.target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    head = "\r\n".join(lines)
    # Such a value could add headers, or a second request.
    if not head.count("\r") == head.count("\n") == len(lines) - 1:
        raise ValueError(f"a line end in the target or a header of {request.method} {request.path}")
    return f"{head}\r\n\r\n".encode("latin-1") + request.body


class _Connections(threading.local):
    """The connections of one thread: tasks of a Spark worker share nothing but the process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._by_peer: dict[Endpoint, _Connection] = {}

    def take(self, peer: Endpoint) -> _Connection:
        """Return this thread's connection to ``peer``, live or not yet connected."""
        if self._pid != os.getpid():
            # After a fork the sockets are the parent's; closing our copies doesn't end its
            # connections.
            self._by_peer.clear()
            self._pid = os.getpid()
        # Removed and inserted again at the end: the order is that of use (LRU).
        connection = self._by_peer.pop(peer, None)
        if connection is None:
            self._make_room()
        elif connection.is_dropped():
            connection.close()
            # A new object: one whose request failed half-built keeps that half.
            connection = None
        return self._by_peer.setdefault(peer, connection or _Connection(peer))

    def _make_room(self) -> None:
        """Close connections that their peer dropped, and the least recently used over the limit."""
        # A driver may start one service after another, each on a port of its own.
        for peer in [peer for peer, each in self._by_peer.items() if each.is_dropped()]:
            self._by_peer.pop(peer).close()
        while len(self._by_peer) >= MAX_PEERS:
            self._by_peer.pop(next(iter(self._by_peer))).close()


_connections: Final = _Connections()


@dataclass(frozen=True, slots=True)
class KeptConnections:
    """The default transport: ``http.client`` over this thread's kept connections; pickles.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        ca_file: Trusted authorities for https, see ``Endpoint``.
    """

    url: str
    ca_file: str | None = None
    _peer: Endpoint = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Once: parsing a URL takes longer than the rest of what a request needs here.
        object.__setattr__(self, "_peer", Endpoint.of(self.url, self.ca_file))

    def exchange(self, request: Outgoing, timeouts: Timeouts) -> Incoming:
        """Send a request and read its answer, a second time if the kept connection was dead."""
        what = request.shown(self.url)
        deadline = time.monotonic() + timeouts.exchange_s
        connection = _connections.take(self._peer)
        # Only a kept connection may have been closed by the service while it was idle.
        may_repeat = request.is_safe and connection.used
        while True:
            is_open = False
            try:
                connection.open(timeouts, deadline, what)
                is_open = True
                return connection.exchange(request)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not (may_repeat and isinstance(error, _LOST)):
                    failure = _service_error(error, what, timeouts)
                    if isinstance(failure, ServiceUnreachableError):
                        failure.may_have_arrived = is_open
                    raise failure from error
                may_repeat = False
            except BaseException:
                # Interrupted, for instance by a killed task: the unread rest would precede the next
                # answer.
                connection.close()
                raise


def streamed(
    peer: Endpoint, request: Outgoing, timeouts: Timeouts, most_bytes: int
) -> Iterator[bytes]:
    """Yield the body of an answer as it arrives, on a connection of its own.

    The pieces are valid only once the iterator has ended.

    Args:
        peer: Where to send the request.
        request: A request, which is sent once.
        timeouts: Of the exchange; the time that the caller spends on a piece counts.
        most_bytes: Longest body; a little more may come.

    Raises:
        RemoteFailureError: The status isn't 200.
        ServiceError: As the table of this module says.
    """
    what = f"{request.method} {request.path} at {peer.host}:{peer.port}"
    deadline = time.monotonic() + timeouts.exchange_s
    try:
        with closing(TimedSocket(_connected(peer, timeouts, deadline, what))) as sock:
            sock.deadline, sock.read_s = deadline, timeouts.read_s
            sock.left_bytes = most_bytes + _MARGIN_BYTES
            sock.sendall(_request_bytes(request, _host_field(peer)))
            response = http.client.HTTPResponse(cast("Any", sock), method=request.method)
            response.begin()
            if response.status != HTTPStatus.OK:
                raise RemoteFailureError(f"{what} was answered with {response.status}")
            while piece := response.read1(_CHUNK_BYTES):
                yield piece
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
    except (OSError, http.client.HTTPException) as error:
        raise _service_error(error, what, timeouts) from error
    except ValueError as error:  # a chunk of negative size
        raise BadAnswerError(f"the answer to {what} isn't HTTP: {error}") from error


def _body(response: http.client.HTTPResponse) -> bytes:
    """Read a body as it was sent."""
    chunks = []
    while chunk := response.read(_CHUNK_BYTES):
        chunks.append(chunk)
    if response.length:
        # read(n) returns less at an early end of the connection; only read() would raise.
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(chunks)


def _service_error(
    error: OSError | http.client.HTTPException, what: str, timeouts: Timeouts
) -> ServiceError:
    """Return the Strandline error for a failed exchange."""
    if isinstance(error, TimeoutError):
        return ServiceTimeoutError(
            f"{what} was not answered within {timeouts.read_s:g} s a packet and"
            f" {timeouts.exchange_s:g} s in all"
        )
    if isinstance(error, ConnectionRefusedError):
        return ServiceUnreachableError(f"{what}: nothing listens there")
    if isinstance(error, http.client.IncompleteRead):
        return ServiceUnreachableError(f"{what}: the connection was lost during the answer")
    if isinstance(error, _LOST):
        return ServiceUnreachableError(
            f"{what}: the connection was lost before the answer ({error})"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServiceUnreachableError(
            f"{what}: its certificate isn't trusted ({error.verify_message})",
            hint="check ca_file, and that the certificate is for this host",
        )
    if isinstance(error, http.client.HTTPException):
        return BadAnswerError(f"the answer to {what} isn't HTTP: {error!r}")
    return ServiceUnreachableError(f"{what}: no connection ({error})")


class TimedSocket:
    """A socket for ``http.client`` whose every wait ends at the exchange's deadline.

    Args:
        sock: A connected socket, which this object owns.

    Attributes:
        deadline: End of the exchange, on the monotonic clock.
        read_s: Maximum wait for one packet, in seconds.
        left_bytes: Bytes that the exchange may still receive.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.left_bytes = 0
        self.deadline = 0.0
        self.read_s = 0.0

    def limit(self) -> None:
        """Limit the next wait to the time left until the deadline.

        Raises:
            TimeoutError: The deadline has passed.
        """
        # A socket's own timeout restarts with every packet, so a byte a second would never be late.
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(min(left, self.read_s))

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._sock.fileno()

    def sendall(self, data: bytes) -> None:
        """Send all of ``data``; the time-out holds for the whole of it."""
        self.limit()
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader of one response; closing it leaves the socket open."""
        assert mode == "rb"
        return io.BufferedReader(_Reading(self))

    def receive_into(self, buffer: bytearray | memoryview) -> int:
        """Receive some bytes; return their number, 0 at the end of the connection."""
        self.limit()
        received = self._sock.recv_into(buffer)
        # Counted here, because a chunk of size -1 makes http.client read without end.
        self.left_bytes -= received
        if self.left_bytes < 0:
            raise too_long("a request")
        return received

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class _Reading(io.RawIOBase):
    """The raw bytes of one response on a ``TimedSocket``."""

    def __init__(self, timed: TimedSocket) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        return self._timed.receive_into(buffer)

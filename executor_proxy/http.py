"""HTTP calls to the service over persistent connections, with deadlines and mapped errors.

A Python worker of Spark runs many tasks in sequence, each of which opens new views. Connections
outlive the tasks: this module keeps one for each thread and peer. They belong to the process that
opened them; a forked process opens its own. A session is only address, token and timeout, and costs
nothing to make.

Failures map to errors as follows::

    no connection, connection lost            ServiceUnreachableError   (retryable)
    a certificate that isn't trusted          ServiceUnreachableError
    no answer within the timeout              ServiceTimeoutError       (retryable)
    not HTTP, cut or undecodable body         BadAnswerError
    400 of Hudi's routes                      ViewBehindError
    any status with a body that names a code  the class of that code, below 500
    anything else                             RemoteFailureError

The service may have closed a kept connection while it was idle. This shows before the request is
sent (the socket is readable), or as a connection lost before the first byte of the answer; then a
GET, and only a GET, is repeated once on a new connection.

Source: Hudi 1.2.0 ``TimelineServiceClient``; the stale-connection test is urllib3's.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import select
import ssl
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NoReturn
from urllib.parse import urlencode, urlsplit

from timeline.errors import (
    BadAnswerError,
    ConfigError,
    RemoteFailureError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    StrandlineError,
    ViewBehindError,
)

DEFAULT_TIMEOUT_S: Final = 30.0
_CHUNK_BYTES: Final = 1 << 18
_LOST: Final = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_MESSAGE_CHARS: Final = 500
"""Maximum length of an unexpected body quoted in an error."""


@dataclass(frozen=True, slots=True)
class _Peer:
    """The other end of a connection; ``ca_file`` as in ``HttpSession``."""

    host: str
    port: int
    encrypted: bool
    ca_file: str | None


@lru_cache(maxsize=16)
def _context(ca_file: str | None) -> ssl.SSLContext:
    """Return the TLS context of a CA file; cached, because loading it takes milliseconds.

    Raises:
        ConfigError: The file can't be read, or has no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as exc:  # includes SSLError
        reason = "no certificates in PEM" if isinstance(exc, ssl.SSLError) else exc.strerror
        raise ConfigError(f"ca_file {ca_file}: {reason or 'not readable'}") from exc
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class _Connection(http.client.HTTPConnection):
    """An HTTP or HTTPS connection that is closed when its thread ends.

    Attributes:
        used: Whether a request was sent on the current socket.
    """

    used = False

    def __init__(self, peer: _Peer, timeout_s: float) -> None:
        super().__init__(peer.host, peer.port, timeout=timeout_s)
        self._tls = _context(peer.ca_file) if peer.encrypted else None

    def connect(self) -> None:
        """Connect, with a TLS handshake if encrypted."""
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)

    def is_dropped(self) -> bool:
        """Whether the peer closed it: on an idle connection only the end can be readable."""
        if self.sock is None:
            return True
        if hasattr(select, "poll"):  # select() fails for descriptors above 1023
            poll = select.poll()
            poll.register(self.sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([self.sock], [], [], 0)[0])

    def __del__(self) -> None:
        self.close()


class _Connections(threading.local):
    """The connections of one thread.

    Module-level, because the tasks of a Spark worker share nothing but the process.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._by_peer: dict[_Peer, _Connection] = {}

    def take(self, peer: _Peer, timeout_s: float) -> _Connection:
        """Return this thread's connection to ``peer``, with a live socket or none yet."""
        if self._pid != os.getpid():
            # After a fork the sockets are the parent's; closing our copies doesn't end its
            # connections.
            self._by_peer.clear()
            self._pid = os.getpid()
        connection = self._by_peer.get(peer)
        if connection is None:
            connection = self._by_peer[peer] = _Connection(peer, timeout_s)
        elif connection.used and connection.is_dropped():
            connection.close()
            connection.used = False
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection


_connections: Final = _Connections()


@dataclass(frozen=True, slots=True)
class HttpSession:
    """The service's address and credentials; thread-safe, pickles.

    Attributes:
        url: ``http://host:port`` or ``https://host:port``, without a path.
        token: Bearer token, or ``None``; never shown.
        timeout_s: Timeout of connecting, and again of the whole answer, seconds.
        ca_file: PEM file of trusted certificate authorities; ``None`` for the system's.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S
    ca_file: str | None = None

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise ConfigError(f"timeout_s is {self.timeout_s}; allowed: above 0")
        if self._peer.encrypted:
            _context(self.ca_file)
        elif self.ca_file is not None:
            raise ConfigError(f"ca_file is {self.ca_file!r}, but {self.url!r} isn't https")

    @property
    def _peer(self) -> _Peer:
        parts = urlsplit(self.url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
            raise ConfigError(
                f"the timeline service's url is {self.url!r}; allowed: http://HOST:PORT,"
                " https://HOST:PORT"
            )
        return _Peer(parts.hostname, port, parts.scheme == "https", self.ca_file)

    def get(self, path: str, params: Mapping[str, str]) -> bytes:
        """Return the body of the answer to a GET; errors as in ``request``."""
        return self.request("GET", path, params)

    def request(self, method: str, path: str, params: Mapping[str, str]) -> bytes:
        """Send a GET or POST and return the body of the answer.

        The parameters are in the query of a POST, too, as in Hudi.

        Raises:
            ServiceError: See the module's table.
            ViewBehindError: The service can't answer at the caller's timeline.
        """
        target = f"{path}?{urlencode(params)}" if params else path
        what = f"{method} {path} at {self.url}"
        status, encoding, sent = self._send(method, target, what)
        body = _decoded(sent, encoding, what)
        if status != http.client.OK:
            raise_for(status, body, what)
        return body

    def _send(self, method: str, target: str, what: str) -> tuple[int, str, bytes]:
        """Send the request and read the answer, once more if a kept connection was closed."""
        connection = _connections.take(self._peer, self.timeout_s)
        retry = method == "GET" and connection.used
        while True:
            try:
                return _exchange(connection, method, target, self._headers(method))
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not (retry and isinstance(error, _LOST)):
                    raise _named(error, what, self.timeout_s) from error
                retry = False
            except BaseException:
                # Interrupted, as by a killed task: the unread rest would precede the next answer.
                connection.close()
                raise

    def _headers(self, method: str) -> dict[str, str]:
        # Accept concerns errors only, which have a code in JSON.
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if method == "POST":
            headers["Content-Length"] = "0"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


def _exchange(
    connection: _Connection, method: str, target: str, headers: Mapping[str, str]
) -> tuple[int, str, bytes]:
    """Send one request; return the answer's status, content encoding and encoded body."""
    timeout_s = connection.timeout or DEFAULT_TIMEOUT_S
    deadline = time.monotonic() + timeout_s
    connection.request(method, target, headers=dict(headers))
    connection.used = True
    response = connection.getresponse()
    chunks = []
    while chunk := response.read(_CHUNK_BYTES):
        chunks.append(chunk)
        # The socket's timeout restarts with every packet.
        if time.monotonic() > deadline:
            raise TimeoutError
    if response.length:
        # read(n) returns less at an early end of the connection; only read() would raise.
        raise http.client.IncompleteRead(b"", response.length)
    return (
        response.status,
        (response.getheader("Content-Encoding") or "").strip().lower(),
        b"".join(chunks),
    )


def _named(error: OSError | http.client.HTTPException, what: str, timeout_s: float) -> ServiceError:
    """Return the Strandline error for a failed exchange."""
    if isinstance(error, TimeoutError):
        return ServiceTimeoutError(f"{what} was not answered within {timeout_s:g} s")
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


def _decoded(body: bytes, encoding: str, what: str) -> bytes:
    """Undo the content encoding."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise BadAnswerError(
            f"the answer to {what} has content encoding {encoding!r}; allowed: gzip, identity"
        )
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error) as error:
        raise BadAnswerError(f"the answer to {what} isn't complete gzip: {error}") from error


def raise_for(status: int, body: bytes, what: str) -> NoReturn:
    """Raise the error for an answer with a status other than 200.

    Args:
        status: HTTP status.
        body: Decoded body: JSON with ``title`` and optionally ``code`` and ``hint``, or plain text.
        what: Method, path and address, for the message.

    Raises:
        StrandlineError: Always; see the module's table.
    """
    code, text, hint = _parse_error(body)
    if status < http.client.INTERNAL_SERVER_ERROR:
        known = _classes_by_code().get(code)
        if known is not None:
            raise known(text, hint=hint)
        if status == http.client.BAD_REQUEST:
            raise ViewBehindError(text or "the service is on another timeline than the caller")
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        hint = "check that the token is this service's"
    named = f", {code}" if code else ""
    raise RemoteFailureError(f"{what} was answered with status {status}{named}: {text}", hint=hint)


def _parse_error(body: bytes) -> tuple[str, str, str | None]:
    """Return the error's code or ``""``, its message, and its hint."""
    text = body.decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return "", text[:_MESSAGE_CHARS], None
    message = str(document.get("title") or document.get("error") or text)
    hint = document.get("hint")
    code = str(document.get("code") or "")
    return code, message[:_MESSAGE_CHARS], None if hint is None else str(hint)


def _classes_by_code() -> dict[str, type[StrandlineError]]:
    """Return the classes of the error tree by code."""
    classes: dict[str, type[StrandlineError]] = {}
    waiting: list[type[StrandlineError]] = [StrandlineError]
    while waiting:
        cls = waiting.pop()
        classes[cls.code] = cls
        waiting.extend(cls.__subclasses__())
    return classes

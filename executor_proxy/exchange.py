"""One exchange with the service as values: request, answer, timeouts, the peer, the transport.

There are two transports: ``executor_proxy.connection`` over ``http.client``, and
``executor_proxy.requests_session``.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import urlsplit

from fsview.wire.param import REQUEST_ID_HEADER
from timeline.errors import BadAnswerError, ConfigError
from timeline.tracing import UNRECORDED, Span, Value, is_sampled, span

FINGERPRINT: Final = "sha256:"
"""Begins a fingerprint in place of a CA file."""
MAX_BODY_BYTES: Final = 256 << 20
"""Longest body that is accepted, as sent and decoded."""


def check_positive(values: object, *names: str) -> None:
    """Check attributes that are numbers.

    Raises:
        ConfigError: One of them isn't above 0.
    """
    for name in names:
        if not getattr(values, name) > 0:  # nan isn't
            raise ConfigError(f"{name} is {getattr(values, name)}; allowed: above 0")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long one exchange may take, in seconds.

    Attributes:
        connect_s: To connect.
        read_s: For the TLS handshake, and between two packets of the answer.
        exchange_s: From the start of the connection to the last byte of the answer.
    """

    connect_s: float = 2.0
    read_s: float = 10.0
    exchange_s: float = 30.0

    def __post_init__(self) -> None:
        check_positive(self, "connect_s", "read_s", "exchange_s")

    def within(self, seconds: float) -> Timeouts:
        """Return these time-outs, none of them longer than ``seconds``."""
        if seconds >= max(self.each()):
            return self
        return Timeouts(*(min(each, seconds) for each in self.each()))

    def each(self) -> tuple[float, float, float]:
        """Return the three in the order of the attributes."""
        return self.connect_s, self.read_s, self.exchange_s


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request.

    Attributes:
        method: ``GET`` or ``POST``.
        path: Without a query; also names the request in errors.
        target: Path and query as sent.
        headers: Fields by name.
        body: Of a POST.
        is_safe: Whether sending it twice does no harm.
    """

    method: str
    path: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    is_safe: bool = False

    def shown(self, url: str) -> str:
        """Return what names the request to an address in errors."""
        request_id = self.headers.get(REQUEST_ID_HEADER)
        named = "" if request_id is None else f" [request {request_id}]"
        return f"{self.method} {self.path} at {url}{named}"


@dataclass(frozen=True, slots=True)
class Incoming:
    """One answer, read whole.

    Attributes:
        status: HTTP status.
        encoding: Content encoding in lower case, ``""`` for none.
        retry_after: Value of ``Retry-After``, or ``None``.
        body: As sent.
    """

    status: int
    encoding: str
    retry_after: str | None
    body: bytes


class Transport(Protocol):
    """Sends requests to an address and receives the answers; thread-safe."""

    def exchange(self, request: Outgoing, timeouts: Timeouts) -> Incoming:
        """Send a request and read its answer.

        Raises:
            ServiceError: As the table of ``executor_proxy.connection`` says.
        """


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The far end of a connection.

    Attributes:
        host: Name or address.
        port: Its port.
        encrypted: Whether it speaks https.
        ca_file: PEM file of trusted authorities, or ``sha256:`` with the fingerprint of the one
            certificate that is trusted, whatever its names and dates; ``None``: the system's.
    """

    host: str
    port: int
    encrypted: bool
    ca_file: str | None

    @classmethod
    def of(cls, url: str, ca_file: str | None) -> Endpoint:
        """Return the peer at a URL.

        Raises:
            ConfigError: It isn't ``http(s)://host:port``, or ``ca_file`` doesn't go with it.
        """
        try:
            parts = urlsplit(str(url))
            host, port = parts.hostname or "", parts.port
            host.encode("idna")
        except ValueError:  # includes UnicodeError
            parts, host, port = urlsplit(""), "", None
        rest = (parts.path.strip("/"), parts.query, parts.fragment, parts.username)
        is_plain = host.isprintable() and " " not in host and not any(rest)
        if parts.scheme not in ("http", "https") or not host or port is None or not is_plain:
            raise ConfigError(
                f"the timeline service's url is {_shown(url)}; allowed: http://HOST:PORT,"
                " https://HOST:PORT"
            )
        encrypted = parts.scheme == "https"
        if encrypted:
            if fingerprint_of(ca_file) is None:
                tls_context(ca_file)
        elif ca_file is not None:
            raise ConfigError(f"ca_file is {ca_file!r}, but {url!r} isn't https")
        return cls(host, port, encrypted, ca_file)


def _shown(url: object) -> str:
    """Return a URL for a message, without a password."""
    return re.sub(r"//[^/@]*@", "//...@", repr(url))


def fingerprint_of(ca_file: str | None) -> str | None:
    """Return the fingerprint in place of a CA file; ``None``: it is a file, or there is none.

    Raises:
        ConfigError: It isn't a SHA-256 fingerprint.
    """
    if ca_file is None or not ca_file.startswith(FINGERPRINT):
        return None
    digits = ca_file.removeprefix(FINGERPRINT)
    if re.fullmatch("[0-9a-f]{64}", digits) is None:
        raise ConfigError(
            f"ca_file is {ca_file[:100]!r}; allowed: a file, or {FINGERPRINT} with 64 digits of 0-9"
            " and a-f"
        )
    return digits


@lru_cache(maxsize=1)
def pinned_context() -> ssl.SSLContext:
    """Return the TLS context for peers whose certificate's fingerprint is checked.

    The caller checks it before it sends anything: the context trusts every certificate, and the
    handshake proves only that the peer has the certificate's key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@lru_cache(maxsize=16)
def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return the TLS context of a CA file; cached, because loading it takes milliseconds.

    Raises:
        ConfigError: The file can't be read, or holds no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as exc:  # includes SSLError
        reason = "no certificates in PEM" if isinstance(exc, ssl.SSLError) else exc.strerror
        raise ConfigError(f"ca_file {ca_file}: {reason or 'not readable'}") from exc
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def request_span(method: str, path: str, url: str) -> Span:
    """Return the span of a request, by OpenTelemetry's conventions; not of one without a trace.

    Args:
        method: ``GET`` or ``POST``.
        path: Without a query, which may be long.
        url: ``http(s)://host:port``.
    """
    if not is_sampled():
        return UNRECORDED  # without the attributes
    parts = urlsplit(url)
    attributes: dict[str, Value] = {
        "http.request.method": method,
        "server.address": parts.hostname or "",
        "server.port": parts.port or 0,
        "url.full": f"{parts.scheme}://{parts.netloc}{path}",
        "url.template": path,
    }
    return span(f"{method} {path}", attributes, kind="CLIENT")


def note_status(span: Span, status: int) -> None:
    """Record the HTTP status of the answer to a request."""
    span.set("http.response.status_code", status)
    if status >= HTTPStatus.BAD_REQUEST:
        span.fail(str(status))


def too_long(path: str) -> BadAnswerError:
    """Return the refusal of a body beyond ``MAX_BODY_BYTES``."""
    return BadAnswerError(f"the answer to {path} is longer than {MAX_BODY_BYTES} bytes")

"""``ServerOptions``, which are sent to a child process as JSON, and the socket of a server.

Drivers import it, and bind the socket, so it imports no web server.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Final

from strandline.server.http.limits import Limits
from strandline.settings import service as config
from strandline.settings.setting import Settings
from timeline.errors import ConfigError

THREADS: Final = 16
HANGS_S: Final = 10.0
"""After so many seconds a request, or a call to storage, counts as one that hangs."""
_LOOPBACKS: Final = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - looked up
"""The local address of a server that binds all addresses."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of one server.

    Attributes:
        host: The one address to bind.
        port: 0 takes a free one.
        threads: Threads for requests not answered on the loop; the most that a table has.
        grace_s: How long requests in flight may take when the server stops.
        keep_alive_s: How long an idle connection is kept.
        limits: Of one client.
        tls_certificate: File with the certificate; ``None``: plain HTTP.
        tls_key: File with the certificate's key.
        metrics_port: Another port, with ``/metrics`` and probes alone; 0: a free one, -1: none.
        hangs_s: From how many seconds on a request counts as one that hangs.
        tls_own: Certificate that the service made for itself, and its key, in PEM.
    """

    host: str = "127.0.0.1"
    port: int = 0
    threads: int = config.EMBED_THREADS.field(lambda number: number if number > 0 else THREADS)
    grace_s: float = config.STOP_GRACE.field()
    keep_alive_s: float = config.KEEP_ALIVE.field()
    limits: Limits = field(default_factory=Limits)
    metrics_port: int = config.METRICS_PORT.field()
    tls_certificate: str | None = config.TLS_CERTIFICATE.field(lambda path: path or None)
    tls_key: str | None = config.TLS_KEY.field(lambda path: path or None)
    hangs_s: float = HANGS_S
    tls_own: str | None = field(default=None, repr=False)

    @property
    def is_encrypted(self) -> bool:
        """Whether the server speaks https."""
        return self.tls_certificate is not None or self.tls_own is not None

    def url(self, port: int, host: str | None = None) -> str:
        """Return the URL of a server with these options on ``port``.

        Args:
            port: The port that is bound.
            host: Another name or address of the server than the one that is bound.
        """
        scheme = "https" if self.is_encrypted else "http"
        host = host or self.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def local_url(self, port: int) -> str:
        """Return the URL at which the server's own machine reaches it."""
        return self.url(port, _LOOPBACKS.get(self.host))

    @classmethod
    def of(cls, settings: Settings, host: str, port: int) -> ServerOptions:
        """Return the options that the settings ask for."""
        return settings.read(cls, host=host, port=port, limits=settings.read(Limits))


BACKLOG: Final = 1024
"""Connections that may wait to be accepted, as far as the system's ``somaxconn`` allows."""


def bind(host: str, port: int) -> socket.socket:
    """Return a non-blocking socket that listens on ``host:port``; connections wait in its backlog.

    Args:
        host: A name or an address of this machine; ``::`` listens on IPv4, too.
        port: 0 takes a free one.

    Raises:
        ConfigError: The host isn't an address of this machine, or the port is taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as exc:
        reason = getattr(exc, "strerror", "no name of a host")
        raise ConfigError(f"host {host!r} is no address of this machine: {reason}") from exc
    family, _, _, _, address = found[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server(
            address, family=family, backlog=BACKLOG, dualstack_ipv6=both
        )
    except OSError as exc:
        reason = os.strerror(exc.errno or 0)
        raise ConfigError(f"can't listen on {host} port {port}: {reason}") from exc
    listener.setblocking(False)
    return listener

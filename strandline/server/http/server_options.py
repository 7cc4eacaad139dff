"""``ServerOptions``: plain values, which are sent to a child process as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from strandline.server.http.hanging import HANGS_S
from strandline.server.http.limits import Limits
from strandline.settings import service as config
from strandline.settings.setting import Settings

THREADS: Final = 16
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

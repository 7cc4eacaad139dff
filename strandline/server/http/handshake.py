"""``TlsListener``: registers TLS connections when they are accepted, before their handshake.

asyncio's server doesn't show a connection before its handshake is done, so clients that never
finish theirs could take every file descriptor of the process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from functools import partial
from typing import Final

from strandline.server.http.connection import ServiceProtocol
from strandline.server.http.connection_registry import ConnectionRegistry

logger = logging.getLogger(__name__)

ACCEPT_AGAIN_S: Final = 1.0
"""Pause after the system had no file descriptor or no memory for a connection."""
_OF_ONE_CONNECTION: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOPROTOOPT,
        errno.EPERM,
        errno.EPROTO,
    }
)
"""Linux's errors for a connection that ended before it was accepted; others may be waiting."""


class TlsListener:
    """Accepts the connections of a socket and begins their handshakes; of one loop.

    Attributes:
        context: Of the next handshake; another one may take its place at any time.
    """

    def __init__(
        self, registry: ConnectionRegistry, listener: socket.socket, context: ssl.SSLContext
    ) -> None:
        self._registry = registry
        self._listener = listener
        self.context = context
        self._accepting = registry.loop.create_task(self._accept())

    def close(self) -> None:
        """Stop accepting."""
        self._accepting.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        while True:
            try:
                accepted, _ = await self._registry.loop.sock_accept(self._listener)
            except OSError as exc:
                if exc.errno in _OF_ONE_CONNECTION:
                    self._registry.counts["no_handshake"] += 1
                    await asyncio.sleep(0)
                else:
                    logger.warning("a connection can't be accepted: %s", exc.strerror)
                    await asyncio.sleep(ACCEPT_AGAIN_S)
            else:
                self._take_in(accepted)

    def _take_in(self, accepted: socket.socket) -> None:
        """Begin a handshake; an error doesn't stop the listener."""
        try:
            Handshake(self._registry, accepted, self.context)
        except Exception:
            logger.exception("a connection can't be taken in")
            accepted.close()


class Handshake:
    """A registered connection during its handshake; its protocol takes its place then."""

    __slots__ = ("_accepted", "_registry", "_since", "_task")

    def __init__(
        self, registry: ConnectionRegistry, accepted: socket.socket, context: ssl.SSLContext
    ) -> None:
        self._registry = registry
        self._accepted = accepted
        # Before ``add``, which aborts this connection at once if the server has stopped.
        self._task = registry.loop.create_task(self._shake_hands(context))
        self._task.add_done_callback(self._over)
        try:
            registry.add(self)
        except BaseException:
            self._task.cancel()
            raise
        self._since = registry.now

    async def _shake_hands(self, context: ssl.SSLContext) -> None:
        registry = self._registry
        join = partial(registry.replace, self)
        try:
            await registry.loop.connect_accepted_socket(
                lambda: ServiceProtocol(registry, join),
                self._accepted,
                ssl=context,
                ssl_handshake_timeout=registry.limits.handshake_s,
            )
        except OSError:  # the client's fault, or a timeout
            registry.counts["no_handshake"] += 1

    def _over(self, task: asyncio.Task[None]) -> None:
        """Unregister, unless the protocol has taken this place."""
        if task.cancelled():
            self._accepted.close()  # the transport may not own the socket yet
        self._registry.remove(self)

    @property
    def idle_since(self) -> float | None:
        """When it was accepted."""
        return self._since

    def check(self, now: float) -> None:
        """Do nothing: the handshake has a timeout of its own."""

    def shutdown(self) -> None:
        """End now: there is no request."""
        self._task.cancel()

    def abort(self) -> None:
        """End now."""
        self._task.cancel()

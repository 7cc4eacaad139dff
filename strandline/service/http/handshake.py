"""TLS handshakes: a connection counts from the moment it is accepted, not once they are done.

A server of asyncio's knows nothing of a connection before its handshake is done, and clients that
never finish theirs could take every descriptor of the process. So sockets are accepted here, and
the reception lets each in, or doesn't, before it is shaken hands with.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from functools import partial
from typing import Final

from strandline.service.http.connection import ServiceProtocol
from strandline.service.http.connection_registry import Reception

logger = logging.getLogger(__name__)

_ACCEPT_AGAIN_S: Final = 1.0
"""After the system had no descriptor for a connection."""


class TlsListener:
    """Accepts the connections of a socket and begins their handshakes; of one loop."""

    def __init__(
        self, reception: Reception, listener: socket.socket, context: ssl.SSLContext
    ) -> None:
        self._reception = reception
        self._listener = listener
        self._context = context
        self._accepting = reception.loop.create_task(self._accept())

    def close(self) -> None:
        """Accept nobody any more."""
        self._accepting.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        while True:
            try:
                accepted, _ = await self._reception.loop.sock_accept(self._listener)
            except OSError as exc:
                logger.warning("a connection can't be accepted: %s", exc.strerror)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
            else:
                Handshake(self._reception, accepted, self._context)


class Handshake:
    """A connection until its handshake is done: a guest whose place its protocol takes then."""

    __slots__ = ("_accepted", "_reception", "_since", "_task")

    def __init__(
        self, reception: Reception, accepted: socket.socket, context: ssl.SSLContext
    ) -> None:
        self._reception = reception
        self._accepted = accepted
        self._task = reception.loop.create_task(self._shake_hands(context))
        self._task.add_done_callback(self._over)
        reception.enter(self)
        self._since = reception.now

    async def _shake_hands(self, context: ssl.SSLContext) -> None:
        reception = self._reception
        enter = partial(reception.hand_on, self)
        try:
            await reception.loop.connect_accepted_socket(
                lambda: ServiceProtocol(reception, enter),
                self._accepted,
                ssl=context,
                ssl_handshake_timeout=reception.limits.handshake_s,
            )
        except OSError:  # what the client did wrong, or that it took too long
            reception.counts["no_handshake"] += 1

    def _over(self, task: asyncio.Task[None]) -> None:
        """Leave, unless the protocol has taken this place."""
        if task.cancelled():
            self._accepted.close()  # it may have been cancelled before anybody took the socket
        self._reception.leave(self)

    @property
    def waits_since(self) -> float | None:
        """When it came: it has waited for its client all the time."""
        return self._since

    def look(self, now: float) -> None:
        """Do nothing: the handshake has a time-out of its own."""

    def shutdown(self) -> None:
        """End now: nothing was asked."""
        self._task.cancel()

    def cut_off(self) -> None:
        """End now."""
        self._task.cancel()

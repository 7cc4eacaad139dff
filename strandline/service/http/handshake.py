"""TLS handshakes: a connection counts from the moment it is accepted, not once they are done.

A server of asyncio's knows nothing of a connection before its handshake is done, and clients that
never finish theirs could take every descriptor of the process. So sockets are accepted here, and
the reception lets each in, or doesn't, before it is shaken hands with.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from functools import partial
from typing import Final

from strandline.service.http.connection import ServiceProtocol
from strandline.service.http.connection_registry import Reception

logger = logging.getLogger(__name__)

ACCEPT_AGAIN_S: Final = 1.0
"""After the system had no descriptor or no memory for a connection."""
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
"""What Linux says of a connection that is gone before it is accepted; others may be waiting."""


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
                if exc.errno in _OF_ONE_CONNECTION:
                    self._reception.counts["no_handshake"] += 1
                    await asyncio.sleep(0)
                else:
                    logger.warning("a connection can't be accepted: %s", exc.strerror)
                    await asyncio.sleep(ACCEPT_AGAIN_S)
            else:
                self._take_in(accepted)

    def _take_in(self, accepted: socket.socket) -> None:
        """Begin a handshake; whatever becomes of it, others are accepted."""
        try:
            Handshake(self._reception, accepted, self._context)
        except Exception:
            logger.exception("a connection can't be taken in")
            accepted.close()


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
        try:
            reception.enter(self)
        except BaseException:
            self._task.cancel()
            raise
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

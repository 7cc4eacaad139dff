"""``ResponseWriter``: the sending side of a connection, with backpressure from its client.

The transport buffers what the client hasn't taken. Beyond a limit it pauses the writer: nothing new
is sent then, and a client that takes nothing for too long is disconnected.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, cast

_NO_LINGER: Final = struct.pack("ii", 1, 0)


class ResponseWriter:
    """Writes to one transport; on the server's loop only.

    Attributes:
        transport: Set once the connection is made.
        paused: Whether the client is behind with reading.
    """

    __slots__ = ("_loop", "_unsent", "_unsent_since", "_waiters", "paused", "transport")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: list[asyncio.Future[None]] = []
        self._unsent = 0
        self._unsent_since = 0.0
        self.paused = False
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)

    async def writable(self) -> None:
        """Wait until the client has read most of the data sent, or has disconnected."""
        while self.paused and not self.transport.is_closing():
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def write(self, data: bytes) -> None:
        """Send bytes; does nothing once the connection closes."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def wake(self) -> None:
        """Have the callers that wait in ``writable`` check again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def has_unsent(self) -> bool:
        """Whether the client hasn't taken all it was sent."""
        return self.transport.get_write_buffer_size() > 0

    def stalled_s(self, now: float) -> float | None:
        """Return for how many seconds, as observed by calls of this, the client has read nothing.

        Returns:
            ``None`` if everything is sent.
        """
        unsent = self.transport.get_write_buffer_size()
        if unsent and (not self._unsent or unsent < self._unsent):
            self._unsent_since = now
        self._unsent = unsent
        return now - self._unsent_since if unsent else None

    def abort(self) -> None:
        """Disconnect now; the system drops what isn't sent, too."""
        if not self.transport.is_closing() or self.has_unsent:
            connected: socket.socket = self.transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

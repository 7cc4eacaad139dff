"""``TimedSocket``: a socket with a deadline and a limit of bytes for a whole exchange."""

from __future__ import annotations

import io
import socket
import time

from executor_proxy.exchange import too_long


class TimedSocket:
    """A socket for ``http.client`` on which every wait ends with the exchange's deadline.

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
        """Cut the next wait to the time left until the deadline.

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
        """Return a reader of one response, whose end leaves the socket open."""
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

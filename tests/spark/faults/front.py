"""A server in front of the real service that forwards, delays or spoils its answers."""

from __future__ import annotations

import threading
from collections.abc import Callable

from executor_proxy.failover import PROBE
from executor_proxy.http import HttpSession
from tests.executor_proxy.scripted_server import Drip, Raw, Reply, Request, ScriptedServer
from timeline.errors import StrandlineError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DRIP = Drip(HEAD, b"X-Filler: 1\r\n")
GARBAGE = Raw(b"\x16\x03\x01\x00garbage\r\n\r\n")
HALF = Raw(HEAD + b"Content-Length: 1000\r\n\r\n[{")


class Front:
    """A server whose tasks' requests are answered as told; a context manager.

    Args:
        service: The real service.
        answer: Returns the answer to the n-th look-up, counted from 0.
    """

    def __init__(
        self, service, answer: Callable[[Front, int, Request], Reply | Raw | Drip]
    ) -> None:
        self._real = HttpSession(service.url, service.token)
        self._answer = answer
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.asked = 0
        self._server = ScriptedServer(self._script)

    def __enter__(self) -> Front:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.stop()

    @property
    def url(self) -> str:
        return self._server.url

    def forward(self, request: Request) -> Reply:
        """Return the real service's answer."""
        try:
            return Reply(self._real.get(request.path, request.params))
        except StrandlineError as error:
            return Reply(str(error).encode(), 500)

    def delay(self, seconds: float) -> None:
        """Wait, or until the server stops."""
        self._stopped.wait(seconds)

    def _script(self, request: Request) -> Reply | Raw | Drip:
        with self._lock:
            number = self.asked
            # A probe is answered as badly, so that none closes a circuit again.
            self.asked += request.path != PROBE
        return self._answer(self, number, request)

"""A service in a thread of the process that owns it: for tests and notebooks."""

from __future__ import annotations

from strandline.service.http.server import ServiceServer
from strandline.service.process.options import Birth
from strandline.service.process.parts import Parts


class InProcess:
    """The service's thread, started; a ``Runner``.

    Attributes:
        server: The server, and through it every part; tests look at them.
    """

    def __init__(self, birth: Birth) -> None:
        self.server = ServiceServer(Parts(birth.parts), birth.server)
        self._thread = self.server.start_thread()
        self.url = self.server.url

    @property
    def is_running(self) -> bool:
        """Whether the thread serves."""
        return self._thread.is_alive()

    def add_root(self, root: str) -> None:
        """Serve the tables at and below ``root`` too."""
        self.server.parts.views.add_root(root)

    def stop(self) -> None:
        """End the thread."""
        self.server.stop()
        self._thread.join()

    def abandon(self) -> None:
        """Close the copied listening socket, so that the port is free when its owner ends."""
        self.server.close_after_fork()

"""A service in a thread of the process that owns it, for tests and notebooks."""

from __future__ import annotations

from strandline.server.http.server import ServiceServer
from strandline.server.process import at_fork
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import Birth


class InProcess:
    """A running service thread, with the interface of ``Supervisor``.

    Attributes:
        port: The port that is bound.
        url: Where the service answers this process.
    """

    def __init__(self, birth: Birth) -> None:
        """Start the thread; returns once it serves."""
        self._server = ServiceServer(Parts(birth.parts), birth.server)
        at_fork.add(self)
        self._thread = self._server.start_thread()
        self.port = self._server.port
        self.url = birth.server.local_url(self.port)

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    @property
    def roots(self) -> tuple[str, ...]:
        """The roots that are served."""
        return self._server.parts.views.roots()

    def add_root(self, root: str) -> None:
        """Serve the tables at and below ``root``, too."""
        self._server.parts.add_root(root)

    def remove_root(self, root: str) -> None:
        """Refuse the tables at and below ``root``; see ``Parts.remove_root``."""
        self._server.parts.remove_root(root)

    def stop(self) -> None:
        """Stop the service and join its thread."""
        at_fork.remove(self)
        self._server.stop()
        self._thread.join()

    def abandon(self) -> None:
        """Close this process's copy of the listening socket, after a fork.

        The port is free only when the last copy is closed.
        """
        self._server.close_after_fork()

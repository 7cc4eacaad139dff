"""A ZooKeeper server in a JVM that has the jars which Spark brings along."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TICK_MS = 500


class ZookeeperServer:
    """A server that can be stopped and started again, with its nodes and its address.

    Args:
        jvm: The JVM.
        folder: Where it keeps its nodes; sessions of 1 to 10 s are allowed.

    Attributes:
        port: Its port.
    """

    def __init__(self, jvm: Any, folder: object) -> None:
        self._jvm = jvm
        self._folder = str(folder)
        self.port = 0
        self.start()

    def allow_sessions(self, most_ms: int = 20 * TICK_MS) -> None:
        """Have connections that are made from now on get sessions of at most some milliseconds."""
        self._server.setMaxSessionTimeout(most_ms)

    @property
    def hosts(self) -> str:
        """The address, ``host:port``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve, at the same port as before if it served before."""
        package = self._jvm.org.apache.zookeeper.server
        place = self._jvm.java.io.File(self._folder)
        self._server = package.ZooKeeperServer(place, place, TICK_MS)
        self._factory = package.NIOServerCnxnFactory()
        self._factory.configure(self._jvm.java.net.InetSocketAddress("127.0.0.1", self.port), 100)
        self._factory.startup(self._server)
        self.port = self._factory.getLocalPort()

    def stop(self) -> None:
        """Cut all connections and accept no more."""
        self._factory.shutdown()
        self._server.shutdown()

    def received(self) -> int:
        """Return the number of packets that it has received since it was started."""
        return int(self._server.serverStats().getPacketsReceived())

    def end_session(self, session: int) -> None:
        """End a client's session, as the server does when it hears nothing from it."""
        self._server.closeSession(session)


@contextmanager
def zookeeper_server(jvm: Any, folder: object) -> Iterator[ZookeeperServer]:
    """Run a server within the block."""
    server = ZookeeperServer(jvm, folder)
    try:
        yield server
    finally:
        server.stop()

"""A ZooKeeper server in Spark's JVM, of the jars that Spark brings along."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

TICK_MS = 500


@dataclass(frozen=True)
class ZookeeperServer:
    """A running server.

    Attributes:
        hosts: ``host:port``.
    """

    hosts: str
    server: Any

    def end_session(self, session: int) -> None:
        """End a client's session, as the server does when it hears nothing from it."""
        self.server.closeSession(session)


@contextmanager
def zookeeper_server(jvm: Any, folder: object) -> Iterator[ZookeeperServer]:
    """Run a server within the block; sessions of 2 s are allowed."""
    package = jvm.org.apache.zookeeper.server
    place = jvm.java.io.File(str(folder))
    server = package.ZooKeeperServer(place, place, TICK_MS)
    factory = package.NIOServerCnxnFactory()
    factory.configure(jvm.java.net.InetSocketAddress("127.0.0.1", 0), 100)
    factory.startup(server)
    try:
        yield ZookeeperServer(f"127.0.0.1:{factory.getLocalPort()}", server)
    finally:
        factory.shutdown()
        server.shutdown()

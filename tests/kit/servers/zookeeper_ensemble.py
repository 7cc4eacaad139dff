"""Three ZooKeeper servers, each a process with the jars that Spark brings along."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.free_port import free_port
from tests.kit.servers.zookeeper_server import TICK_MS

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class EnsembleServer:
    """One of the servers, which can be killed and started again.

    Attributes:
        port: Where clients reach it.
    """

    def __init__(self, java: Sequence[str], folder: Path, number: int) -> None:
        self.port = free_port()
        self.among = f"127.0.0.1:{free_port()}:{free_port()}"
        self._command, self._folder, self._number = java, folder, number
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, others: Sequence[EnsembleServer]) -> None:
        """Write its files; ``others`` are all servers."""
        data = self._folder / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(str(self._number))
        lines = [
            f"dataDir={data}",
            "clientPortAddress=127.0.0.1",
            f"clientPort={self.port}",
            f"tickTime={TICK_MS}",
            "initLimit=20",
            "syncLimit=10",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *(f"server.{other._number}={other.among}" for other in others),
        ]
        (self._folder / "zoo.cfg").write_text("\n".join(lines))

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, _MAIN, str(self._folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    def kill(self) -> None:
        """Kill it with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None

    def mode(self) -> str | None:
        """Return ``leader`` or ``follower``; ``None``: it serves nobody."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as asked:
                asked.sendall(b"srvr")
                with asked.makefile("rb") as told:
                    for line in told:
                        if line.startswith(b"Mode: "):
                            return line[6:].strip().decode()
        except OSError:
            pass  # it doesn't listen yet, or not any more
        return None


@contextmanager
def zookeeper_ensemble(java: Sequence[str], folder: Path) -> Iterator[list[EnsembleServer]]:
    """Run three servers within the block.

    Args:
        java: Runs the class that follows it, with the jars.
        folder: For their data and logs.
    """
    with ExitStack() as stack:
        servers = [EnsembleServer(java, folder / f"zk{n}", n) for n in (1, 2, 3)]
        for server in servers:
            server.configure(servers)
        for server in servers:
            stack.callback(server.kill)
            server.start()
        yield servers

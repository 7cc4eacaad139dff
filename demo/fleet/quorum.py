"""``Quorum``: servers of ZooKeeper in processes of their own, from the jars that PySpark has."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from demo.spark import java_home
from tests.kit.free_port import free_port

READY_S: Final = 60.0
_LOOK_S: Final = 0.1
_TICK_MS: Final = 500


class QuorumError(RuntimeError):
    """ZooKeeper's servers don't elect a leader."""


class Quorum:
    """The servers; a context manager that starts and ends them.

    Args:
        folder: An empty folder for their data and logs.
        size: Number of servers.
    """

    def __init__(self, folder: Path, size: int = 3) -> None:
        self._folder = folder
        self._ports = [free_port() for _ in range(size)]
        peers = [
            f"server.{n}=127.0.0.1:{free_port()}:{free_port()};127.0.0.1:{port}"
            for n, port in enumerate(self._ports, 1)
        ]
        for number in range(1, size + 1):
            data = folder / str(number)
            data.mkdir(parents=True)
            (data / "myid").write_text(str(number))
            lines = [f"dataDir={data}", f"tickTime={_TICK_MS}", "initLimit=20", "syncLimit=10"]
            lines += ["admin.enableServer=false", "4lw.commands.whitelist=srvr", *peers]
            (data / "zoo.cfg").write_text("\n".join(lines) + "\n")
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Quorum:
        for number in range(1, len(self._ports) + 1):
            self._start(number)
        self.leader()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    @property
    def hosts(self) -> str:
        """The addresses, as clients take them."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def leader(self) -> int:
        """Return the number of the server that leads, once one does.

        Raises:
            QuorumError: None does within ``READY_S``.
        """
        until_s = time.monotonic() + READY_S
        while time.monotonic() < until_s:
            for number in self._processes:
                if "Mode: leader" in self._told(number):
                    return number
            time.sleep(_LOOK_S)
        raise QuorumError(f"no leader after {READY_S:g} s; logs are in {self._folder}")

    def kill(self, number: int) -> None:
        """Kill a server."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def _start(self, number: int) -> None:
        import pyspark  # noqa: PLC0415 - the page and its parts are tested without

        data = self._folder / str(number)
        jars = Path(pyspark.__file__).parent / "jars"
        with (data / "log").open("wb") as log:
            self._processes[number] = subprocess.Popen(
                [
                    *(str(java_home(pyspark.__version__) / "bin" / "java"), "-Xmx96m"),
                    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", str(jars / "*")),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(data / "zoo.cfg"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _told(self, number: int) -> str:
        """Return what a server says of itself, empty if it doesn't answer."""
        answer = b""
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self._ports[number - 1]), 2) as connection,
        ):
            connection.sendall(b"srvr")
            while piece := connection.recv(4096):
                answer += piece
        return answer.decode()

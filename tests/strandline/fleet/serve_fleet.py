"""Processes of ``strandline serve`` that are one fleet, by default with its state in a file."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from executor_proxy.seat_ring import Layout, Seat, owners
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.servers.free_port import free_port
from tests.kit.servers.live_service import Answered, HttpClient
from tests.kit.servers.serve_process import ServeProcess, run_here
from timeline.storage.table_id import TableId

DEAD_S: Final = 5.0
"""When a silent server counts as dead."""


class FleetServer(ServeProcess):
    """A server of a fleet, which keeps its address over restarts.

    Attributes:
        url: The address.
    """

    def __init__(
        self,
        root: Path | None,
        folder: Path,
        name: str,
        *options: str,
        state: str | None = None,
        inside: tuple[str, ...] = (),
        host: str = "127.0.0.1",
    ) -> None:
        port = free_port()
        self.url = f"http://{host}:{port}"
        super().__init__(
            root,
            folder / f"{name}.log",
            *("--fleet", state or state_url(folder), "--advertise", self.url),
            *("--fleet-heartbeat", "0.5", "--fleet-dead", f"{DEAD_S:g}", *options),
            inside=inside,
            host=host,
        )
        self.port = port

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def hang(self) -> None:
        """Stop the process at a moment when it holds no lock of a file.

        It would keep the lock, and no other server could write to a state store in a file.
        """
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.send(signal.SIGSTOP)
            while not self.is_stopped():
                pause()
            locks = (line.split() for line in Path("/proc/locks").read_text().splitlines())
            if not any("WRITE" in lock and str(self._process.pid) in lock for lock in locks):
                return
            assert time.monotonic() < deadline
            self.send(signal.SIGCONT)
            pause()

    @property
    def is_up(self) -> bool:
        """Whether the process has been started and not ended."""
        return self._process is not None

    def is_stopped(self) -> bool:
        """Whether a signal has stopped the process."""
        assert self._process is not None
        told = Path(f"/proc/{self._process.pid}/stat").read_text()
        return told.rpartition(")")[2].split()[0] == "T"

    def fleet(self) -> dict[str, Any]:
        """Return the fleet as the server knows it."""
        found: dict[str, Any] = self.status()["fleet"]
        return found

    def seats(self) -> dict[int, str]:
        """Return number and holder of the seats whose holders live and are ready."""
        members = self.fleet()["members"]
        found = {member["seat"]: member["url"] for member in members if member["ready"]}
        found.pop(None, None)
        return found

    def asked(self) -> int:
        """Return how many questions about views the server has answered."""
        return sum(self.status()["requests"].values())

    def ask(self, path: str, params: dict[str, str], method: str = "GET") -> Answered:
        """Ask on a connection of its own."""
        with HttpClient(self.port, None, host=self.host) as client:
            return client.request(method, f"{path}?{urlencode(params)}")


def state_url(folder: Path) -> str:
    return f"sqlite://{folder}/fleet.db"


def wait_until(is_so: Callable[[], bool]) -> None:
    """Ask servers until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        pause()


def wait_for_seats(servers: Iterable[FleetServer], seats: dict[int, str]) -> None:
    """Wait until all servers know these seats, and no others."""
    for server in servers:
        deadline = time.monotonic() + PATIENCE_S
        while server.seats() != seats:
            assert time.monotonic() < deadline, f"{server.url} knows {server.fleet()}, not {seats}"
            pause()


def placed(servers: Iterable[FleetServer], base_path: str, layout: Layout) -> list[FleetServer]:
    """Return the servers of a table, the owner first, and then the others."""
    by_url = {server.url: server for server in servers}
    seats = [Seat(number, url) for number, url in next(iter(by_url.values())).seats().items()]
    table = str(TableId.of(base_path).normal())
    found = [by_url[str(seat.url)] for seat in owners(seats, table, layout=layout)]
    return [*found, *(server for server in by_url.values() if server not in found)]


def check_a_fleet_of_servers(folder: Path, state: str) -> None:
    """Have two servers and a standby join, one killed and replaced, and all end.

    Args:
        folder: Has an empty ``lake``.
        state: URL of the state store.
    """
    with ExitStack() as stack:
        a, b, standby = (
            stack.enter_context(FleetServer(folder / "lake", folder, name, *how, state=state))
            for name, how in (("a", ()), ("b", ()), ("s", ("--standby",)))
        )
        wait_for_seats((a, b, standby), {0: a.url, 1: b.url})
        b.kill()
        wait_for_seats((a, standby), {0: a.url, 1: standby.url})
        b.start()
        wait_until(lambda: len(a.fleet()["members"]) == 3)
        assert a.seats() == {0: a.url, 1: standby.url}
        assert a.fleet()["trouble"] is None


def refused(root: Path | None, *options: str) -> tuple[int, str]:
    """Return the exit code and the message of a server that doesn't serve."""
    roots = () if root is None else ("--root", str(root))
    ended = run_here(*roots, "--port", "0", *options)
    assert ended.stderr.count("Error: ") == 1, ended.stderr
    return ended.exit_code, ended.stderr.partition("Error: ")[2]

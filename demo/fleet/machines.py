"""``Machines``: the fleet's servers by name, and what a watcher counts at them."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from demo.fleet.record import Sample
from executor_proxy.seat_ring import Layout, Seat, addresses, owners
from tests.strandline.fleet.serve_fleet import FleetServer, wait_until
from timeline.storage.table_id import TableId

LAYOUT: Final = Layout(copies=3)
_EACH_S: Final = 0.25


class Machines:
    """The servers of one fleet; a context manager that ends them.

    Args:
        lake: The folder of the tables.
        folder: For logs.
        state: URL of the state store.
        store: URL of the store of views.
    """

    def __init__(self, lake: Path, folder: Path, state: str, store: str) -> None:
        self._lake, self._folder, self.state = lake, folder, state
        self._options = ("--storage", "sql", "--store-url", store)
        self._stack = ExitStack()
        self._all: dict[str, FleetServer] = {}
        self._running: set[str] = set()

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, name: str, *options: str) -> None:
        """Start a server, again with its address if it ran before."""
        server = self._all.get(name)
        if server is None:
            server = FleetServer(
                self._lake, self._folder, name, *self._options, *options, state=self.state
            )
            self._all[name] = self._stack.enter_context(server)
        else:
            server.start()
        self._running.add(name)

    def kill(self, name: str) -> None:
        """Kill a server."""
        self._running.discard(name)
        self._all[name].kill()

    def wait_for_members(self) -> None:
        """Wait until all running servers know each other."""
        running = {self._all[name].url for name in self._running}
        for name in sorted(self._running):
            wait_until(
                lambda server=self._all[name]: (
                    running  # type: ignore[misc]
                    == {member["url"] for member in server.fleet()["members"]}
                )
            )

    def seats(self) -> list[Seat]:
        """Return the seats whose holders live, as a running server knows them."""
        server = self._all[min(self._running)]
        return [Seat(number, url) for number, url in server.seats().items()]

    def urls(self, base_path: str) -> tuple[tuple[str, ...], int]:
        """Return the addresses of a table, and how many of them have copies of it."""
        found = addresses(self.seats(), base_path, LAYOUT)
        return found.urls, found.copies

    def owner(self, base_path: str) -> str:
        """Return the name of a table's owner."""
        owner = owners(self.seats(), str(TableId.of(base_path).normal()), layout=LAYOUT)[0]
        return next(name for name, server in self._all.items() if server.url == owner.url)

    def status(self, base_path: str) -> str:
        """Return what ``strandline fleet status`` prints."""
        command = [sys.executable, "-m", "strandline", "fleet", "status", self.state]
        done = subprocess.run(
            [*command, "--table", base_path], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def answered(self) -> dict[str, int]:
        """Return how many questions each server has answered that answers now."""
        found = {}
        for name in sorted(self._running):
            try:
                found[name] = self._all[name].asked()
            except (OSError, http.client.HTTPException):
                continue  # it was killed meanwhile: it has no count
        return found


class Watcher:
    """Counts at the servers until the block ends.

    Args:
        machines: The servers.
        samples: Where the counts go.
        clock: Returns seconds since the beginning.
    """

    def __init__(
        self, machines: Machines, samples: list[Sample], clock: Callable[[], float]
    ) -> None:
        self._machines, self._samples, self._clock = machines, samples, clock
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ends.wait(_EACH_S):
            self._samples.append(Sample(self._clock(), self._machines.answered()))


def stopwatch() -> Callable[[], float]:
    """Return a clock of the seconds from now on."""
    begun = time.monotonic()
    return lambda: time.monotonic() - begun

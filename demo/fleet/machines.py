"""``Machines``: the fleet's servers by name, and what a watcher counts at them."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

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
        options: Of all servers.
    """

    def __init__(self, lake: Path, folder: Path, state: str, *options: str) -> None:
        self._lake, self._folder, self.state = lake, folder, state
        self._options = options
        self._stack = ExitStack()
        self._all: dict[str, FleetServer] = {}
        self._running: set[str] = set()

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, name: str, *options: str) -> None:
        """Start a server, again with its address and options if it ran before."""
        server = self._all.get(name)
        if server is None:
            lake = None if "--router" in options else self._lake
            server = FleetServer(
                lake, self._folder, name, *self._options, *options, state=self.state
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

    def owned(self, tables: Iterable[str]) -> dict[str, list[str]]:
        """Return name of a server → the tables, of these base paths, that it owns."""
        seats, found = self.seats(), {name: [] for name in self._running}
        by_url = {self._all[name].url: name for name in self._running}
        for table in tables:
            owner = owners(seats, str(TableId.of(table).normal()), layout=LAYOUT)[0]
            if owner.url in by_url:
                found[by_url[owner.url]].append(table)
        return found

    def server(self, name: str) -> FleetServer:
        """Return a server that was started."""
        return self._all[name]

    def named(self, url: str) -> str:
        """Return the name of the server at an address."""
        return next(name for name, server in self._all.items() if server.url == url)

    def running(self) -> list[str]:
        """Return the names of the servers that run."""
        return sorted(self._running)

    def command(self, *words: str) -> str:
        """Return what a command of ``strandline fleet`` prints; it must succeed.

        Args:
            words: The command's names, as one word, then what follows the fleet's URL.
        """
        done = self._command(*words)
        done.check_returncode()
        return done.stdout.strip()

    def try_command(self, *words: str) -> str:
        """Return what a command prints that may fail, as that of a move that is undone does."""
        return self._command(*words).stdout.strip()

    def _command(self, *words: str) -> subprocess.CompletedProcess[str]:
        names, *rest = words
        command = [sys.executable, "-m", "strandline", "fleet", *names.split(), self.state, *rest]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def leader(self) -> str:
        """Return the address of the fleet's leader."""
        return str(json.loads(self.command("status", "--json"))["leader"])

    def owners(self, table: str) -> list[str]:
        """Return the addresses of a table's servers, the owner's first."""
        found = json.loads(self.command("status", "--json", "--table", table))["tables"]
        return [str(url) for url in found[table]]

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return address → status of the servers that answer now."""
        found = {}
        for name in self.running():
            server = self._all[name]
            try:
                found[server.url] = server.status()
            except (OSError, http.client.HTTPException):
                continue  # it was killed meanwhile
        return found

    def status(self, *tables: str) -> str:
        """Return what ``strandline fleet status`` prints, with the servers of tables."""
        return self.command("status", *(word for table in tables for word in ("--table", table)))

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
    """Counts at the servers until the block ends; others watch something else (``_watch``).

    Args:
        machines: The servers.
        samples: Where the counts go.
        clock: Returns seconds since the beginning.
        each_s: Seconds between two counts.
    """

    def __init__(
        self,
        machines: Machines,
        samples: list[Any],
        clock: Callable[[], float],
        each_s: float = _EACH_S,
    ) -> None:
        self._machines, self._samples, self._clock = machines, samples, clock
        self._each_s = each_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ends.wait(self._each_s):
            self._samples.append(Sample(self._clock(), self._machines.answered()))


def stopwatch() -> Callable[[], float]:
    """Return a clock of the seconds from now on."""
    begun = time.monotonic()
    return lambda: time.monotonic() - begun

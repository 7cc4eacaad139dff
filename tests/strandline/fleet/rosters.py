"""The servers of a fleet, by their memberships alone, over a state store in a file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from strandline.fleet.roster import Roster
from strandline.fleet.seats import Fleet
from strandline.fleet.state.sqlite import SqliteState
from tests.kit.concurrency.manual_clock import ManualClock


class Servers:
    """The servers of a fleet; each has a client of the store of its own."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock(0)
        self.path = path
        self.opened = ExitStack()
        self.state = self.client()

    def client(self) -> SqliteState:
        state = SqliteState(self.path, self.clock)
        self.opened.callback(state.close)
        return state

    def make(self, name: str, **more: Any) -> Roster:
        """Return a server that hasn't joined yet; ``more`` are arguments of ``Roster``."""
        return Roster(self.client(), f"http://{name}:1", clock=self.clock, **more)

    def start(self, name: str, *given: Any, **more: Any) -> Roster:
        """Return a server that has joined; the arguments are those of ``make``."""
        server = self.make(name, *given, **more)
        server.join()
        return server

    def run(self, steps: int, *servers: Roster, step_s: int = 1) -> None:
        """Let time pass, in which only these servers aren't silent."""
        for _ in range(steps):
            self.clock.advance(step_s * 1_000)
            for server in servers:
                server.step()


def held(fleet: Fleet) -> dict[int, str]:
    """Return number → holder's address of all seats."""
    return {seat.number: seat.url for seat in fleet.seats}

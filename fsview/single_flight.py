"""Work that many want and one does.

``SingleFlight`` is for work that must *start* after its caller came (a sync: what a caller knows of
may be newer than the listing of a run that is under way). ``Shared`` is for work that any caller
may share from the start (opening a table). ``SharedLoads`` is for such work on many things at once
(loading partitions).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Flight(Generic[T]):
    """One run and its outcome, for those who wait."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def fly(self, work: Callable[[], T]) -> None:
        try:
            self._result = work()
        except BaseException as exc:  # noqa: BLE001 - whoever waits raises it
            self._error = exc

    def outcome(self) -> T:
        self.done.wait()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # set whenever there is no error


class SingleFlight(Generic[T]):
    """At most one run at a time and one queued; the lock guards which they are.

    A caller gets the outcome of the first run that starts after it came. An error goes to all who
    waited for that run, and to nobody else.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: _Flight[T] | None = None
        self._queued: _Flight[T] | None = None

    def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, run here or by another caller."""
        with self._lock:
            flight = self._queued
            if flight is not None:
                before, leads = None, False
            else:
                flight, before, leads = _Flight[T](), self._running, True
                if before is None:
                    self._running = flight
                else:
                    self._queued = flight
        if not leads:
            return flight.outcome()
        if before is not None:
            before.done.wait()
            # From here on flight counts as started: a caller who comes now must queue behind it.
            with self._lock:
                self._running, self._queued = flight, None
        flight.fly(work)
        with self._lock:
            if self._running is flight:
                self._running = None
        flight.done.set()
        return flight.outcome()


class Shared(Generic[T]):
    """At most one run for each key at a time, shared by all who ask; the lock guards the runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight[T]] = {}

    def run(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return what ``work`` for ``key`` returns, run here or by another caller."""
        with self._lock:
            flight = self._flights.get(key)
            leads = flight is None
            if flight is None:
                flight = self._flights[key] = _Flight[T]()
        if leads:
            flight.fly(work)
            with self._lock:
                del self._flights[key]
            flight.done.set()
        return flight.outcome()


class SharedLoads:
    """At most one run for each name at a time, or one for all names; the lock guards the runs.

    Who waited for another's run isn't told how that ended, but looks for what was loaded: the run
    may have failed for a name that is none of his.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[str, _Flight[None]] = {}
        self._of_all: _Flight[None] | None = None

    def run(self, names: Collection[str], load: Callable[[Collection[str]], None]) -> bool:
        """Load some names together, but for those that are being loaded, and wait for all.

        Returns:
            Whether nothing was left to others.
        """
        flight = _Flight[None]()
        with self._lock:
            if self._of_all is not None:
                others, mine = {self._of_all}, []
            else:
                others = {self._flights[name] for name in names if name in self._flights}
                mine = [name for name in names if name not in self._flights]
            self._flights.update(dict.fromkeys(mine, flight))
        if mine:
            flight.fly(lambda: load(mine))
            with self._lock:
                for name in mine:
                    del self._flights[name]
            flight.done.set()
            flight.outcome()
        for other in others:
            other.done.wait()
        return not others

    def run_all(self, load: Callable[[], None]) -> None:
        """Load every name there is, once what is being loaded is done; others wait, or share it."""
        with self._lock:
            flight = self._of_all
            leads = flight is None
            if flight is None:
                flight = self._of_all = _Flight[None]()
            others = set(self._flights.values()) if leads else set()
        if leads:
            for other in others:
                other.done.wait()
            flight.fly(load)
            with self._lock:
                self._of_all = None
            flight.done.set()
        flight.outcome()

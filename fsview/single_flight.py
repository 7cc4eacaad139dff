"""Work that many want and one does.

``SingleFlight`` is for work that must *start* after its caller came (a sync: what a caller knows of
may be newer than the listing of a run that is under way). ``Shared`` is for work that any caller
may share from the start (opening a table). ``SharedLoads`` is for such work on many things at once
(loading partitions).

A caller may be interrupted anywhere: Ctrl-C raises ``KeyboardInterrupt`` in the main thread, be it
waiting or working. That concerns nobody else, so nobody is appointed to lead: who holds a run's
lock does its work, and waiting for the work is waiting for the lock. Who gets it and finds no
outcome goes on in place of whoever held it before. CPython releases a plain lock that ``with``
holds wherever the interrupt comes, which ``threading.Event`` and ``Condition`` can't promise.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_NO_NAMES: Final[frozenset[str]] = frozenset()


class _Flight(Generic[T]):
    """One run and its outcome, for all who want it; the lock is held by who runs it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._outcome: tuple[T] | Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is an outcome, so that who comes now needs another run."""
        return self._outcome is not None

    @property
    def has_failed(self) -> bool:
        """Whether the outcome is an error."""
        return isinstance(self._outcome, Exception)

    def run(self, work: Callable[[], T]) -> T:
        """Return the outcome of the first call that ends, by this caller or by one before it.

        An error of the work is an outcome; an interrupt isn't, and the next caller works. Only who
        worked gets the error itself, the others one that says the same.
        """
        with self.lock:
            if self._outcome is None:
                try:
                    self._outcome = (work(),)
                except Exception as exc:
                    self._outcome = _said_again(exc)
                    raise
        if isinstance(self._outcome, Exception):
            raise _said_again(self._outcome)
        return self._outcome[0]


def _said_again(error: Exception) -> Exception:
    """Return an error that says the same as another, without its traceback and its causes.

    Frames hold what the failed work read, and who waited for it: an error that a flight kept and
    raised would refer to itself through them, and all that be freed by a garbage collection only.
    """
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001 - its class takes other arguments than it keeps
        return RuntimeError(f"{type(error).__name__}: {error}")


class SingleFlight(Generic[T]):
    """At most one run at a time and one queued.

    A caller gets the outcome of the first run that starts after it came. An error goes to all who
    waited for that run, and to nobody else.

    ``_lock`` guards which run is queued, which began last, and ``begun``; ``_turn`` is held during
    a run. They are taken after the lock of the flight, ``_lock`` last.

    Attributes:
        begun: How many runs have begun.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._queued: _Flight[T] | None = None
        self._last: _Flight[T] | None = None
        self.begun = 0

    def run(self, work: Callable[[], T], *, since: int | None = None) -> T:
        """Return what ``work`` returns, run here or by another caller.

        Args:
            work: What is to be done.
            since: What ``begun`` was when the caller came, if that was before now: a run that has
                begun since will do, also if it is over.
        """
        with self._lock:
            flight = self._last if since is not None and self.begun > since else None
            if flight is None or flight.has_failed:
                flight = self._queued
                if flight is None or flight.is_over:
                    flight = self._queued = _Flight()
        return flight.run(lambda: self._in_turn(flight, work))

    def _in_turn(self, flight: _Flight[T], work: Callable[[], T]) -> T:
        with self._turn:
            # From here on flight counts as started: a caller who comes now must queue behind it.
            with self._lock:
                self.begun += 1
                self._last = flight
                if self._queued is flight:
                    self._queued = None
            return work()


class Shared(Generic[T]):
    """At most one run for each key at a time, shared by all who ask; the lock guards the runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight[T]] = {}

    def run(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return what ``work`` for ``key`` returns, run here or by another caller."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is None or flight.is_over:
                flight = self._flights[key] = _Flight()
        try:
            return flight.run(work)
        finally:
            with self._lock:
                # One that was interrupted stays for those who wait for it, or for the next caller.
                if flight.is_over and self._flights.get(key) is flight:
                    del self._flights[key]


class _Load:
    """A load of some names; the lock is held from before it is known until it has ended.

    Attributes:
        lock: What others wait for.
        names: What is being loaded; nothing any more once it has ended.
        failure: The error of a load of one name alone, set before the lock is released.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.names = _NO_NAMES
        self.failure: Exception | None = None


_Waited = _Load | _Flight[None]


class SharedLoads:
    """At most one run for each name at a time, or one for all names.

    Who waited for another's run isn't told how that ended, but looks for what was loaded: the run
    may have failed for a name that is none of his, or was given up. Only of one name alone, which
    all want who wait for it, an error is an outcome (``run_one``); an interrupt never is.

    ``_lock`` guards the runs, and is taken after theirs. ``_of_all`` is the newest run for all
    names; none other begins while it ``_is_alone``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loads: list[_Load] = []
        self._of_all: _Flight[None] = _Flight()
        self._is_alone = False

    def run(self, names: Collection[str], load: Callable[[Collection[str]], None]) -> bool:
        """Load some names together, but for those that are being loaded, and wait for all.

        Returns:
            Whether nothing was left to others.
        """
        return not self._run(_Load(), names, load)

    def run_one(self, name: str, load: Callable[[Collection[str]], None]) -> bool:
        """Load a name, or wait for who loads it.

        Returns:
            Whether it was loaded here.

        Raises:
            Exception: What the load raised, be it here, or by ``run_one`` where that was waited
                for.
        """
        own = _Load()

        def load_or_fail(names: Collection[str]) -> None:
            try:
                load(names)
            except Exception as exc:
                own.failure = _said_again(exc)
                raise

        others = self._run(own, (name,), load_or_fail)
        for other in others:
            if isinstance(other, _Load) and other.failure is not None:
                raise _said_again(other.failure)
        return not others

    def _run(
        self, own: _Load, names: Collection[str], load: Callable[[Collection[str]], None]
    ) -> list[_Waited]:
        """Load the names that nobody else loads, and wait for those who do; return these."""
        with own.lock:
            try:
                others, mine = self._begin(own, names)
                if mine:
                    load(mine)
            finally:
                own.names = _NO_NAMES  # one store, which no interrupt can split
        _wait_for(other.lock for other in others)
        return others

    def _begin(self, own: _Load, names: Collection[str]) -> tuple[list[_Waited], list[str]]:
        """Return whom to wait for, and the names left for ``own``, which is known from now on."""
        with self._lock:
            if self._is_alone:
                return [self._of_all], []
            self._loads = _under_way(self._loads)
            others, mine = _shared_out(names, self._loads)
            own.names = frozenset(mine)
            self._loads.append(own)
        return [*others], mine

    def run_all(self, load: Callable[[], None]) -> None:
        """Load every name there is, once what is being loaded is done; others wait, or share it."""
        with self._lock:
            flight = self._of_all
            if flight.is_over:
                flight = self._of_all = _Flight()
        flight.run(lambda: self._alone(load))

    def _alone(self, load: Callable[[], None]) -> None:
        try:
            with self._lock:
                self._is_alone = True
                before = _under_way(self._loads)
            _wait_for(other.lock for other in before)
            load()
        finally:
            self._is_alone = False  # one store, as above


def _under_way(loads: Iterable[_Load]) -> list[_Load]:
    # A function, as CPython 3.13.0 doesn't release a lock whose ``with`` holds such a comprehension
    # if the interrupt comes there.
    return [load for load in loads if load.names]


def _shared_out(names: Collection[str], loads: Iterable[_Load]) -> tuple[list[_Load], list[str]]:
    """Return the loads that have some of these names, and the names that none has."""
    held = {load: load.names for load in loads}  # each read once: a load may end meanwhile
    others = {load: theirs for load, theirs in held.items() if not theirs.isdisjoint(names)}
    taken = others.values()
    return list(others), [name for name in names if not any(name in theirs for theirs in taken)]


def _wait_for(locks: Iterable[threading.Lock]) -> None:
    for lock in locks:
        with lock:
            pass

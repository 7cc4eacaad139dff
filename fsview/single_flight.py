"""Single flight: work that several threads want, done once by one of them.

``SingleFlight`` is for work that must *start* after the call (a sync: the caller may know of
something newer than the listing of a run under way). ``Shared`` is for work whose run under way any
caller may share (opening a table). ``SharedLoads`` is for such work on several names at once
(loading partitions). ``TimedBarrier`` lets threads that work at the same time share what follows.

Ctrl-C may raise ``KeyboardInterrupt`` anywhere in the main thread, while it works or waits. Other
threads must not be affected, so no thread is a fixed leader: the thread that holds a run's lock
does its work, and waiting for the work is waiting for the lock.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Collection, Hashable, Iterable
from functools import partial
from typing import Final, Generic, TypeVar

from timeline.clock import Clock

T = TypeVar("T")

_NO_NAMES: Final[frozenset[str]] = frozenset()


class _Flight(Generic[T]):
    """One run and its outcome, shared by its callers; the thread that works holds the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._outcome: tuple[T] | Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is an outcome, so that a new caller needs another run."""
        return self._outcome is not None

    @property
    def has_failed(self) -> bool:
        """Whether the outcome is an error."""
        return isinstance(self._outcome, Exception)

    def run(self, work: Callable[[], T]) -> T:
        """Return the outcome of the first call that ends, in this thread or in one before it.

        Only the thread that worked raises its error itself; the others raise copies.
        """
        # CPython releases a plain lock held by ``with`` wherever an interrupt comes; ``Event`` and
        # ``Condition`` don't promise that.
        with self.lock:
            # Without an outcome the thread before was interrupted, and this one works in its place.
            if self._outcome is None:
                try:
                    self._outcome = (work(),)
                except Exception as exc:
                    # An error is an outcome; an interrupt is none, so that the next caller works.
                    self._outcome = _copied(exc)
                    raise
        # Read without the lock, as an outcome never changes.
        if isinstance(self._outcome, Exception):
            raise _copied(self._outcome)
        return self._outcome[0]


def _copied(error: Exception) -> Exception:
    """Return a copy of an error without its traceback and its causes.

    Frames refer to what the failed work read, and to the flight. An error that a flight keeps and
    raises would be in a reference cycle with them, which only a garbage collection frees.
    """
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001 - its class has arguments that it doesn't keep
        return RuntimeError(f"{type(error).__name__}: {error}")


class SingleFlight(Generic[T]):
    """At most one run at a time, and one queued.

    A caller gets the outcome of the first run that starts after its call. An error is raised in all
    threads that waited for that run.

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
            work: The work.
            since: An earlier value of ``begun``: the outcome of a run that has begun since will
                do, even if that is over.
        """
        with self._lock:
            # A run that began after ``since`` is late enough, whether it is under way or over.
            flight = self._last if since is not None and self.begun > since else None
            # An error is raised for callers that waited for that run; later callers start another.
            if flight is None or flight.has_failed:
                flight = self._queued
                if flight is None or flight.is_over:
                    flight = self._queued = _Flight()
        # Not under ``_lock``: others must be able to queue or join while this one works.
        return flight.run(partial(self._in_turn, flight, work))

    def _in_turn(self, flight: _Flight[T], work: Callable[[], T]) -> T:
        # Until the run before is over the flight stays queued, so that later callers can join it.
        with self._turn:
            # From here on the flight counts as started: a new caller must queue behind it.
            with self._lock:
                self.begun += 1
                self._last = flight
                if self._queued is flight:
                    self._queued = None
            return work()


class Shared(Generic[T]):
    """At most one run for each key at a time, shared by its callers; ``_lock`` guards the runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight[T]] = {}

    def run(
        self, key: Hashable, work: Callable[[], T], *, stale: tuple[type[Exception], ...] = ()
    ) -> T:
        """Return what ``work`` for ``key`` returns, run here or by another caller.

        Args:
            key: What the work is about.
            work: The work.
            stale: Errors of a run that began before this call which may not hold any more: the
                caller has it done once more.
        """
        flight, is_new = self._boarded(key)
        try:
            return self._flown(key, flight, work)
        except stale:
            if is_new:
                raise
        flight, _ = self._boarded(key)
        return self._flown(key, flight, work)

    def _boarded(self, key: Hashable) -> tuple[_Flight[T], bool]:
        """Return the run of a key, and whether it is a new one."""
        with self._lock:
            flight = self._flights.get(key)
            # A run may be over before its thread has removed it; its outcome is too old.
            if flight is not None and not flight.is_over:
                return flight, False
            flight = self._flights[key] = _Flight()
            return flight, True

    def _flown(self, key: Hashable, flight: _Flight[T], work: Callable[[], T]) -> T:
        try:
            return flight.run(work)
        finally:
            with self._lock:
                # An interrupted flight stays for the threads waiting for it, or the next caller.
                # A caller that found it finished may have started the next run.
                if flight.is_over and self._flights.get(key) is flight:
                    del self._flights[key]


class _Load:
    """A load of some names.

    Attributes:
        lock: Held from before other threads know of the load until it has ended.
        names: The names being loaded; empty once it has ended.
        failure: The error of a load of one name.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.names = _NO_NAMES
        self.failure: Exception | None = None


_Waited = _Load | _Flight[None]


class SharedLoads:
    """At most one run for each name at a time, or one for all names.

    A thread that waited for another's run doesn't get its outcome, but looks up what was loaded:
    the run may have failed for another name, or been interrupted. Only the error of a run for a
    single name is shared (``run_one``).

    ``_lock`` guards the runs, and is taken after theirs. ``_of_all`` is the newest run for all
    names; no other begins while it ``_is_alone``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loads: list[_Load] = []
        self._of_all: _Flight[None] = _Flight()
        self._is_alone = False

    def run(self, names: Collection[str], load: Callable[[Collection[str]], None]) -> bool:
        """Load the names that no other thread is loading, and wait for the others.

        Returns:
            Whether all were loaded here.
        """
        return not self._run(_Load(), names, load)

    def run_one(self, name: str, load: Callable[[Collection[str]], None]) -> bool:
        """Load a name, or wait for the thread that loads it.

        Returns:
            Whether it was loaded here.

        Raises:
            Exception: What the load raised, here or in a ``run_one`` that was waited for.
        """
        own = _Load()

        def load_or_fail(names: Collection[str]) -> None:
            try:
                load(names)
            except Exception as exc:
                # Set before ``own.lock`` is released: waiting callers read it at once.
                own.failure = _copied(exc)
                raise

        others = self._run(own, (name,), load_or_fail)
        for other in others:
            # Only ``run_one`` sets it, whose waiting threads all want that one name.
            if isinstance(other, _Load) and other.failure is not None:
                raise _copied(other.failure)
        return not others

    def _run(
        self, own: _Load, names: Collection[str], load: Callable[[Collection[str]], None]
    ) -> list[_Waited]:
        """Load the names that no other run has, wait for these runs, and return them."""
        # Held before ``_begin`` publishes the load: others wouldn't wait for a free lock.
        with own.lock:
            try:
                others, left = self._begin(own, names)
                if left:
                    load(left)
            finally:
                own.names = _NO_NAMES  # one store, which no interrupt can split
        # Not under ``own.lock``: threads that wait for the names loaded here don't wait for these.
        _wait_for(other.lock for other in others)
        return others

    def _begin(self, own: _Load, names: Collection[str]) -> tuple[list[_Waited], list[str]]:
        """Register ``own``; return the runs to wait for, and the names left for it."""
        with self._lock:
            if self._is_alone:
                return [self._of_all], []
            # One step under the lock, so that no two loads take the same name.
            self._loads = _under_way(self._loads)
            others, left = _shared_out(names, self._loads)
            own.names = frozenset(left)
            self._loads.append(own)
        return [*others], left

    def run_all(self, load: Callable[[], None]) -> None:
        """Load all names, once the loads under way are over; other callers wait, or share it."""
        with self._lock:
            flight = self._of_all
            if flight.is_over:
                flight = self._of_all = _Flight()
        flight.run(partial(self._alone, load))

    def _alone(self, load: Callable[[], None]) -> None:
        try:
            with self._lock:
                # In one step: what began before is waited for, what comes later waits.
                self._is_alone = True
                before = _under_way(self._loads)
            _wait_for(other.lock for other in before)
            load()
        finally:
            self._is_alone = False  # one store, as above


def _under_way(loads: Iterable[_Load]) -> list[_Load]:
    # A function, as CPython 3.13.0 doesn't release the lock of a ``with`` block if the interrupt
    # comes in such a comprehension within the block.
    return [load for load in loads if load.names]


def _shared_out(names: Collection[str], loads: Iterable[_Load]) -> tuple[list[_Load], list[str]]:
    """Return the loads that have some of these names, and the names that none has."""
    held = {load: load.names for load in loads}  # each is read once, as a load may end meanwhile
    others = {load: theirs for load, theirs in held.items() if not theirs.isdisjoint(names)}
    taken = others.values()
    return list(others), [name for name in names if not any(name in theirs for theirs in taken)]


def _wait_for(locks: Iterable[threading.Lock]) -> None:
    for lock in locks:
        with lock:
            pass


class TimedBarrier:
    """Threads that work at the same time wait for each other, to continue together.

    What follows the work is then done once for all of them: a listing of the timeline, after each
    has listed partitions. A thread waits at most as long as its own work took. So a slow thread
    delays each of the others by at most that one's own duration: none takes more than twice its
    time alone.

    Only loads of requested partitions meet here. A search of all directories may end in reading the
    whole table from metadata, by a load within that search or in another thread: if these met, they
    would wait for the search that waits for them.

    ``_lock`` guards the set of the locks that the threads hold while they work.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin with no thread at work; ``clock`` times the work."""
        self._clock = clock
        self._lock = threading.Lock()
        self._working: set[threading.Lock] = set()

    def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, after waiting for the threads still at work when it ends.

        An error is raised at once. ``work`` must neither call this nor wait for a thread in it.
        """
        began, own = self._clock.monotonic(), threading.Lock()
        try:
            # Held before others can see it, as waiting for this thread is waiting for its lock.
            with own:
                with self._lock:
                    self._working.add(own)
                result = work()
        finally:
            with self._lock:
                # In one step: neither this thread nor one that begins later is waited for.
                self._working.discard(own)
                others = tuple(self._working)
        ended = self._clock.monotonic()
        # ``own`` is released already, so no two threads wait for each other.
        for other in others:
            # All waits share one budget, so a hanging listing delays no thread for longer.
            patience_s = (ended - began) - (self._clock.monotonic() - ended)
            if patience_s <= 0 or not other.acquire(timeout=patience_s):
                break
            other.release()
        return result

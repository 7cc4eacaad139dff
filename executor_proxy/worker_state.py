"""State of a worker process that outlives its tasks: circuits, cached answers, local views.

Equal look-ups of a worker's tasks need no request: ``LookupCache`` has the answers. Only those that
never change for their key are cached: of a pinned view, for the routes in
``fsview.wire.routes.FIXED_BY_TIMELINE``.

This is the only module-level state beside the connections, which belong to threads
(``executor_proxy.connection``). A forked process starts without it.

All tasks of a worker that read a table at the same instant share one local view: the timeline's
folder is listed once, each partition once, and concurrent tasks wait for one listing. The views are
bounded in bytes; the least recently used one is dropped first, and its users continue with it.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from executor_proxy.circuit import Circuit, random_share
from fsview.model.file_group import FileSlice
from fsview.single_flight import Shared
from fsview.wire.column_form import is_in_columns

if TYPE_CHECKING:
    from executor_proxy.http import HttpSession
    from fsview.local_view import LocalView

logger = logging.getLogger(__name__)

MAX_CIRCUITS: Final = 256
"""Most circuits of a process: a driver may ask about thousands of tables over its life."""
MAX_LOGGED: Final = 1024
"""Most kinds of logged fallbacks that are remembered: a driver may start many services."""
_TURNS: Final = 1 << 16
"""Number of distinct workers' numbers; far more than servers."""

ANSWER_BYTES: Final = 32 << 20
"""The budget of the cache of answers."""
_OBJECT_RATIO: Final = 1
"""Memory of a decoded answer per byte in Hudi's form; measured: 0.92 to 0.95."""
_COLUMN_RATIO: Final = 2
"""Memory of decoded texts for each byte in columns. With the next two this is within an eighth of
what was measured for base files and for slices with 0 to 20 logs, with short and long file ids."""
_VALUE_BYTES: Final = 55
"""Memory for each value in columns beyond that."""
_LOG_BYTES: Final = 160
"""Memory for each log file beyond that of its values."""
_FILE_VALUES: Final = 3
"""Values of a file in columns; a slice has as many beside those of its files."""
_LEAST_BYTES: Final = 512


def memory_of(body: bytes, found: Any) -> int:
    """Return the estimated memory of a decoded answer in bytes.

    Args:
        body: The answer as it was sent.
        found: The base files or slices in it; used only if the body is in columns.
    """
    if not is_in_columns(body):
        return len(body) * _OBJECT_RATIO
    # Counted from the decoded values: counting separators would read the whole body once more.
    logs = [len(each.log_files) for each in found if type(each) is FileSlice]
    values = (len(found) + len(logs) + sum(logs)) * _FILE_VALUES
    return len(body) * _COLUMN_RATIO + values * _VALUE_BYTES + sum(logs) * _LOG_BYTES


class LookupCache:
    """Decoded answers by key within a byte budget (LRU); thread-safe.

    Args:
        max_bytes: The budget; 0 caches nothing.
    """

    def __init__(self, max_bytes: int = ANSWER_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: Hashable) -> tuple[Any] | None:
        """Return the answer in a tuple, because it may be ``None``; ``None`` if it isn't cached."""
        with self._lock:
            found = self._answers.get(key)
            if found is None:
                return None
            self._answers.move_to_end(key)
            return (found[0],)

    def put(self, key: Hashable, answer: Any, size_bytes: int) -> None:
        """Cache an answer.

        Args:
            key: Determines the answer.
            answer: The decoded answer; immutable, because callers share it.
            size_bytes: Its memory, as ``memory_of`` estimates it.
        """
        size = max(size_bytes, _LEAST_BYTES)
        if size > self._max_bytes:
            return
        with self._lock:
            # Two tasks may have asked at once; the answer's size must be counted once.
            replaced = self._answers.pop(key, None)
            self._answers[key] = answer, size
            self.size_bytes += size - (0 if replaced is None else replaced[1])
            while self.size_bytes > self._max_bytes:
                self.size_bytes -= self._answers.popitem(last=False)[1][1]


VIEW_BYTES: Final = 64 << 20
MAX_VIEWS: Final = 8
"""Bounds the views by number, too, as the bytes don't count their timelines."""


@dataclass(slots=True)
class _Kept:
    """A view, its size when it was measured last, and its number of partitions then."""

    view: LocalView
    size_bytes: int = 0
    partitions: int = 0


class LocalViews:
    """Cache of local views by key (LRU); thread-safe. No storage is called under its lock.

    Args:
        max_bytes: Upper bound of the packed bytes of all views; the last one used always stays.
    """

    def __init__(self, max_bytes: int = VIEW_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._views: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._opening: Shared[LocalView] = Shared()

    def get(self, key: Hashable, open_view: Callable[[], LocalView]) -> LocalView:
        """Return the view of a key; concurrent callers share one call of ``open_view``.

        Raises:
            StrandlineError: Any error of ``open_view``; the next caller tries again.
        """
        with self._lock:
            kept = self._views.get(key)
            if kept is not None:
                self._views.move_to_end(key)
                return kept.view
        # Outside the lock, because opening a view calls storage.
        view = self._opening.run(key, open_view)
        with self._lock:
            # Another thread may have kept a view since; all tasks share that one.
            return self._views.setdefault(key, _Kept(view)).view

    def measure(self, key: Hashable) -> None:
        """Update the size of a view after a look-up, and drop other views beyond the bound.

        Cost: amortised constant. A view is measured again when it has an eighth more partitions
        than at the last measurement; so up to an eighth of them aren't counted.
        """
        with self._lock:
            kept = self._views.get(key)
        if kept is None:
            return
        # Outside the lock, so that no lock of the table is taken within it.
        partitions = kept.view.table.partitions_loaded
        if 0 < partitions < kept.partitions + max(1, kept.partitions // 8):
            return
        size_bytes = kept.view.table.packed_bytes()
        with self._lock:
            # The view may have been dropped meanwhile; then its size isn't in the total.
            kept.size_bytes, kept.partitions = size_bytes, partitions
            total = sum(each.size_bytes for each in self._views.values())
            while len(self._views) > 1 and (
                total > self._max_bytes or len(self._views) > MAX_VIEWS
            ):
                total -= self._views.popitem(last=False)[1].size_bytes


class UnreportedFallbacks:
    """Views that gave a service up, until one of its addresses is told; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], Counter[str]] = {}

    def add(self, urls: tuple[str, ...], cause: str, count: int = 1) -> None:
        """Count views that gave a service up, by its addresses and the cause."""
        with self._lock:
            if len(self._counts) >= MAX_CIRCUITS and urls not in self._counts:
                self._counts.pop(next(iter(self._counts)))
            self._counts.setdefault(urls, Counter())[cause] += count

    def take(self, url: str) -> list[tuple[tuple[str, ...], str, int]]:
        """Return what is to be reported to an address, and forget it; see ``add``."""
        if not self._counts:  # nearly always
            return []
        with self._lock:
            found = [urls for urls in self._counts if url in urls]
            counts = {urls: self._counts.pop(urls) for urls in found}
        return [(urls, cause, n) for urls, of in counts.items() for cause, n in of.items()]


class Worker:
    """The state of one worker process; safe from several threads.

    Attributes:
        fallbacks: Views that gave a service up, which it hasn't been told yet.
        answers: Cache of the service's answers.
        views: Local views for use when the service fails.
        turn: A random number, so that the workers of a job begin with different servers.
    """

    def __init__(self) -> None:
        self.fallbacks = UnreportedFallbacks()
        self.answers = LookupCache()
        self.views = LocalViews()
        self.turn = int(random_share() * _TURNS)
        self._lock = threading.Lock()
        self._circuits: OrderedDict[Hashable, Circuit] = OrderedDict()  # in the order of use
        self._logged: set[Hashable] = set()
        self._ids, self._asked = secrets.token_hex(4), count(1)

    def request_id(self) -> str:
        """Return what names the next request in errors here and in the service's log."""
        return f"{self._ids}-{next(self._asked):x}"

    def circuit(self, session: HttpSession, table: str | None = None) -> Circuit:
        """Return the circuit of an address as a session reaches it, or of one table there.

        Sessions that differ in certificates or transport fail independently.
        """
        key = (session.url, session.ca_file, session.session, table)
        with self._lock:
            circuit = self._circuits.get(key)
            if circuit is None:
                self._make_room()
                name = session.url if table is None else f"{session.url} about {table}"
                circuit = self._circuits[key] = Circuit(name)
            self._circuits.move_to_end(key)
            return circuit

    def _make_room(self) -> None:
        """Drop the least recently used circuit beyond the limit; the caller holds the lock."""
        if len(self._circuits) >= MAX_CIRCUITS:
            closed = (
                key for key, circuit in self._circuits.items() if circuit.state.failure is None
            )
            # An open circuit saves a wait, so one is dropped only if all are open.
            del self._circuits[next(closed, next(iter(self._circuits)))]

    def log_fallback(self, kind: Hashable, reason: str) -> None:
        """Log why a view stopped asking the service, once for each kind of reason."""
        with self._lock:
            is_new = kind not in self._logged
            if len(self._logged) == MAX_LOGGED:
                self._logged.clear()
            self._logged.add(kind)
        # Outside the lock, as a log handler does I/O.
        if is_new:
            logger.warning("listing storage instead of asking the timeline service: %s", reason)


class _Process:
    """Holder of this process's worker."""

    def __init__(self) -> None:
        self.worker = Worker()


_process: Final = _Process()


def this_worker() -> Worker:
    """Return the state of this process."""
    return _process.worker


def start_anew() -> None:
    """Drop all state, as after a fork."""
    # Probing threads don't survive a fork, and another thread may have held a lock.
    _process.worker = Worker()


os.register_at_fork(after_in_child=start_anew)

"""``LookupReport``: what a task asked of its view, how long it took, what it cost in storage calls.

A report is filled in an executor and merged in the driver, so it goes over as plain lists and
numbers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fsview.model.file_system_view import FileSystemView
from timeline.storage.base import StorageCalls

SERVICE: Final = "service"
LOCAL: Final = "local"


@dataclass(frozen=True, slots=True)
class Lookup:
    """One question to a view.

    Attributes:
        route: The view's method.
        seconds: Until the answer was there, retries and fallback included.
        source: Who answered: ``"service"`` or ``"local"``.
    """

    route: str
    seconds: float
    source: str


@dataclass(slots=True)
class LookupReport:
    """Look-ups, fallbacks and storage calls of one task, or of many once merged.

    Attributes:
        lookups: In the order in which they ended.
        fallbacks: Why each view that gave up the service did.
    """

    lookups: list[Lookup] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    _merged: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)
    _watched: list[StorageCalls] = field(default_factory=list, repr=False)

    @property
    def lookup_seconds(self) -> tuple[float, ...]:
        """The seconds of each look-up."""
        return tuple(lookup.seconds for lookup in self.lookups)

    def storage_calls(self) -> dict[tuple[str, str], int]:
        """Return the storage calls that local views made, by (kind, cause)."""
        total = Counter(self._merged)
        for calls in self._watched:
            total.update(calls.snapshot())
        return dict(total)

    def watch(self, calls: StorageCalls) -> None:
        """Count in what this storage is going to be called for."""
        self._watched.append(calls)

    @contextmanager
    def timed(self, route: str, source: str) -> Iterator[list[str]]:
        """Record the block as one look-up; it may append another source to what it is given."""
        sources = [source]
        start = time.perf_counter()
        yield sources
        self.lookups.append(Lookup(route, time.perf_counter() - start, sources[-1]))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able values, for ``merge``."""
        return {
            "lookups": [[found.route, found.seconds, found.source] for found in self.lookups],
            "fallbacks": list(self.fallbacks),
            "storage_calls": [[*key, n] for key, n in sorted(self.storage_calls().items())],
        }

    def merge(self, other: LookupReport | Mapping[str, Any]) -> None:
        """Add another report, or what its ``as_dict`` gave."""
        said = other.as_dict() if isinstance(other, LookupReport) else other
        self.lookups.extend(Lookup(*found) for found in said["lookups"])
        self.fallbacks.extend(said["fallbacks"])
        self._merged.update(_counts(said["storage_calls"]))


def _counts(rows: Iterable[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    return {(kind, cause): n for kind, cause, n in rows}


class ReportedView(FileSystemView):
    """A view whose look-ups are put on record; for one thread.

    It is opened by the first look-up, which so takes as long as its caller waits: opening a view of
    one's own lists the timeline.

    Args:
        open_view: Opens the view that answers.
        source: ``"service"`` or ``"local"``.
        report: The record.
    """

    def __init__(
        self, open_view: Callable[[], FileSystemView], source: str, report: LookupReport
    ) -> None:
        self._open_view = open_view
        self._source = source
        self._report = report
        self._view: FileSystemView | None = None

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the view behind, which is opened for the first question."""
        with self._report.timed(name, self._source):
            if self._view is None:
                self._view = self._open_view()
            return self._view.ask(name, **arguments)

    def close(self) -> None:
        """Close the view behind, if it was opened."""
        if self._view is not None:
            self._view.close()

"""``LookupReport``: records a task's look-ups, their duration and their storage calls.

It is filled in an executor and merged in the driver, and travels as plain lists and numbers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from executor_proxy.worker_state import this_worker
from fsview.model.file_system_view import FileSystemView, LookupQuery
from timeline.errors import RemoteFailureError, StrandlineError
from timeline.storage.base import StorageCalls

SERVICE: Final = "service"
CACHE: Final = "cache"
LOCAL: Final = "local"


@dataclass(frozen=True, slots=True)
class Lookup:
    """One look-up in a view.

    Attributes:
        route: Name of the view's method.
        seconds: Time until the answer, including retries and fallback.
        source: Where the answer came from: ``"service"``, ``"cache"`` (an earlier answer of the
            service, cached by the worker) or ``"local"``.
    """

    route: str
    seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """A view that stopped asking the service.

    Attributes:
        cause: One of ``fsview.wire.param.FALLBACK_CAUSES``.
        reason: Text of the error.
    """

    cause: str
    reason: str


@dataclass(slots=True)
class LookupReport:
    """Look-ups, fallbacks and storage calls of one task, or of many once merged.

    Attributes:
        lookups: Look-ups in the order in which they ended.
        fallbacks: One for each view that fell back to listing storage.
    """

    lookups: list[Lookup] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    _merged: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)

    def storage_calls(self) -> dict[tuple[str, str], int]:
        """Return the number of storage calls by local views, by (kind, cause)."""
        return dict(self._merged)

    @contextmanager
    def counting(self, calls: StorageCalls) -> Iterator[None]:
        """Include this thread's calls of a shared storage within the block."""
        with calls.of_this_thread() as made:
            try:
                yield
            finally:
                self.add_calls(made)

    def add_calls(self, calls: Mapping[tuple[str, str], int]) -> None:
        """Include storage calls, by (kind, cause)."""
        self._merged.update(calls)

    def fall_back(self, cause: str, error: StrandlineError, urls: tuple[str, ...] = ()) -> None:
        """Record that a view stopped asking the service.

        A worker logs an error of each class once for each service.

        Args:
            cause: See ``Fallback``.
            error: The service's error, or that of its client.
            urls: The service's addresses.
        """
        reason = reason_of(error)
        self.fallbacks.append(Fallback(cause, reason))
        # Answers without a class of their own, such as a 401, are distinguished by their status.
        answered = error.answered if isinstance(error, RemoteFailureError) else 0
        worker = this_worker()
        worker.log_fallback((type(error), answered, urls), reason)
        worker.fallbacks.add(urls, cause)

    @contextmanager
    def timed(self, route: str, source: str) -> Iterator[list[str]]:
        """Record the block as one look-up; its source is the last item appended to the list."""
        sources = [source]
        start = time.perf_counter()
        yield sources
        self.lookups.append(Lookup(route, time.perf_counter() - start, sources[-1]))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able values, for ``merge``."""
        return {
            "lookups": [[found.route, found.seconds, found.source] for found in self.lookups],
            "fallbacks": [[each.cause, each.reason] for each in self.fallbacks],
            "storage_calls": [[*key, n] for key, n in sorted(self.storage_calls().items())],
        }

    def merge(self, other: LookupReport | Mapping[str, Any]) -> None:
        """Add another report, or the result of its ``as_dict``."""
        values = other.as_dict() if isinstance(other, LookupReport) else other
        self.lookups.extend(Lookup(*found) for found in values["lookups"])
        self.fallbacks.extend(Fallback(*each) for each in values["fallbacks"])
        self._merged.update({(kind, cause): n for kind, cause, n in values["storage_calls"]})


def reason_of(error: StrandlineError) -> str:
    """Return an error as the reason of a fallback."""
    return f"{type(error).__name__}: {error}"


class ReportedView(FileSystemView):
    """A view whose look-ups are recorded; used by one thread.

    The view is opened by the first look-up, whose duration thus includes the listing of the
    timeline by a local view.

    Args:
        open_view: Opens the view that answers.
        source: ``"service"`` or ``"local"``.
        report: Where look-ups are recorded.
    """

    def __init__(
        self, open_view: Callable[[], FileSystemView], source: str, report: LookupReport
    ) -> None:
        self._open_view = open_view
        self._source = source
        self._report = report
        self._view: FileSystemView | None = None

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the view, opening it at the first look-up."""
        with self._report.timed(name, self._source):
            return self._opened().ask(name, **arguments)

    def look_up(self, queries: Sequence[LookupQuery]) -> tuple[tuple[Any, ...], ...]:
        """Look up in the view, opening it at the first look-up; recorded as one look-up."""
        with self._report.timed("look_up", self._source):
            return self._opened().look_up(queries)

    def _opened(self) -> FileSystemView:
        if self._view is None:
            self._view = self._open_view()
        return self._view

    def close(self) -> None:
        """Close the view, if it was opened."""
        if self._view is not None:
            self._view.close()

"""``PriorityView``: asks the service first; after a failure it uses a local view from then on.

Both answer at the same instant, so a job continues with the same rows; the local view lists only
the partitions that are asked for. ``executor_proxy.failover`` decides how often and how long
the service is asked before it counts as failed.

Source: Hudi 1.2.0 ``PriorityBasedFileSystemView``, which switches to listing for good at the first
error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from executor_proxy.remote_view import RemoteView
from executor_proxy.report import CACHE, LOCAL, SERVICE, LookupReport, reason_of
from fsview.model.file_system_view import FileSystemView, LookupQuery
from timeline.errors import (
    BadAnswerError,
    RootNotAllowedError,
    ServiceBusyError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    StrandlineError,
    ViewBehindError,
)

T = TypeVar("T")

_CAUSES: Final[tuple[tuple[type[StrandlineError], str], ...]] = (
    (ServiceUnreachableError, "unreachable"),
    (ServiceTimeoutError, "late"),
    (ServiceBusyError, "late"),
    (BadAnswerError, "wrong-answer"),
    (ViewBehindError, "behind"),
)


class PriorityView(FileSystemView):
    """A remote view with a local one as fallback; ``sync`` returns to the remote view.

    The lock guards the choice between the two.

    Args:
        remote: The view that is asked first.
        make_local: Opens the local view when it is needed. ``None``: there is no fallback; errors
            of the service are raised.
        report: Where look-ups are recorded.
        make_newest: Opens the local view at the newest instant, when the service fails at ``sync``:
            only the service may still be able to answer at the instant before. ``None`` uses
            ``make_local``.
    """

    def __init__(
        self,
        remote: RemoteView,
        make_local: Callable[[], FileSystemView] | None,
        report: LookupReport,
        *,
        make_newest: Callable[[], FileSystemView] | None = None,
    ) -> None:
        self._remote = remote
        self._make_local = make_local
        self._make_newest = make_newest or make_local
        self._report = report
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._local: FileSystemView | None = None
        self._newest: FileSystemView | None = None

    @property
    def failure(self) -> str | None:
        """Why the local view is asked, the service's error; ``None``: the service is asked."""
        return self._failure

    def close(self) -> None:
        """Close both views."""
        self._remote.close()
        self._return_to_service()

    def ask(self, name: str, **arguments: Any) -> Any:
        """Return a cached answer, or ask the service, or the local view after a failure.

        Raises:
            ViewBehindError: Neither can answer at this instant.
            StrandlineError: Any error of the local view.
        """
        if name == "sync":
            return self._sync()
        with self._report.timed(name, SERVICE) as sources:
            # Before the choice of a view: after a fallback cached answers are still valid.
            cached = self._remote.cached(name, arguments)
            if cached is not None:
                sources.append(CACHE)
                return cached[0]
            return self._first(lambda view: view.ask(name, **arguments), sources)

    def look_up(self, queries: Sequence[LookupQuery]) -> tuple[tuple[Any, ...], ...]:
        """Look up in the service with one request, or in the local view after a failure.

        Raises:
            StrandlineError: As ``ask``.
        """
        with self._report.timed("look_up", SERVICE) as sources:
            return self._first(lambda view: view.look_up(queries), sources)

    def _first(self, ask: Callable[[FileSystemView], T], sources: list[str]) -> T:
        """Ask the remote view, or the local one after a failure; add to ``sources``."""
        # Read without the lock: at worst a thread sends one more request to the service.
        if self._failure is None:
            try:
                return ask(self._remote)
            except StrandlineError as error:
                self._check_fallback(error)
                self._fall_back(error)
        sources.append(LOCAL)
        return ask(self._local_view())

    def _sync(self) -> None:
        """Move to the newest instant, and back to the service if that answers."""
        with self._report.timed("sync", SERVICE) as sources:
            try:
                self._remote.ask("sync")
            except StrandlineError as error:
                self._check_fallback(error)
                sources.append(LOCAL)
                self._sync_local(error)
                self._report.fall_back(cause_of(error), error, self._remote.urls)
            else:
                self._return_to_service()

    def _check_fallback(self, error: StrandlineError) -> None:
        """Raise an error of the service again if it isn't a reason to fall back."""
        if self._make_local is None or not _is_failure(error):
            raise error

    def _fall_back(self, error: StrandlineError) -> None:
        """Use the local view from now on; record the reason once."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = reason_of(error)
        # Outside the lock, because recording takes the worker's lock.
        self._report.fall_back(cause_of(error), error, self._remote.urls)

    def _sync_local(self, error: StrandlineError) -> None:
        """Use a local view at the newest instant, and pin the remote view to that as well.

        Args:
            error: Why the service isn't asked.
        """
        newest = self._newest
        if newest is None:
            assert self._make_newest is not None, "fell back without a local view"
            # Opened before the lock is taken, because that calls storage.
            newest = self._make_newest()
        else:
            newest.sync()
        timeline = newest.timeline
        with self._lock:
            previous = self._local
            self._local = self._newest = newest
            self._failure = reason_of(error)
            # So that cached answers, and a copy of this view in another process, are at the same
            # instant.
            self._remote.pin_to(timeline)
        if previous is not None and previous is not newest:
            # After the switch, so that no thread is given a closed view.
            previous.close()

    def _return_to_service(self) -> None:
        """Close the local views, so that the service is asked again."""
        with self._lock:
            # By identity: after a failed sync both names refer to one view.
            views = {id(view): view for view in (self._local, self._newest) if view is not None}
            self._local = self._newest = None
            self._failure = None
        for view in views.values():
            view.close()

    def _local_view(self) -> FileSystemView:
        """Return the local view; it is opened outside the lock, because that may call storage."""
        local = self._local
        if local is None:
            assert self._make_local is not None, "fell back without a local view"
            opened = self._make_local()
            with self._lock:
                # Checked again: another thread may have opened one; both must use the same.
                if self._local is None:
                    self._local = opened
                local = self._local
            if local is not opened:
                opened.close()
        return local


def cause_of(error: StrandlineError) -> str:
    """Return the label under which a fallback for this error is counted."""
    return next((cause for kind, cause in _CAUSES if isinstance(error, kind)), "refused")


def _is_failure(error: StrandlineError) -> bool:
    """Whether an error is a failure of the service, not of an invalid request."""
    # A root is removed when the last client of its table is closed, and tasks may be under way.
    # Listing reveals nothing: the task uses its own rights.
    failures = (ServiceError, ViewBehindError, RootNotAllowedError)
    return isinstance(error, failures) or error.status >= 500

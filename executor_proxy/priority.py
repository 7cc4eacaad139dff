"""``PriorityView``: the service first; when it fails, a view of one's own from then on.

Both answer at the same instant, so a job goes on with the same rows; the view of its own lists
just the partitions that are asked of it. A connection that fails is tried again a few times, after
waits that grow and are spread at random, so that a thousand tasks that lose the service don't come
back, or start to list, in the same moment. Nothing else is retried: a service that answers late or
wrongly is not helped by asking again.

Source: Hudi 1.2.0 ``PriorityBasedFileSystemView``, which neither retries nor says why.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from executor_proxy.report import LOCAL, SERVICE, LookupReport
from fsview.model.file_system_view import FileSystemView
from timeline.errors import (
    ServiceError,
    ServiceUnreachableError,
    StrandlineError,
    ViewBehindError,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after what waits, a lost connection is tried again.

    Attributes:
        times: Tries after the first; 0 for none.
        first_wait_s: Upper bound of the first wait; each next one is twice the one before.
        longest_wait_s: Upper bound of every wait.
    """

    times: int = 2
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0

    def waits(self, jitter: Callable[[], float]) -> Iterator[float]:
        """Yield each wait in seconds: half of its bound, and up to as much again by ``jitter``."""
        for attempt in range(self.times):
            bound = min(self.first_wait_s * 2**attempt, self.longest_wait_s)
            yield bound * (1 + jitter()) / 2


DEFAULT_RETRY: Final = Retry()
NO_RETRY: Final = Retry(times=0)


class PriorityView(FileSystemView):
    """Two views of one table as one.

    ``sync`` goes back to the service. Its lock guards the choice between the two.

    Args:
        remote: The view that is asked first.
        make_local: Makes the other one, when it is needed.
        on_fallback: Told the error that made this view give the service up; once.
        retry: For connections that fail.
        wait: Waits so many seconds.
        jitter: A number in [0, 1) at random.
        report: Where look-ups are put on record; without one, giving up is logged as a warning.
        make_newest: Makes the other view at the newest instant, when the service fails at ``sync``:
            the instant before may be one that only the service could still answer at. ``None``:
            ``make_local`` does.
    """

    def __init__(
        self,
        remote: FileSystemView,
        make_local: Callable[[], FileSystemView],
        on_fallback: Callable[[StrandlineError], None] | None = None,
        *,
        retry: Retry = DEFAULT_RETRY,
        wait: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        report: LookupReport | None = None,
        make_newest: Callable[[], FileSystemView] | None = None,
    ) -> None:
        self._remote = remote
        self._make_local = make_local
        self._make_newest = make_newest or make_local
        self._on_fallback = on_fallback
        self._retry = retry
        self._wait = wait
        self._jitter = jitter
        self._is_reported = report is not None
        self._report = LookupReport() if report is None else report
        self._lock = threading.Lock()
        self._given_up = False
        self._local: FileSystemView | None = None

    @property
    def fell_back(self) -> bool:
        """Whether the service has been given up."""
        return self._given_up

    def close(self) -> None:
        """Close both views."""
        self._remote.close()
        with self._lock:
            local, self._local = self._local, None
        if local is not None:
            local.close()

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the service, or one's own view.

        Raises:
            ViewBehindError: Neither can answer at this instant.
            StrandlineError: Whatever one's own view raises.
        """
        if name == "sync":
            self._go_back()
        with self._report.timed(name, SERVICE) as sources:
            if not self._given_up:
                try:
                    return self._ask_remote(name, arguments)
                except StrandlineError as error:
                    if not _is_failure(error):
                        raise
                    self._give_up(error)
            sources.append(LOCAL)
            make = self._make_newest if name == "sync" else self._make_local
            return self._local_view(make).ask(name, **arguments)

    def _ask_remote(self, name: str, arguments: dict[str, Any]) -> Any:
        """Ask the service, again after a wait where it was the connection that failed."""
        for wait_s in self._retry.waits(self._jitter):
            try:
                return self._remote.ask(name, **arguments)
            except ServiceUnreachableError as error:
                logger.info("trying again in %.2f s: %s", wait_s, error)
            self._wait(wait_s)
            if self._given_up:
                break  # another thread came to the end of its tries
        return self._remote.ask(name, **arguments)

    def _give_up(self, error: StrandlineError) -> None:
        """Turn to one's own view for good; say so once."""
        with self._lock:
            if self._given_up:
                return
            self._given_up = True
        reason = f"{type(error).__name__}: {error}"
        # Whoever keeps a report says so himself, once for all his views.
        level = logging.INFO if self._is_reported else logging.WARNING
        logger.log(level, "listing storage instead of asking the timeline service: %s", reason)
        self._report.fallbacks.append(reason)
        if self._on_fallback is not None:
            self._on_fallback(error)

    def _go_back(self) -> None:
        with self._lock:
            local, self._local = self._local, None
            self._given_up = False
        if local is not None:
            local.close()

    def _local_view(self, make: Callable[[], FileSystemView]) -> FileSystemView:
        with self._lock:
            if self._local is None:
                self._local = make()
            return self._local


def _is_failure(error: StrandlineError) -> bool:
    """Whether it is the service that failed, and not the question that was wrong."""
    return isinstance(error, (ServiceError, ViewBehindError)) or error.status >= 500

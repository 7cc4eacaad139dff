"""``PriorityView`` asks the service first; once that fails, it uses a local view from then on.

Both answer at the same instant, so a job continues with the same rows; the local view lists only
the partitions that are asked for. Lost connections are retried with exponential backoff and jitter,
so that a thousand tasks that lose the service don't return to it, or begin to list, at the same
moment. Nothing else is retried: repeating a question doesn't help a late or failing service.

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
    """Number of retries of a lost connection, and the waits before them.

    Attributes:
        times: Number of retries.
        first_wait_s: Upper bound of the first wait, which doubles with each retry.
        longest_wait_s: Upper bound of all waits.
    """

    times: int = 2
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0

    def waits(self, jitter: Callable[[], float]) -> Iterator[float]:
        """Yield each wait in seconds: its bound times a random factor in [0.5, 1) by ``jitter``."""
        for attempt in range(self.times):
            bound = min(self.first_wait_s * 2**attempt, self.longest_wait_s)
            yield bound * (1 + jitter()) / 2


DEFAULT_RETRY: Final = Retry()


class PriorityView(FileSystemView):
    """A remote view with a local one as fallback; ``sync`` returns to the remote view.

    The lock guards the choice between the two.

    Args:
        remote: The view that is asked first.
        make_local: Opens the local view when it is needed.
        retry: Retries of lost connections.
        wait: Waits a number of seconds.
        jitter: Returns a random number in [0, 1).
        report: Where look-ups are recorded; without it, the fallback is logged as a warning.
        make_newest: Opens the local view at the newest instant, when the service fails at ``sync``:
            only the service may still be able to answer at the instant before. ``None`` uses
            ``make_local``.
    """

    def __init__(
        self,
        remote: FileSystemView,
        make_local: Callable[[], FileSystemView],
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
        self._retry = retry
        self._wait = wait
        self._jitter = jitter
        self._is_reported = report is not None
        self._report = LookupReport() if report is None else report
        self._lock = threading.Lock()
        self._fell_back = False
        self._local: FileSystemView | None = None

    def close(self) -> None:
        """Close both views."""
        self._remote.close()
        self._reset()

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the service, or the local view after a failure.

        Raises:
            ViewBehindError: Neither can answer at this instant.
            StrandlineError: Any error of the local view.
        """
        if name == "sync":
            self._reset()
        with self._report.timed(name, SERVICE) as sources:
            if not self._fell_back:
                try:
                    return self._ask_remote(name, arguments)
                except StrandlineError as error:
                    if not _is_failure(error):
                        raise
                    self._fall_back(error)
            sources.append(LOCAL)
            make = self._make_newest if name == "sync" else self._make_local
            return self._local_view(make).ask(name, **arguments)

    def _ask_remote(self, name: str, arguments: dict[str, Any]) -> Any:
        """Ask the service, with retries of lost connections."""
        for wait_s in self._retry.waits(self._jitter):
            try:
                return self._remote.ask(name, **arguments)
            except ServiceUnreachableError as error:
                logger.info("retrying in %.2f s: %s", wait_s, error)
            self._wait(wait_s)
            if self._fell_back:
                break  # another thread used up its retries
        return self._remote.ask(name, **arguments)

    def _fall_back(self, error: StrandlineError) -> None:
        """Use the local view from now on; log the reason once."""
        with self._lock:
            if self._fell_back:
                return
            self._fell_back = True
        reason = f"{type(error).__name__}: {error}"
        # The owner of a report logs one warning for all its views.
        level = logging.INFO if self._is_reported else logging.WARNING
        logger.log(level, "listing storage instead of asking the timeline service: %s", reason)
        self._report.fallbacks.append(reason)

    def _reset(self) -> None:
        """Close the local view, so that the service is asked again."""
        with self._lock:
            local, self._local = self._local, None
            self._fell_back = False
        if local is not None:
            local.close()

    def _local_view(self, make: Callable[[], FileSystemView]) -> FileSystemView:
        with self._lock:
            if self._local is None:
                self._local = make()
            return self._local


def _is_failure(error: StrandlineError) -> bool:
    """Whether the error is the service's failure rather than a wrong question."""
    return isinstance(error, (ServiceError, ViewBehindError)) or error.status >= 500

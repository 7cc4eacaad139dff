"""``AsyncCleaner`` runs the cleans of one client on threads of their own, one clean at a time.

A write starts a clean when it has committed, and the next write waits for it when *it* has
committed: so cleans never pile up, and each result or error is in the result of a write. The thread
has its own view, listing cache and lock object; the lock is released while files are deleted.

A clean that fails, or is stopped, is pending; the next one finishes it from its plan.

Source: Hudi 1.2.0 ``AsyncCleanerService``, ``HoodieAsyncService``. Unlike there, a clean starts at
the end of a write instead of at the beginning of the next one, an error doesn't make the write
fail, and closing the client lets the clean end.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from executor_proxy.report import Fallback, LookupReport
from executor_proxy.view_location import ViewLocation
from fsview.model.file_system_view import FileSystemView
from strandline.commit.lock.base import TableLock, Wait
from strandline.table_services.clean.execution import CleanResult
from timeline.storage.base import Storage
from timeline.threads import JoinedThread

logger = logging.getLogger(__name__)

CLOSE_S: Final = 300.0
"""How long closing waits for a clean before it stops it, and then for the clean to stop."""

Clean = Callable[[], CleanResult | None]


class CleanStoppedError(Exception):
    """The client was closed while the clean ran, and didn't wait any longer."""


@dataclass(frozen=True, slots=True)
class AsyncClean:
    """A clean that has ended.

    Attributes:
        result: Its result; ``None`` if nothing was cleaned.
        error: Why it failed, if it did.
        calls: Its storage calls, by (kind, cause).
        fallbacks: Its views that fell back from the service to listing storage.
    """

    result: CleanResult | None
    error: BaseException | None
    calls: Mapping[tuple[str, str], int]
    fallbacks: tuple[Fallback, ...]


class AsyncCleaner:
    """Runs one clean at a time; used by the client's thread, except for what the clean calls.

    Args:
        storage: The table's storage; the cleaner counts calls and caches listings by itself.
        open_lock: Opens the lock that the clean's thread takes, given how it waits.
        close_s: As ``CLOSE_S``.

    Attributes:
        storage: The storage of the clean's thread.
        lock: Its lock.
    """

    def __init__(
        self, storage: Storage, open_lock: Callable[[Wait], TableLock], close_s: float = CLOSE_S
    ) -> None:
        self.storage = storage.with_own_calls().keeping_listings()
        self._stopped = threading.Event()
        self.lock = open_lock(self.wait)
        self._close_s = close_s
        self._thread: JoinedThread | None = None
        # Set by the clean's thread when it ends, read by the client's once it has joined that.
        self._ended: AsyncClean | None = None
        self._view: tuple[ViewLocation, FileSystemView] | None = None
        self._report = LookupReport()

    def start(
        self, clean: Clean, beside: Callable[[Callable[[], None]], Callable[[], None]]
    ) -> None:
        """Start a clean, once the result of the previous one was taken.

        Args:
            clean: The clean, which the thread calls.
            beside: Prepares a call for another thread, as ``EngineContext.beside``.

        Raises:
            RuntimeError: No thread could be started; nothing is cleaned.
        """
        found: list[CleanResult | None] = []
        call = beside(lambda: found.append(clean()))

        def run() -> None:
            error: BaseException | None = None
            before = Counter(self.storage.calls.snapshot())
            try:
                call()
            except BaseException as failure:  # noqa: BLE001 - the next write reports it
                error = failure
                logger.warning("an asynchronous clean failed; the next one finishes it: %r", error)
            calls = Counter(self.storage.calls.snapshot()) - before
            fallbacks = tuple(self._report.fallbacks)
            self._report.fallbacks.clear()
            self._report.lookups.clear()
            self._ended = AsyncClean(found[0] if found else None, error, calls, fallbacks)
            if self._stopped.is_set():
                self._release()

        # Assigned first: a client that is interrupted in between still waits for it.
        self._thread = JoinedThread(run, "strandline-async-clean")
        self._thread.start()

    def settle(self) -> AsyncClean | None:
        """Wait until no clean runs; return the one that ended last, if no write has reported it."""
        self._join()
        return self._ended

    def take(self) -> AsyncClean | None:
        """Wait until no clean runs; return the one that ended since the last call, if any."""
        self._join()
        ended, self._ended = self._ended, None
        return ended

    def view(self, location: ViewLocation) -> FileSystemView:
        """Return the view of the clean's thread, kept between cleans as long as it can be."""
        at = replace(location, storage=self.storage)
        kept = self._view
        if kept is None or kept[0] != at:
            self._close_view()
            kept = self._view = at, at.open(self._report)
        return kept[1]

    def wait(self, seconds: float) -> None:
        """Sleep, on the clean's thread; raise ``CleanStoppedError`` once the client is closed."""
        if self._stopped.wait(seconds):
            self.proceed()

    def proceed(self) -> None:
        """Raise ``CleanStoppedError`` if the clean is to stop."""
        if self._stopped.is_set():
            raise CleanStoppedError("the client was closed while a clean ran")

    def close(self) -> None:
        """Wait for the clean, or stop it if it takes too long; release lock and view.

        A clean is stopped before its next request for deletions, or while it waits for the lock.
        If it doesn't end, such as in a storage call that isn't answered, this returns nevertheless,
        and its thread releases the rest when it ends.
        """
        thread = self._thread
        has_ended = False
        try:
            has_ended = thread is None or thread.join(self._close_s)
        finally:
            # After an interrupt, too. From here on the thread releases what it uses.
            self._stopped.set()
        if not has_ended:
            assert thread is not None
            logger.warning("stopping a clean that hasn't ended in %g s", self._close_s)
            has_ended = thread.join(self._close_s)
        if has_ended:
            self._release()
        else:
            logger.warning("a clean is still running; the next one finishes it if it doesn't end")

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _release(self) -> None:
        """Release lock and view, once no clean uses them."""
        self.lock.close()
        try:
            self._close_view()
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            logger.warning("the view of the asynchronous cleans wasn't closed: %s", error)

    def _close_view(self) -> None:
        kept, self._view = self._view, None
        if kept is not None:
            kept[1].close()

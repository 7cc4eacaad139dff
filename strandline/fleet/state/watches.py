"""``Watches``: a store client's callbacks for changes; ``Poller``: finds changes by polling."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.fleet.state.base import Cancel, is_within
from timeline.errors import StateUnavailableError
from timeline.threads import JoinedThread

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
"""Longest pause after a poll that failed: what it was to find may not be reported again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Watch:
    prefix: str
    call: Callable[[], object]


class Watches:
    """The watches of a client; its lock guards the list, and is never held during a call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: list[_Watch] = []

    def add(self, prefix: str, call: Callable[[], object]) -> Cancel:
        """Add a watch of a key and those below it; return what ends it."""
        watch = _Watch(prefix, call)
        with self._lock:
            self._watches.append(watch)

        def cancel() -> None:
            with self._lock:
                # By identity: two watches may have the same prefix and function.
                self._watches = [each for each in self._watches if each is not watch]

        return cancel

    def clear(self) -> None:
        """End all watches."""
        with self._lock:
            self._watches = []

    def tell(self, changed: Iterable[str] | None) -> None:
        """Call the watches of the changed keys; ``None``: all watches."""
        keys = None if changed is None else tuple(changed)
        with self._lock:
            watches = tuple(self._watches)
        for watch in watches:
            if keys is not None and not any(is_within(key, watch.prefix) for key in keys):
                continue
            with self._lock:
                if watch not in self._watches:
                    continue  # cancelled by an earlier call
            try:
                watch.call()
            except Exception:
                # The other watches are still called, and this one at its next change.
                logger.exception("a watch of %r failed", watch.prefix)


class Poller:
    """A thread that polls the versions of all keys and compares them with the previous ones.

    Args:
        look: Returns key → version of the existing keys; cheap if nothing has changed.
        watches: Called on changes.
        pause_s: Seconds between polls; ``hurry`` ends a pause.
        store: Name of the store in log messages.

    Raises:
        StateUnavailableError: The first poll failed; there is no thread.
    """

    def __init__(
        self,
        look: Callable[[], Mapping[str, int]],
        watches: Watches,
        pause_s: float,
        store: str,
    ) -> None:
        self._look = look
        self._watches = watches
        self._pause_s = pause_s
        self._store = store
        # Before the thread: whatever changes after the constructor has returned is a change.
        self._seen = look()
        self._is_away = False
        self._due = threading.Event()
        self._is_stopped = False
        self._thread = JoinedThread(self._run, "strandline-state-watch", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """Poll now: this client has changed something."""
        self._due.set()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._is_stopped = True
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._due.wait(min(self._pause_s, _AGAIN_S) if self._is_away else self._pause_s)
            # Before polling: a change during the poll is seen by it or by the next one.
            self._due.clear()
            if self._is_stopped:
                return
            self._compare()

    def _compare(self) -> None:
        try:
            found = self._look()
        except StateUnavailableError as error:
            if not self._is_away:
                logger.warning("changes in %s aren't seen meanwhile: %s", self._store, error)
        except Exception:
            # Without this thread no watch would be called.
            if not self._is_away:
                logger.exception("changes in %s aren't seen meanwhile", self._store)
        else:
            self._see(found)
            return
        was_away, self._is_away = self._is_away, True
        if not was_away:
            # Whoever relies on being told must find by itself that the store is away.
            self._watches.tell(None)

    def _see(self, found: Mapping[str, int]) -> None:
        if self._is_away:
            logger.info("changes in %s are seen again", self._store)
            self._is_away = False
        seen, self._seen = self._seen, found
        if found != seen:
            self._watches.tell(
                key for key in seen.keys() | found.keys() if seen.get(key) != found.get(key)
            )

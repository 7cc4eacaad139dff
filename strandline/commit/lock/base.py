"""``LockProvider``, the contract of lock providers, and ``TableLock``, which retries one.

A provider may lose a lock that it holds: the lease expired, the session ended, or the file was
deleted. A writer therefore calls ``TableLock.check`` right before the step that must not happen
twice.

Source: Hudi 1.2.0 ``LockProvider``, ``LockManager``.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from strandline.commit.lock.settings import CLIENT_RETRIES, CLIENT_RETRY_WAIT, WAIT_TIME
from strandline.settings.setting import seconds
from timeline.clock import Clock, SystemClock
from timeline.errors import LockError, StorageError

logger = logging.getLogger(__name__)

Wait = Callable[[float], None]
"""Sleeps for a number of seconds; tests pass their own function."""


class LockProvider(ABC):
    """The lock of one table; an instance holds it at most once and is used by one thread at a time.

    Attributes:
        name: Class name in Hudi.
        is_shared: Whether the lock excludes writers in other processes.
    """

    name: ClassVar[str]
    is_shared: ClassVar[bool] = True

    @abstractmethod
    def try_lock(self, timeout_s: float) -> bool:
        """Acquire the lock, waiting at most ``timeout_s`` seconds.

        Returns:
            Whether the lock is held. After ``False`` or an error, a request whose response was lost
            may still have acquired it: repeat the call, or give up with ``unlock``.

        Raises:
            LockError: The lock can't be reached.
            StorageError: The lock's storage failed.
        """

    @abstractmethod
    def unlock(self) -> None:
        """Release the lock if this instance holds it; otherwise do nothing.

        Raises:
            LockError: The lock was lost while it was held, or may still be held.
            StorageError: The lock's storage failed; the lock may still be held.
        """

    @abstractmethod
    def is_held(self) -> bool:
        """Return whether this instance still holds the lock.

        An error counts as lost: the result is ``True`` only if no other client can hold the lock.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return where the lock is, for messages: a path or an address."""

    def holder(self) -> str:
        """Describe another holder, for messages; ``""`` if nothing is known."""
        return ""

    def advice(self) -> str | None:
        """Advise what to do about a holder that was killed, for messages."""
        return None

    def close(self) -> None:
        """Release the lock, if held, and the provider's resources; idempotent."""
        self.unlock()


class PollingProvider(LockProvider):
    """A provider that polls the lock until it is free.

    Args:
        interval_s: Seconds between two polls.
        clock: Measures time-outs and ages.
        wait: Waits between two polls.
    """

    def __init__(self, interval_s: float, clock: Clock | None, wait: Wait) -> None:
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._wait = wait

    @abstractmethod
    def _attempt(self) -> bool:
        """Try once to acquire the lock; return whether it is held."""

    def try_lock(self, timeout_s: float) -> bool:
        """Acquire the lock, waiting at most ``timeout_s`` seconds while another client holds it."""
        return poll(self._attempt, timeout_s, self._interval_s, self._clock, self._wait)


@dataclass(frozen=True, slots=True)
class LockRetries:
    """How often and how long a lock is tried; the defaults are Hudi's.

    Attributes:
        attempts: Number of calls of ``try_lock``, at least one.
        timeout_s: Time that each call may wait.
        pause_s: Time between two calls.
    """

    attempts: int = CLIENT_RETRIES.field(lambda retries: 1 + retries)
    timeout_s: float = WAIT_TIME.field(seconds)
    pause_s: float = CLIENT_RETRY_WAIT.field(seconds)


class TableLock:
    """The lock that a writer takes around its changes of the timeline; not reentrant.

    Args:
        provider: The provider; ``None`` means that the table has one writer and needs no lock.
        retries: How often and how long the lock is tried.
        wait: Waits between two attempts.
    """

    def __init__(
        self,
        provider: LockProvider | None = None,
        retries: LockRetries | None = None,
        wait: Wait = time.sleep,
    ) -> None:
        self._provider = provider
        self._retries = retries or LockRetries()
        self._wait = wait
        self._purpose: str | None = None

    @property
    def has_provider(self) -> bool:
        """Whether there is a lock at all."""
        return self._provider is not None

    @property
    def is_shared(self) -> bool:
        """Whether the lock excludes writers in other processes."""
        return self._provider is not None and self._provider.is_shared

    def describe(self) -> str:
        """Return the provider's class name and the lock's place, for messages."""
        if self._provider is None:
            return "no lock provider"
        return f"{self._provider.name} at {self._provider.describe()}"

    @contextmanager
    def held(self, purpose: str) -> Iterator[None]:
        """Hold the lock while the block runs.

        A failed release is only logged: the effects of the block aren't undone.

        Args:
            purpose: Why the lock is held, for messages: ``"commit 20261122164930123"``.

        Raises:
            LockError: The lock wasn't acquired in any attempt.
            RuntimeError: The block of another ``held`` of this object is running.
        """
        if self._purpose is not None:
            raise RuntimeError(f"{self.describe()} is held for {self._purpose}, not for {purpose}")
        self._purpose = purpose
        try:
            if self._provider is None:
                yield
                return
            try:
                self._acquire(self._provider, purpose)
                yield
            finally:
                # After a failed or interrupted attempt, too: its last request may have succeeded.
                self._release(self._provider, purpose)
        finally:
            self._purpose = None

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the lock, which the caller holds, while the block runs; then acquire it again.

        If the block fails, or the lock can't be acquired again, it stays released, and the block of
        ``held`` ends without it.

        Raises:
            LockError: The lock wasn't acquired again in any attempt.
            RuntimeError: The caller doesn't hold it.
        """
        purpose = self._purpose
        if purpose is None:
            raise RuntimeError(f"{self.describe()} isn't held")
        if self._provider is None:
            yield
            return
        self._release(self._provider, purpose)
        yield
        self._acquire(self._provider, purpose)

    def check(self) -> None:
        """Check that the lock, if there is one, hasn't been lost since it was acquired.

        Raises:
            LockError: It has been lost, or its state can't be determined.
        """
        if self._provider is not None and not self._provider.is_held():
            raise LockError(
                f"the table's lock ({self.describe()}) was lost during {self._purpose}",
                hint="another writer may hold it by now; repeat the write",
            )

    def close(self) -> None:
        """Close the provider; a release that fails again is logged.

        Writes under the lock stay committed: a caller that got an error from here would consider
        the write failed and repeat it.
        """
        if self._provider is None:
            return
        try:
            self._provider.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing depends on it
            logger.warning("%s wasn't released when its client closed: %s", self.describe(), error)

    def _acquire(self, provider: LockProvider, purpose: str) -> None:
        last: Exception | None = None
        for attempt in range(self._retries.attempts):
            if attempt:
                self._wait(self._retries.pause_s)
            try:
                if provider.try_lock(self._retries.timeout_s):
                    return
                last = None
            except (LockError, StorageError) as error:
                logger.info("%s wasn't acquired for %s: %s", self.describe(), purpose, error)
                last = error
        holder = provider.holder()
        reason = f"last error: {last}" if last else f"held by {holder or 'another writer'}"
        raise LockError(
            f"the table's lock ({self.describe()}) wasn't acquired for {purpose} in"
            f" {self._retries.attempts} attempts of {self._retries.timeout_s:g} s; {reason}",
            hint=None if last else provider.advice(),
        ) from last

    def _release(self, provider: LockProvider, purpose: str) -> None:
        try:
            provider.unlock()
        except Exception as error:  # noqa: BLE001 - the block's outcome mustn't depend on it
            logger.warning("%s wasn't released after %s: %s", self.describe(), purpose, error)


def poll(
    attempt: Callable[[], bool], timeout_s: float, interval_s: float, clock: Clock, wait: Wait
) -> bool:
    """Repeat ``attempt`` every ``interval_s`` seconds until it succeeds or ``timeout_s`` is over.

    Returns:
        Whether an attempt succeeded; there is at least one.
    """
    deadline = clock.monotonic() + timeout_s
    while not attempt():
        left_s = deadline - clock.monotonic()
        if left_s <= 0:
            return False
        wait(min(interval_s, left_s))
    return True

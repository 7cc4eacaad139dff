"""``Circuit``: the circuit breaker of one address of the service, kept by the worker process.

A Spark task lasts seconds, its worker process hours. If one task finds that an address doesn't
answer, later tasks must not wait for the same result. A *closed* circuit lets requests through. An
*open* one doesn't; a background thread probes the address (the *half-open* state) and closes the
circuit when it answers. ::

             a request failed
    closed ────────────────────▶ open, probed every 1 s, 2 s, ... 60 s
       ▲                           │
       └───────────────────────────┘ a probe was answered, or given up after the last one

The more often it opened since a request was answered, the longer the first wait.

With ``spark.python.worker.reuse=false`` each task has its own process and its own circuits.

Source: M. Nygard, *Release It!*, chapter "Circuit Breaker".
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Final

from timeline.errors import StrandlineError

logger = logging.getLogger(__name__)

FIRST_PROBE_S: Final = 1.0
"""Bound of the wait before the first probe; doubles with each failure."""
LONGEST_PROBE_S: Final = 60.0
"""Bound of every wait between probes."""
MAX_PROBES: Final = 100
"""Probes after which the thread ends: it must not run forever if the address is gone for good."""

random_share: Final = random.SystemRandom().random
"""Returns a number in [0, 1). Neither a job's seed nor a fork makes workers wait alike, and the
job's own random numbers aren't disturbed."""

Probe = Callable[[], object]
"""Sends any request to the address; raises ``StrandlineError`` if there is no answer."""


class Known(IntEnum):
    """What this process knows of an address."""

    NOTHING = 0
    REACHED = 1
    """A probe was answered."""
    ANSWERED = 2
    """A request was."""


@dataclass(frozen=True, slots=True)
class CircuitState:
    """The state of a circuit; what happens turns it into another.

    Attributes:
        known: What is known of the address.
        failures: How often it opened since a request was answered.
        failure: Why it is open, reported for the requests that it rejects; ``None``: it is closed.
    """

    known: Known = Known.NOTHING
    failures: int = 0
    failure: StrandlineError | None = None

    def answered(self) -> CircuitState:
        """Return the state after an answer to a request."""
        return replace(self, known=Known.ANSWERED, failures=0)

    def opened(self, failure: StrandlineError) -> CircuitState:
        """Return the state after a request failed."""
        return replace(self, failures=self.failures + 1, failure=failure)

    def closed(self, *, reached: bool) -> CircuitState:
        """Return the state after the probes; ``reached``: whether one was answered."""
        known = max(self.known, Known.REACHED) if reached else self.known
        return replace(self, known=known, failure=None)

    @property
    def first_wait_s(self) -> float:
        """Bound of the wait before the first probe, which doubles each time it opens.

        A service that answers probes may still be too slow for requests.
        """
        return float(min(FIRST_PROBE_S * 2 ** (self.failures - 1), LONGEST_PROBE_S))


class Circuit:
    """Circuit breaker of one address; thread-safe.

    Args:
        address: Name of the address in log messages.
        wait: Waits a number of seconds.
        jitter: Returns a random number in [0, 1).
        begin: Runs a function in the background.

    Attributes:
        state: The state; read without a lock.
    """

    def __init__(
        self,
        address: str,
        *,
        wait: Callable[[float], object] | None = None,
        jitter: Callable[[], float] = random_share,
        begin: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._address = address
        self._wait = wait or _never.wait
        self._jitter = jitter
        self._begin = begin or _in_background
        self._lock = threading.Lock()
        self.state = CircuitState()

    def answered(self) -> None:
        """Record an answer to a request."""
        # Read without the lock, because nearly every answer finds nothing to change.
        if self.state.failures or self.state.known is not Known.ANSWERED:
            with self._lock:
                self.state = self.state.answered()

    def failed(self, error: StrandlineError, probe: Probe) -> None:
        """Open the circuit and probe the address in the background until it answers.

        Args:
            error: The failure.
            probe: Sends a probe.
        """
        with self._lock:
            # Of several tasks that fail at once only one starts a probing thread.
            if self.state.failure is not None:
                return
            # A copy, whose traceback doesn't keep the frames of the task.
            opened = self.state = self.state.opened(type(error)(str(error)))
        try:
            # Outside the lock: the circuit is open, so no other thread gets here.
            self._begin(partial(self._probe, probe, opened.first_wait_s))
        except RuntimeError as exc:  # no thread could be started that would close it
            self._close(reached=False)
            logger.warning("%s can't be probed and is asked as before: %s", self._address, exc)
        else:
            logger.info("%s is not asked until it answers a probe: %s", self._address, error)

    def _probe(self, probe: Probe, bound: float) -> None:
        """Probe until there is an answer, with exponential backoff and jitter."""
        reached = False
        for _ in range(MAX_PROBES):
            # With jitter, so that the workers of a job don't probe all at the same time.
            self._wait(bound * (1 + self._jitter()) / 2)
            try:
                probe()
            except Exception as error:  # noqa: BLE001 - whatever the error, a circuit must close again
                logger.debug("no answer from %s to a probe: %s", self._address, error)
                bound = min(bound * 2, LONGEST_PROBE_S)
            else:
                logger.info("%s answers again", self._address)
                reached = True
                break
        # Even after ``MAX_PROBES`` failures: then the next request tries the address.
        self._close(reached=reached)

    def _close(self, *, reached: bool) -> None:
        with self._lock:
            self.state = self.state.closed(reached=reached)


_never: Final = threading.Event()
"""Never set; probing threads wait on it until they are due or the process ends."""


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="strandline-probe", daemon=True).start()

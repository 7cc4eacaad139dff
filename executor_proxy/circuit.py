"""``Circuit``: the circuit breaker of one address of the service, kept by the worker process.

A Spark task lasts seconds, its worker process hours. If one task finds that an address doesn't
answer, later tasks must not wait for the same result. A *closed* circuit lets requests through. An
*open* one doesn't; a background thread probes the address (the *half-open* state) and closes the
circuit when it answers.

With ``spark.python.worker.reuse=false`` each task has its own process and its own circuits.

Source: M. Nygard, *Release It!*, chapter "Circuit Breaker".
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
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


class Circuit:
    """Circuit breaker of one address; thread-safe.

    Args:
        address: Name of the address in log messages.
        wait: Waits a number of seconds.
        jitter: Returns a random number in [0, 1).
        begin: Runs a function in the background.

    Attributes:
        is_open: Whether requests must not be sent; read without a lock.
        has_answered: Whether this process ever got an answer to a request; read without a lock.
        was_reached: Whether a request or a probe was ever answered; read without a lock.
        failure: Why it opened last; reported for the requests that it rejects.
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
        self._failures = 0
        self.is_open = False
        self.has_answered = self.was_reached = False
        self.failure: StrandlineError | None = None

    def answered(self) -> None:
        """Record an answer to a request."""
        # Read without the lock, because nearly every answer finds nothing to change.
        if self._failures or not self.has_answered:
            with self._lock:
                self._failures = 0
                self.has_answered = self.was_reached = True

    def failed(self, error: StrandlineError, probe: Probe) -> None:
        """Open the circuit and probe the address in the background until it answers.

        Args:
            error: The failure.
            probe: Sends a probe.
        """
        with self._lock:
            # Of several tasks that fail at once only one starts a probing thread.
            if self.is_open:
                return
            self._failures += 1
            # A copy, whose traceback doesn't keep the frames of the task. Before ``is_open``, which
            # others read without the lock.
            self.failure = type(error)(str(error))
            self.is_open = True
            # Doubled each time: a service that answers probes may still be too slow for requests.
            bound = min(FIRST_PROBE_S * 2 ** (self._failures - 1), LONGEST_PROBE_S)
        try:
            # Outside the lock: the circuit is open, so no other thread gets here.
            self._begin(partial(self._probe, probe, bound))
        except RuntimeError as exc:  # no thread could be started that would close it
            self.is_open = False
            logger.warning("%s can't be probed and is asked as before: %s", self._address, exc)
        else:
            logger.info("%s is not asked until it answers a probe: %s", self._address, error)

    def _probe(self, probe: Probe, bound: float) -> None:
        """Probe until there is an answer, with exponential backoff and jitter."""
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
                self.was_reached = True
                break
        # Even after ``MAX_PROBES`` failures: then the next request tries the address.
        self.is_open = False


_never: Final = threading.Event()
"""Never set; probing threads wait on it until they are due or the process ends."""


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="strandline-probe", daemon=True).start()

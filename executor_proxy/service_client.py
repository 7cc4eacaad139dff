"""``ServiceClient`` asks the addresses of one service in order, and decides how often and how long.

==========================  ====================================================================
failure                     consequence
==========================  ====================================================================
no connection, lost, late   the next address is asked at once
all addresses unreachable   another round after a wait with jitter, if the request may be repeated
503 with ``Retry-After``    asked again at that time, until the deadline: slow isn't dead
any other answer            raised
==========================  ====================================================================

Until the service has answered this process once, all tries of a question share ``first_s``: a job
whose driver is unreachable must not wait long in each worker. An address that failed is not asked
again before it answered a probe (``executor_proxy.circuit``).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from executor_proxy.circuit import Circuit
from executor_proxy.http import HttpSession
from timeline.errors import (
    BadAnswerError,
    ConfigError,
    ServiceBusyError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    StrandlineError,
)

logger = logging.getLogger(__name__)

PROBE: Final = "/healthz"
_PROBE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often a question is asked.

    Attributes:
        first_s: Time for all tries of a question until the service has answered once, seconds.
        deadline_s: Time for all tries of a question afterwards, seconds.
        retries: Number of further rounds after no address could be reached.
        first_wait_s: Upper bound of the wait before the first of them, which doubles each time.
        longest_wait_s: Upper bound of all these waits.
    """

    first_s: float = 3.0
    deadline_s: float = 300.0
    retries: int = 2
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0

    def __post_init__(self) -> None:
        for name in ("first_s", "deadline_s", "first_wait_s", "longest_wait_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; allowed: above 0")
        if self.retries < 0:
            raise ConfigError(f"retries is {self.retries}; allowed: 0 or more")


DEFAULT_PATIENCE: Final = Patience()


class ServiceClient:
    """Client of a service with one or several addresses; thread-safe.

    Args:
        sessions: One for each address, in order of preference.
        circuit_of: Returns the circuit of an address.
        patience: How long and how often to ask.
        clock: Returns seconds of a monotonic clock.
        wait: Waits a number of seconds.
        jitter: Returns a random number in [0, 1).
    """

    def __init__(
        self,
        sessions: tuple[HttpSession, ...],
        circuit_of: Callable[[str], Circuit],
        patience: Patience = DEFAULT_PATIENCE,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if not sessions:
            raise ConfigError("a service has no address; allowed: one or more")
        self._ends = tuple((session, circuit_of(session.url)) for session in sessions)
        self._patience = patience
        self._clock = clock
        self._wait = wait
        self._jitter = jitter

    def __repr__(self) -> str:
        return f"ServiceClient({', '.join(self.urls)})"

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses."""
        return tuple(session.url for session, _ in self._ends)

    def ask(self, send: Callable[[HttpSession, float], bytes], *, is_safe: bool = True) -> bytes:
        """Return the answer of the first address that answers.

        Args:
            send: Sends the request in a session, within a number of seconds.
            is_safe: Whether the request may be repeated after a lost connection.

        Raises:
            ServiceUnreachableError: No address could be reached, or all circuits are open.
            ServiceTimeoutError: The last address asked didn't answer in time.
            ServiceBusyError: The service was still loading at the deadline.
            StrandlineError: The error that the service answered.
        """
        started = self._clock()
        rounds = 0
        while True:
            failed: list[_Failure] = []
            try:
                return self._ask_each(send, started, failed, is_safe=is_safe)
            except ServiceBusyError as busy:
                pause = busy.retry_after_s * (1 + self._jitter() / 4)
                if pause >= self._left(started):
                    raise
            except (ServiceUnreachableError, ServiceTimeoutError) as error:
                pause = self._pause(rounds)
                rounds += 1
                is_lost = any(isinstance(each.error, ServiceUnreachableError) for each in failed)
                may_repeat = is_safe and is_lost and rounds <= self._patience.retries
                if not may_repeat or pause >= self._left(started):
                    _open(failed)
                    raise
                logger.info("retrying in %.2f s: %s", pause, error)
            self._wait(pause)

    def _ask_each(
        self,
        send: Callable[[HttpSession, float], bytes],
        started: float,
        failed: list[_Failure],
        *,
        is_safe: bool,
    ) -> bytes:
        """Ask the addresses in order until one answers; add those that don't to ``failed``."""
        for session, circuit in self._ends:
            left = self._left(started)
            if circuit.is_open or left <= 0:
                continue
            try:
                answer = send(session, left)
            except (ServiceUnreachableError, ServiceTimeoutError) as error:
                failed.append(_Failure(session, circuit, error))
                if not is_safe:
                    raise
            except BadAnswerError:
                raise
            except StrandlineError:
                circuit.answered()
                raise
            else:
                circuit.answered()
                # The next question must not wait for the addresses before this one again.
                _open(failed)
                return answer
        if failed:
            raise failed[-1].error
        raise ServiceUnreachableError(
            f"{self!r} is not asked until it answers a probe: it was unreachable before"
        )

    def _left(self, started: float) -> float:
        """Return the seconds left for the tries of a question."""
        known = any(circuit.has_answered for _, circuit in self._ends)
        bound = self._patience.deadline_s if known else self._patience.first_s
        return float(started + bound - self._clock())

    def _pause(self, rounds: int) -> float:
        """Return the wait after a round: its bound times a random factor in [0.5, 1)."""
        bound = min(self._patience.first_wait_s * (1 << rounds), self._patience.longest_wait_s)
        return bound * (1 + self._jitter()) / 2


@dataclass(frozen=True, slots=True)
class _Failure:
    """An address that didn't answer."""

    session: HttpSession
    circuit: Circuit
    error: ServiceError


def _open(failed: list[_Failure]) -> None:
    """Open the circuits of addresses that didn't answer."""
    for each in failed:
        each.circuit.failed(each.error, partial(_probe, each.session))


def _probe(session: HttpSession) -> None:
    """Send a probe; an answer with any status counts."""
    try:
        session.get(PROBE, {}, within_s=_PROBE_S)
    except (ServiceUnreachableError, ServiceTimeoutError, BadAnswerError):
        raise
    except StrandlineError as error:
        logger.debug("a probe was refused: %s", error)

"""``ServiceClient``: tries the addresses of one service in turn, with retries and deadlines.

==========================  ====================================================================
failure                     consequence
==========================  ====================================================================
no connection, lost, late   the next address is asked at once; this one not before a probe
503                         the next address is asked at once
all addresses unreachable   another round after a wait with jitter, if the request may be repeated
... 503 + ``Retry-After``   another round at that time, until the deadline: slow isn't dead
any other answer            raised
==========================  ====================================================================

A request that may not be repeated goes to another address only if it certainly reached none, or was
answered with 503 and ``Retry-After``.

The first ``copies`` addresses have the table in memory. Requests at an instant are shared among
them: each worker begins with a different one. All other requests go to the first address, the
table's owner, which is notified of commits first.

Until the service has answered this process once, all attempts of a request share ``first_s``: a job
whose driver is unreachable must not wait long in each worker. Each address gets an equal share, so
that a silent one leaves time for the others, and no later request waits for silent ones. An address
that failed gets no request before it answers a probe (``executor_proxy.circuit``), or, without a
fallback, only after all others; one that was late but has answered before is skipped only for
requests about the same table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, TypeGuard

from executor_proxy.circuit import Circuit, Known, random_share
from executor_proxy.exchange import check_positive
from executor_proxy.http import HttpSession
from timeline.errors import (
    BadAnswerError,
    ConfigError,
    RemoteFailureError,
    ServiceBusyError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    StrandlineError,
)

logger = logging.getLogger(__name__)

PROBE: Final = "/healthz"
_PROBE_S: Final = 2.0
"""Bound of a probe."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often a request is tried.

    Attributes:
        first_s: Time for all attempts of a request until the service has answered once, seconds.
            With the default a dead service costs a worker less than 3 s, the fallback's start
            included.
        deadline_s: Time for all attempts of a request afterwards, seconds.
        retries: Number of further rounds if no address could be reached.
        first_wait_s: Upper bound of the wait before the first of them, which doubles each time.
        longest_wait_s: Upper bound of all these waits.
    """

    first_s: float = 2.8
    deadline_s: float = 300.0
    retries: int = 2
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0

    def __post_init__(self) -> None:
        check_positive(self, "first_s", "deadline_s", "first_wait_s", "longest_wait_s")
        if self.retries < 0:
            raise ConfigError(f"retries is {self.retries}; allowed: 0 or more")


DEFAULT_PATIENCE: Final = Patience()


class ServiceClient:
    """Client of a service with one or several addresses; thread-safe.

    Args:
        sessions: One for each address, in order of preference.
        circuit_of: Returns the circuit of an address, or of one table at it.
        table: The table that requests are about.
        insists: Whether addresses with open circuits are tried, too, after all others, because
            there is no fallback.
        patience: How long and how often to try.
        copies: How many of the first addresses share requests that any of them can answer.
        turn: Returns the worker's number, which selects the address that it begins with.
        clock: Returns seconds of a monotonic clock.
        wait: Waits a number of seconds.
        jitter: Returns a random number in [0, 1).
    """

    def __init__(
        self,
        sessions: tuple[HttpSession, ...],
        circuit_of: Callable[[HttpSession, str | None], Circuit],
        table: str,
        patience: Patience = DEFAULT_PATIENCE,
        *,
        insists: bool = False,
        copies: int = 1,
        turn: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
        jitter: Callable[[], float] = random_share,
    ) -> None:
        if not sessions:
            raise ConfigError("a service has no address; allowed: one or more")
        if not 1 <= copies <= len(sessions):
            raise ConfigError(
                f"copies is {copies}; allowed: from 1 to the number of addresses, {len(sessions)}"
            )
        self._sessions = sessions
        self._circuit_of = circuit_of
        self._table = table
        self._insists = insists
        self._copies = copies
        self._turn = turn
        self._patience = patience
        self._clock = clock
        self._wait = wait
        self._jitter = jitter

    def __repr__(self) -> str:
        return f"ServiceClient({', '.join(self.urls)})"

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses."""
        return tuple(session.url for session in self._sessions)

    def ask(
        self,
        send: Callable[[HttpSession, float], bytes],
        *,
        is_safe: bool = True,
        is_shared: bool = False,
    ) -> bytes:
        """Return the answer of the first address that answers.

        Args:
            send: Sends the request in a session, within a number of seconds.
            is_safe: Whether the request may be repeated after a lost connection.
            is_shared: Whether any copy may be asked first; else only the owner.

        Raises:
            ServiceUnreachableError: No address could be reached, now or when its circuit opened.
            ServiceTimeoutError: The last address didn't answer in time, now or when its circuit
                opened.
            ServiceBusyError: The service was still loading at the deadline.
            StrandlineError: The error that the service answered.
        """
        started = self._clock()
        sessions = self._in_turn() if is_shared else self._sessions
        rounds = 0
        while True:
            tried = _Round(len(sessions), is_safe)
            try:
                return self._ask_each(sessions, send, started, tried)
            except ServiceBusyError as busy:
                # Busy addresses answer in the next round, which need not try the others again.
                _open(tried.failed)
                last: StrandlineError = busy
                pause = max(busy.retry_after_s, self._patience.first_wait_s)
                # With jitter, so that waiting workers don't all retry at once.
                pause *= 1 + self._jitter() / 4
                if pause >= self._left(started):
                    raise
            except (ServiceUnreachableError, ServiceTimeoutError) as error:
                last = error
                pause = self._pause(rounds)
                rounds += 1
                is_lost = any(
                    isinstance(each.error, ServiceUnreachableError) for each in tried.failed
                )
                may_repeat = is_safe and is_lost and rounds <= self._patience.retries
                if not may_repeat or pause >= self._left(started):
                    # Only after the last round: open circuits would refuse its own repeats.
                    _open(tried.failed)
                    raise
                logger.info("retrying in %.2f s: %s", pause, error)
            self._wait(pause)
            # A busy machine wakes late; then raise this error, not one about the deadline.
            if self._left(started) <= 0:
                _open(tried.failed)
                raise last

    def _ask_each(
        self,
        sessions: tuple[HttpSession, ...],
        send: Callable[[HttpSession, float], bytes],
        started: float,
        tried: _Round,
    ) -> bytes:
        """Try the addresses in order until one answers; ``tried`` takes those that don't."""
        for session in self._closed_first(sessions) if self._insists else sessions:
            left = self._left(started)
            answer = self._ask_one(session, send, left, tried) if left > 0 else None
            if answer is not None:
                return answer
        raise tried.error() or self._not_asked(tried.kept_open)

    def _ask_one(
        self,
        session: HttpSession,
        send: Callable[[HttpSession, float], bytes],
        left: float,
        tried: _Round,
    ) -> bytes | None:
        """Return the answer of an address; ``None``: another one may be asked."""
        # Looked up each time: a forked process has circuits of its own.
        address, of_table = self._circuits(session)
        kept_open = address.state.failure or of_table.state.failure
        if kept_open is not None and not self._insists:
            tried.kept_open = kept_open
            return None
        if not (address.state.known is Known.ANSWERED or self._has_answered):
            # An address whose circuit is open has used its share before.
            left /= tried.addresses - len(tried.failed)
        try:
            answer = send(session, left)
        except (ServiceUnreachableError, ServiceTimeoutError) as error:
            # One table's storage may hang while the service is up, so only that table's circuit
            # opens; for an address that never answered, the address's own.
            is_well = (
                isinstance(error, ServiceTimeoutError) and address.state.known >= Known.REACHED
            )
            tried.failed.append(_Failure(session, of_table if is_well else address, error))
            # If the request may have arrived, no other address may get it.
            if not tried.is_safe and _may_have_arrived(error):
                raise
            return None
        except StrandlineError as error:
            if not isinstance(error, BadAnswerError):
                address.answered()
                of_table.answered()
            if tried.goes_on_after(error):
                return None
            _open(tried.failed)
            raise
        address.answered()
        of_table.answered()
        # The next request must not wait for the addresses before this one again.
        _open(tried.failed)
        return answer

    def _not_asked(self, kept_open: StrandlineError | None) -> ServiceError:
        """Return the error of a round in which no address was asked."""
        # The same error class as that of the failed request: a late service is reachable.
        kind = type(kept_open) if isinstance(kept_open, ServiceError) else ServiceUnreachableError
        return kind(
            f"{self!r} is not asked until it answers a probe: {kept_open or 'no time left'}"
        )

    def _in_turn(self) -> tuple[HttpSession, ...]:
        """Return the addresses, beginning with this worker's copy."""
        copies, others = self._sessions[: self._copies], self._sessions[self._copies :]
        first = self._turn() % self._copies
        return (*copies[first:], *copies[:first], *others)

    def _closed_first(self, sessions: tuple[HttpSession, ...]) -> list[HttpSession]:
        """Return the addresses, those with open circuits last."""
        return sorted(sessions, key=lambda s: any(each.state.failure for each in self._circuits(s)))

    def _circuits(self, session: HttpSession) -> tuple[Circuit, Circuit]:
        """Return the circuit of an address, and that of the table at this address."""
        return self._circuit_of(session, None), self._circuit_of(session, self._table)

    def _left(self, started: float) -> float:
        """Return the seconds left for the attempts of a request."""
        patience = self._patience
        bound = patience.deadline_s if self._has_answered else patience.first_s
        return float(started + bound - self._clock())

    @property
    def _has_answered(self) -> bool:
        """Whether any address has answered a request of this process."""
        return any(
            self._circuit_of(session, None).state.known is Known.ANSWERED
            for session in self._sessions
        )

    def _pause(self, rounds: int) -> float:
        """Return the wait after a round: its bound times a random factor in [0.5, 1)."""
        bound = min(self._patience.first_wait_s * (1 << rounds), self._patience.longest_wait_s)
        return bound * (1 + self._jitter()) / 2


@dataclass(frozen=True, slots=True)
class _Failure:
    """An address that didn't answer, and the circuit that the failure opens."""

    session: HttpSession
    circuit: Circuit
    error: ServiceError


@dataclass(slots=True)
class _Round:
    """What the addresses of one round did, each in place of an answer.

    Attributes:
        addresses: How many there are.
        is_safe: Whether the request may be repeated after a lost connection.
        failed: Those that didn't answer.
        busy: The answers that the service is still loading.
        refused: An answer that the server is unavailable.
        kept_open: Why an address wasn't asked.
    """

    addresses: int
    is_safe: bool
    failed: list[_Failure] = field(default_factory=list)
    busy: list[ServiceBusyError] = field(default_factory=list)
    refused: RemoteFailureError | None = None
    kept_open: StrandlineError | None = None

    def goes_on_after(self, error: StrandlineError) -> bool:
        """Keep an error that was answered; return whether another address may do better."""
        if isinstance(error, ServiceBusyError):
            self.busy.append(error)
        elif self.is_safe and _is_unavailable(error):
            self.refused = error
        else:
            return False
        return True

    def error(self) -> StrandlineError | None:
        """Return the error of the round; ``None`` if no address was asked."""
        if self.busy:
            return min(self.busy, key=lambda each: each.retry_after_s)
        return self.failed[-1].error if self.failed else self.refused


def _may_have_arrived(error: ServiceError) -> bool:
    return not isinstance(error, ServiceUnreachableError) or error.may_have_arrived


def _is_unavailable(error: StrandlineError) -> TypeGuard[RemoteFailureError]:
    """Whether the answer is that the server is unavailable, for instance as it shuts down."""
    return (
        isinstance(error, RemoteFailureError) and error.answered == HTTPStatus.SERVICE_UNAVAILABLE
    )


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

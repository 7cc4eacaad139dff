"""``Peer``: the kept connections to one other server, and whether it is worth asking.

Each connection has one request at a time. A request takes an idle connection, or opens one, or
waits for one in a queue; both numbers are bounded, and requests about one table have half of the
connections at most: a table whose storage hangs leaves room for the others. A peer that can't be
reached, or is late, is skipped for a while (circuit breaker); then one trial request is sent, while
all others still go elsewhere, if they can. Each trial that fails doubles the pause, up to
``LONGEST_S``. A failure doesn't count if the peer has answered another request since the failed one
began.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter, deque
from functools import partial
from typing import Final

from executor_proxy.exchange import Endpoint as Place
from executor_proxy.exchange import tls_context
from strandline.fleet.peer_connection import PeerAnswer, PeerConnection, PeerLimits, Received
from timeline.errors import ServiceError, ServiceTimeoutError, ServiceUnreachableError

logger = logging.getLogger(__name__)

FIRST_S: Final = 1.0
"""How long a peer is skipped after its first failure; doubles with each trial that fails."""
LONGEST_S: Final = 16.0


class Peer:
    """Another server; used on one loop.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        limits: What it may take and hold.
        received: Counts the bodies of all peers.
        ca_file: PEM file of trusted authorities, for https; ``None``: the system's.

    Attributes:
        url: The address.
        host: Value of ``Host`` in requests.

    Raises:
        ConfigError: The address or the file isn't valid.
    """

    def __init__(
        self, url: str, limits: PeerLimits, received: Received, ca_file: str | None = None
    ) -> None:
        self.url = url
        place = Place.of(url, ca_file if url.startswith("https:") else None)
        self._address = (place.host, place.port)
        host = f"[{place.host}]" if ":" in place.host else place.host.encode("idna").decode()
        self.host = f"{host}:{place.port}".encode("ascii")
        self._tls: ssl.SSLContext | None = tls_context(place.ca_file) if place.encrypted else None
        self._limits, self._received = limits, received
        self._idle: list[PeerConnection] = []
        self._open: set[PeerConnection] = set()
        self._busy = 0
        self._busy_of: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._answered_at = float("-inf")
        self._shut_at = self._shut_until = float("-inf")
        self._trials = 0
        self._shut_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._busy

    def may_be_asked(self, *, beside_trial: bool = False) -> bool:
        """Return whether a request may be sent now; after a failure, one trial at a time.

        Args:
            beside_trial: Whether also while the first trial since a failure is under way.
        """
        is_tried = self._shut_until > self._shut_at + self._shut_s
        if not self._shut_s or (beside_trial and is_tried):
            return True
        now = asyncio.get_running_loop().time()
        if self._trials or now < self._shut_until:
            return False
        # Other requests go elsewhere until this trial has ended, even before it begins.
        self._shut_until = now + self._shut_s
        return True

    async def ask(
        self,
        request: bytes,
        *,
        is_safe: bool,
        within_s: float,
        table: str = "",
        may_be_late: bool = False,
    ) -> PeerAnswer:
        """Send a request, and return the answer.

        Args:
            request: The bytes of the request.
            is_safe: Whether it may arrive twice: a kept connection may have been closed by the peer
                while it was idle.
            within_s: Seconds after which the answer is too late.
            table: The table it is about; empty: none, which counts as a table of its own.
            may_be_late: Whether a late answer doesn't count as a failure.

        Raises:
            ServiceError: There is no valid answer; see ``PeerConnection.exchange``. If it is a
                ``ServiceUnreachableError``, its ``may_have_arrived`` may be false.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not self._has_room(table) and len(self._waiting) >= self._limits.queued:
            # It is overloaded, which is no sign that it is down.
            raise _not_sent(f"{self.url}: {len(self._waiting)} requests wait for it")
        is_trial = bool(self._shut_s)
        self._trials += is_trial
        try:
            answer = await self._in_turn(request, table, is_safe, began + within_s)
        except ServiceError as error:
            # Answers to other requests since then show that it is up; failures have opened the
            # circuit already.
            is_late = isinstance(error, ServiceTimeoutError) and not may_be_late
            is_down = is_late or isinstance(error, ServiceUnreachableError)
            if is_down and max(self._answered_at, self._shut_at) <= began:
                self._shut(error, loop.time())
            raise
        finally:
            self._trials -= is_trial
        self._answered_at = loop.time()
        if self._shut_s:
            logger.info("%s answers again", self.url)
            self._shut_s = 0.0
        return answer

    def close(self) -> None:
        """End all connections."""
        for connection in tuple(self._open):
            connection.abort()

    def _shut(self, error: ServiceError, now: float) -> None:
        self._shut_s = min(self._shut_s * 2, LONGEST_S) or FIRST_S
        self._shut_at, self._shut_until = now, now + self._shut_s
        logger.warning("%s isn't asked for %g s: %s", self.url, self._shut_s, error)

    def _has_room(self, table: str) -> bool:
        """Whether a request may have a connection now."""
        if self._busy >= self._limits.connections:
            return False
        return not table or self._busy_of[table] < max(self._limits.connections // 2, 1)

    def _take(self, table: str) -> None:
        self._busy += 1
        self._busy_of[table] += 1

    async def _in_turn(
        self, request: bytes, table: str, is_safe: bool, until_s: float
    ) -> PeerAnswer:
        """Wait for a free connection if all are in use, then send the request."""
        if self._has_room(table):
            self._take(table)
        else:
            await self._turn(table, until_s)
        try:
            connection = self._idle_one()
            if connection is not None:
                try:
                    return await self._exchange(connection, request, until_s)
                except ServiceUnreachableError:
                    if not is_safe or connection.has_begun or not connection.used:
                        raise
            return await self._exchange(await self._connected(until_s), request, until_s)
        finally:
            self._pass_on(table)

    async def _turn(self, table: str, until_s: float) -> None:
        """Wait until another request has ended, and take its place."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        entry = (table, turn)
        self._waiting.append(entry)
        late = loop.call_at(until_s, _fail, turn, f"{self.url}: no free connection in time")
        try:
            await turn
        except BaseException:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on(table)  # it was given a place in the same iteration of the loop
            raise
        finally:
            late.cancel()

    def _pass_on(self, table: str) -> None:
        """Give the place of a table's finished request to the first waiting one that may run.

        No waiting request could run before, so at most one can now.
        """
        self._busy -= 1
        self._busy_of[table] -= 1
        if not self._busy_of[table]:
            del self._busy_of[table]
        for entry in tuple(self._waiting):
            waits, turn = entry
            if turn.done():
                self._waiting.remove(entry)
            elif self._has_room(waits):
                self._waiting.remove(entry)
                self._take(waits)
                turn.set_result(None)
                return

    def _idle_one(self) -> PeerConnection | None:
        """Return the most recently used idle connection, if one is fresh."""
        oldest = asyncio.get_running_loop().time() - self._limits.idle_s
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def _exchange(
        self, connection: PeerConnection, request: bytes, until_s: float
    ) -> PeerAnswer:
        try:
            return await connection.exchange(request, until_s)
        finally:
            if connection.is_open:
                self._idle.append(connection)

    async def _connected(self, until_s: float) -> PeerConnection:
        loop = asyncio.get_running_loop()
        left_s = min(self._limits.connect_s, until_s - loop.time())
        make = partial(PeerConnection, self.url, self._limits, self._received, self._forget)
        opening = loop.create_connection(make, *self._address, ssl=self._tls)
        try:
            _, connection = await asyncio.wait_for(opening, left_s)
        except asyncio.TimeoutError as error:
            raise _not_sent(f"{self.url}: no connection within {left_s:.3g} s") from error
        except OSError as error:
            raise _not_sent(f"{self.url}: no connection ({error})") from error
        if not connection.is_open:
            # It ended between the handshake and this iteration of the loop.
            raise _not_sent(f"{self.url}: the connection was ended at once")
        self._open.add(connection)
        return connection

    def _forget(self, connection: PeerConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


def _fail(turn: asyncio.Future[None], message: str) -> None:
    if not turn.done():
        turn.set_exception(_not_sent(message))


def _not_sent(message: str) -> ServiceUnreachableError:
    error = ServiceUnreachableError(message)
    error.may_have_arrived = False
    return error

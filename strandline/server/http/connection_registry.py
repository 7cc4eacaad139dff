"""``ConnectionRegistry``: the shared state of a server's connections, and their maximum number.

One timer serves all connections. At a fraction of the shortest limit the registry has every
connection check whether it is overdue, so a request costs no timer, and a limit is exceeded by at
most one interval.

Idle connections don't keep others out: when the server is full, those idle for longest are closed.
If none has been idle for long, a new connection gets one of a few places reserved for probes.

A call to a storage that hangs never ends, so nothing is logged at its end. So the server asks its
threads now and then; for each table it logs a line a minute, with the storage calls under way and
the clients that wait (``HangingRequests``), and the status has the same.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from fsview.metrics import Latencies
from fsview.wire.param import WATCH_PATH
from strandline.server.http.authorization import Admission
from strandline.server.http.exchange import Exchange
from strandline.server.http.limits import LINGER_S, Limits, possible_connections
from strandline.server.http.refusals import Refusals
from strandline.server.http.request import Application, Fields, RefusedError, RequestIds
from strandline.server.http.server_options import HANGS_S
from strandline.server.log_format import hanging_line
from strandline.server.table_threads import TableThreads

logger = logging.getLogger(__name__)

_CHECKS: Final = 8
"""Number of checks within the shortest limit."""
_INTERVAL_AT_MOST_S: Final = 1.0
_INTERVAL_AT_LEAST_S: Final = 0.002
_CHECKED_AT_A_TIME: Final = 256
RESERVED: Final = 128
"""Connections beyond the room: they may send probes, or stay until their refusal is read."""
SPARED_S: Final = 2.0
"""Connections that have been idle no longer than this aren't closed to make room."""
SEARCH_AGAIN_S: Final = SPARED_S / 8
"""Pause after a search for idle connections that found none."""
_CLOSED_AT_A_TIME: Final = 64
"""When the server is full, one in this many connections is closed, so that few arrivals need a
search."""


class HotAnswers(Protocol):
    """The source of ready responses."""

    def respond(self, target: bytes, fields: Fields) -> bytes | None:
        """Return the response to a GET, after its status line, which is ``SUCCESS``.

        ``None``: the application must answer.

        Runs on the server's loop: no I/O, no waiting, well under a millisecond. The request is
        admitted.
        """


class Connection(Protocol):
    """A connection, as the registry knows it."""

    @property
    def idle_since(self) -> float | None:
        """Since when its client has asked nothing, by the loop's clock; ``None``: it is busy."""

    def check(self, now: float) -> None:
        """Do what is due at ``now``, seconds of the loop's clock."""

    def shutdown(self) -> None:
        """End once all requests are answered."""

    def abort(self) -> None:
        """End now."""


class ConnectionRegistry:
    """One for each server; used on its loop only.

    Attributes:
        hot: The source of ready responses, tried first.
        admission: The rules of admission.
        limits: The limits of one client.
        keep_alive_s: How long an idle connection is kept.
        ids: Gives requests their ids.
        refusals: Counts and logs responses of 400 or more.
        hanging: Requests that have held a thread for long.
        latencies: Counts the durations of requests that the application answered.
        body_bytes: Bytes of bodies that are held for requests.
        counts: Events by name, for the status; only grows.
        now: The loop's time at the last check or arrival, seconds.
        room: How many connections there may be.
    """

    def __init__(
        self,
        app: Application,
        threads: TableThreads,
        hot: HotAnswers,
        admission: Admission,
        limits: Limits,
        keep_alive_s: float,
        refusals: Refusals,
        *,
        latencies: Latencies | None = None,
        table_files: int = 0,
        calls: Callable[[str], Mapping[tuple[str, str], float]] = lambda _: {},
        hangs_s: float = HANGS_S,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.hot = hot
        self.admission = admission
        self._table_files = table_files
        self.use_limits(limits, keep_alive_s)
        self.refusals = refusals
        self.ids = RequestIds()
        self.latencies = latencies or Latencies(())
        self.body_bytes = 0
        self.counts: Counter[str] = Counter()
        self.now = self.loop.time()
        self._app, self._threads = app, threads
        self._connections: set[Connection] = set()
        self._reserve: dict[Connection, bool] = {}  # whether it is counted as refused
        self._search_at = self.now
        self._tasks: dict[asyncio.Task[None], Exchange] = {}
        self.hanging = HangingRequests(threads.held_for, calls, self._clients, hangs_s)
        self._timer: asyncio.TimerHandle | None = None
        self._logged: Counter[str] = Counter()
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()

    def use_limits(self, limits: Limits, keep_alive_s: float) -> None:
        """Apply other limits from now on; surplus connections stay until they end.

        For any thread: only attributes are set, each of which is read by itself.
        """
        self.limits, self.keep_alive_s = limits, keep_alive_s
        self.room = possible_connections(limits.connections, self._table_files)
        shortest = min(limits.request_s, limits.write_s, keep_alive_s, LINGER_S)
        self._interval_s = min(max(shortest / _CHECKS, _INTERVAL_AT_LEAST_S), _INTERVAL_AT_MOST_S)
        if self.room < limits.connections:
            logger.warning(
                "this process may have so few open files that it takes %d connections, not %d",
                self.room,
                limits.connections,
            )

    def add(self, connection: Connection) -> bool:
        """Register a new connection; return whether there is room for it.

        If there is none, it may send probes, or has been aborted.
        """
        self.now = self.loop.time()
        if self._closed:
            connection.abort()
            return False
        self._empty.clear()
        if self._timer is None:
            self._timer = self.loop.call_later(self._interval_s, self._check_all)
        if len(self._connections) >= self.room and self.now >= self._search_at:
            self._make_room()
        if len(self._connections) < self.room:
            self._connections.add(connection)
            self.counts["accepted"] += 1
            return True
        self._reserve[connection] = False
        if len(self._reserve) > RESERVED:
            self._shrink_reserve(connection)
        return False

    def refusal_of(self, connection: Connection) -> RefusedError:
        """Return the refusal of a connection for which the server has no room; count it once."""
        self._count_refused(connection)
        return RefusedError(503, f"the service has {self.room} connections, no more may come")

    def _count_refused(self, connection: Connection) -> None:
        if self._reserve.get(connection) is False:
            self._reserve[connection] = True
            self.counts["refused"] += 1

    def replace(self, connection: Connection, successor: Connection) -> bool:
        """Give a connection's place to its successor; return as ``add``."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._connections.add(successor)
            return True
        self._reserve[successor] = self._reserve.pop(connection, False)
        return False

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._connections.discard(connection)
        self._reserve.pop(connection, None)
        self._check_empty()

    def _make_room(self) -> None:
        """Close the connections that have been idle for longest, if any has for ``SPARED_S``."""
        idle = [
            (since, number, connection)
            for number, connection in enumerate(self._connections)
            if (since := connection.idle_since) is not None and self.now - since > SPARED_S
        ]
        if not idle:
            # A search takes milliseconds of the loop, and many connections may arrive.
            self._search_at = self.now + SEARCH_AGAIN_S
        for _, _, connection in heapq.nsmallest(1 + self.room // _CLOSED_AT_A_TIME, idle):
            self.counts["displaced"] += 1
            # Its place is needed now; ``remove`` is called in a later iteration of the loop.
            self._connections.discard(connection)
            connection.abort()

    def _shrink_reserve(self, newest: Connection) -> None:
        """Abort the oldest idle connection in reserve, or else the newest."""
        others = (other for other in self._reserve if other is not newest)
        ended = next((other for other in others if other.idle_since is not None), newest)
        self._count_refused(ended)
        self._reserve.pop(ended)
        ended.abort()

    def start(self, exchange: Exchange) -> None:
        """Have the application answer a request."""
        task = self.loop.create_task(exchange.run(self._app, self._threads))
        exchange.task = task
        self._tasks[task] = exchange
        task.add_done_callback(self._task_done)

    def status(self) -> dict[str, int]:
        """Return figures for the service's status; from any thread."""
        counted = dict(self.counts)  # one step, as the loop may change it meanwhile
        open_ = len(self._connections)
        return {"open": open_, "at_most": self.room, **dict(sorted(counted.items()))}

    def _clients(self) -> dict[str, list[str]]:
        """Return by table the clients that wait for an answer; for any thread.

        Watchers are left out if others wait: there may be thousands, which all wait for one look.
        """
        others: dict[str, list[str]] = {}
        watchers: dict[str, list[str]] = {}
        for exchange in list(self._tasks.values()):  # one step, as the loop may change it meanwhile
            request = exchange.request
            found = watchers if request.path.rstrip("/") == WATCH_PATH else others
            found.setdefault(request.table, []).append(request.peer)
        return watchers | others

    async def close(self, grace_s: float) -> None:
        """End all connections, those with requests once they are answered or ``grace_s`` passed."""
        for connection in (*self._connections, *self._reserve):
            connection.shutdown()
        try:
            await asyncio.wait_for(self._empty.wait(), max(grace_s, 0.001))
        except asyncio.TimeoutError:
            await self._cancel_tasks()
        # From here on ``add`` aborts connections that were accepted before the listener closed.
        self._closed = True
        for connection in (*self._connections, *self._reserve):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
        self._log_counts()
        self.refusals.log_rest()

    async def _cancel_tasks(self) -> None:
        tasks = tuple(self._tasks)
        if not tasks:
            return
        logger.warning("%d requests weren't answered in time for the end", len(tasks))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_INTERVAL_AT_MOST_S)
        # The transports send the last responses.
        await asyncio.sleep(0)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._check_empty()

    def _check_empty(self) -> None:
        if not (self._connections or self._reserve or self._tasks):
            self._empty.set()

    def _check_all(self) -> None:
        """Check every connection; repeat as long as there are any."""
        self.now = self.loop.time()
        everyone = (*self._connections, *self._reserve)
        again = self.loop.call_later(self._interval_s, self._check_all) if everyone else None
        self._timer = again
        self._check_some(everyone)
        self._log_counts()
        self.refusals.log_due()
        self.hanging.log_due(self.now)

    def _check_some(self, connections: tuple[Connection, ...]) -> None:
        """Check some connections; the rest follow after other work of the loop."""
        for connection in connections[:_CHECKED_AT_A_TIME]:
            # It may have ended since the first iteration copied all connections.
            if connection in self._connections or connection in self._reserve:
                connection.check(self.now)
        if rest := connections[_CHECKED_AT_A_TIME:]:
            self.loop.call_soon(self._check_some, rest)

    def _log_counts(self) -> None:
        """Log the refused and the closed connections since the last call, a line for each kind."""
        for name, message in _MESSAGES.items():
            count = self.counts[name] - self._logged[name]
            if count > 0:
                logger.warning(message, count, self.room)
                self._logged[name] += count


_MESSAGES: Final = {
    "refused": "%d connections were refused: there are %d already",
    "displaced": "%d idle connections were closed to make room: no more than %d may be open",
}
"""Log message for each kind of event."""


PERIOD_S: Final = 60.0
"""Between two lines about a table."""
_CLIENTS: Final = 10
"""Most clients of a table that are named."""


class HangingRequests:
    """Those of one server.

    Args:
        held: Returns by table for how long its oldest request has held a thread, seconds, of the
            tables for which that is at least the argument.
        calls: Returns kind and cause → seconds of a table's storage calls under way.
        clients: Returns by table the addresses of the clients that wait for an answer.
        hangs_s: From how many seconds on a request hangs. A call takes long from half of that on,
            as it begins later than the request.
    """

    def __init__(
        self,
        held: Callable[[float], Mapping[str, float]],
        calls: Callable[[str], Mapping[tuple[str, str], float]],
        clients: Callable[[], Mapping[str, Iterable[str]]],
        hangs_s: float = HANGS_S,
    ) -> None:
        self._held, self._calls, self._clients = held, calls, clients
        self._hangs_s = hangs_s
        self._logged_s: dict[str, float] = {}

    def status(self) -> list[dict[str, Any]]:
        """Return a row for each table, the longest request first, fit for JSON; for any thread."""
        return self._rows(self._held(self._hangs_s))

    def _rows(self, held: Mapping[str, float]) -> list[dict[str, Any]]:
        """Return the rows of tables that have been held for so many seconds."""
        clients = self._clients() if held else {}
        return [
            {
                "table": table,
                "seconds": round(seconds, 3),
                "calls": [
                    {"kind": kind, "cause": cause, "seconds": round(took_s, 3)}
                    for (kind, cause), took_s in sorted(self._calls(table).items())
                    if took_s >= self._hangs_s / 2
                ],
                "clients": sorted(set(clients.get(table, ())))[:_CLIENTS],
            }
            for table, seconds in sorted(held.items(), key=lambda item: -item[1])
        ]

    def log_due(self, now: float) -> None:
        """Log the tables that weren't logged in the last ``PERIOD_S``; on the server's loop.

        Args:
            now: Seconds of a clock that never goes back.

        Cost: constant while nothing hangs.
        """
        held = self._held(self._hangs_s)
        logged = {table: at for table, at in self._logged_s.items() if table in held}
        self._logged_s = logged
        due = {t: s for t, s in held.items() if now - logged.get(t, -PERIOD_S) >= PERIOD_S}
        for row in self._rows(due):
            logged[row["table"]] = now
            logger.warning("%s", hanging_line(row))

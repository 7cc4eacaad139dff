"""``Copies``: notifies the copies of a table of a change, so that they read new instants now.

The server that answers ``refresh/`` for a table sends it to the table's other servers, and waits a
short while for them to sync. A copy that misses it syncs when a client asks at a newer instant: the
notification only saves that client the wait, and nothing depends on it.

Source: Dev and Patgiri, *Dr. Hadoop* (DCMS), section 3.4: a write is acknowledged by the copies.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from fsview.wire.param import BASE_PATH, WAIT_HEADER
from fsview.wire.routes import BY_NAME
from strandline.fleet.forward import Forwarded, Forwarder

TOLD: Final = "strandline-told"
"""Header of a ``refresh/`` sent by another of the table's servers; it isn't sent any further."""

WAIT_S: Final = 0.5
"""How long an answer to ``refresh/`` waits for copies."""
BUSY_S: Final = 5
AT_ONCE: Final = 16
"""Most notifications under way to one server; one that hangs takes no more room."""
KEPT: Final = 100_000
"""Most copies of tables whose last confirmed timeline is remembered."""

_SYNC: Final = BY_NAME["sync"]
_MARGIN_S: Final = 1.0


class Copies:
    """Notifies copies; used on the server's loop, except ``status``.

    Args:
        forwarder: Has the connections, and knows the tables' servers.
        wait_s: How long ``tell`` waits for copies.
        busy_s: After how many seconds a copy that is still syncing answers that it is busy.
    """

    def __init__(
        self, forwarder: Forwarder, *, wait_s: float = WAIT_S, busy_s: int = BUSY_S
    ) -> None:
        self._forwarder = forwarder
        self._wait_s, self._busy_s = wait_s, busy_s
        # (Table, address) → timeline hash that the copy has confirmed; the least recently
        # notified first.
        self._confirmed: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._tasks: set[asyncio.Task[bool]] = set()
        self._running: Counter[str] = Counter()
        self._late: set[str] = set()
        self._counts: Counter[str] = Counter()

    async def tell(self, table: str, timeline_hash: str, *, within_s: float | None = None) -> None:
        """Have the copies of a table sync, except those that have confirmed this timeline.

        Returns once they have, or after ``wait_s``; never fails. A slow copy is still notified, but
        not awaited until it answers again.

        Args:
            table: Text of the table's ``TableId``.
            timeline_hash: Hash of this server's newest snapshot.
            within_s: A shorter wait.
        """
        waiting: dict[asyncio.Task[bool], str] = {}
        for url in self._forwarder.others(table):
            if self._confirmed.get((table, url)) == timeline_hash:
                continue
            if self._running[url] >= AT_ONCE:
                self._counts["skipped"] += 1
                continue
            self._running[url] += 1
            self._counts["told"] += 1
            task = asyncio.get_running_loop().create_task(self._told(table, url, timeline_hash))
            # The loop itself keeps tasks by weak references only.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if url not in self._late:
                waiting[task] = url
        if not waiting:
            return
        longest_s = self._wait_s if within_s is None else min(within_s, self._wait_s)
        _, late = await asyncio.wait(waiting, timeout=max(longest_s, 0.0))
        for task in late:
            self._counts["late"] += 1
            self._late.add(waiting[task])

    def status(self) -> dict[str, int]:
        """Return how many notifications were sent, and their outcomes; from any thread."""
        counted = dict(self._counts)  # one step, as the loop may change it meanwhile
        return dict(sorted(counted.items()))

    async def _told(self, table: str, url: str, timeline_hash: str) -> bool:
        """Have one copy sync; return whether it has."""
        try:
            answer = await self._forwarder.tell(url, self._request(table))
        finally:
            self._running[url] -= 1
        if answer is None or answer.status != HTTPStatus.OK:
            self._counts["away" if answer is None else "refused"] += 1
            return False
        self._counts["in_step"] += 1
        self._late.discard(url)
        self._confirmed[table, url] = timeline_hash
        self._confirmed.move_to_end((table, url))
        if len(self._confirmed) > KEPT:
            self._confirmed.popitem(last=False)
        return True

    def _request(self, table: str) -> Forwarded:
        target = f"{_SYNC.path}?{BASE_PATH}={quote(table, safe='')}".encode("ascii")
        # With a bound: a copy busy with a large table answers so, and doesn't seem to hang.
        headers = {TOLD.encode(): b"1", WAIT_HEADER.lower().encode(): b"%d" % self._busy_s}
        return Forwarded(_SYNC.method, target, headers, within_s=self._busy_s + _MARGIN_S)

"""``Watches``: requests that wait on the loop until a table's state changes; no thread is held.

All watchers of a table share one *look*: a sync at most every ``watch.secs``, or in a fleet one
watch at the table's owner. A sync for any other reason, ``refresh/`` above all, wakes them, too.
Without watchers nobody looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fsview.snapshot.snapshot import Snapshot
from strandline.server.rest.operation import Refusal
from timeline.errors import StrandlineError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

AT_MOST: Final = 2_000
"""Most watchers of a server."""
RETRY_AFTER_S: Final = 5
_HASH_CHARACTERS: Final = 64


class TableMark(NamedTuple):
    """A table's state as watchers see it.

    Attributes:
        instant: Requested time of the last instant of its timeline; ``None``: it has none.
        mark: ``Snapshot.mark``.
        hashes: The timeline's hashes, as servers and as clients make them; a client may name
            either.
    """

    instant: str | None
    mark: str
    hashes: tuple[str, str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> TableMark:
        """Return the state of a snapshot."""
        last = snapshot.timeline.last
        return cls(None if last is None else last.requested_time, snapshot.mark, snapshot.hashes)

    def differs(self, after: str | None) -> bool:
        """Whether it differs from a mark, or from a timeline hash; from ``None`` it does."""
        if after is not None and len(after) == _HASH_CHARACTERS:
            return after not in self.hashes
        return after != self.mark


class Look(NamedTuple):
    """What a look found.

    Attributes:
        state: The table's state.
        pause_s: Seconds until the next look.
        table_id: The table, if syncs of it in this process wake its watchers.
    """

    state: TableMark
    pause_s: float = 0.0
    table_id: TableId | None = None


Looks = Callable[[TableMark | None], Awaitable[Look]]
"""Looks at a table, given the state known before; may wait."""


@dataclass(slots=True, eq=False)
class _Watcher:
    after: str | None
    told: asyncio.Future[TableMark]


@dataclass(slots=True, eq=False)
class _Watched:
    """A table that is watched; ``task`` looks."""

    state: TableMark | None = None
    table_id: TableId | None = None
    watchers: set[_Watcher] = field(default_factory=set)
    task: asyncio.Task[None] | None = None

    def show(self, state: TableMark) -> None:
        """Tell a state to the watchers that don't know it."""
        self.state = state
        for watcher in self.watchers:
            if state.differs(watcher.after) and not watcher.told.done():
                watcher.told.set_result(state)

    def fail(self, error: StrandlineError) -> None:
        """Tell all watchers that the table can't be looked at."""
        self.state = None
        for watcher in self.watchers:
            if not watcher.told.done():
                watcher.told.set_exception(error)


class Watches:
    """The watchers of a server; used on its loop, except ``synced``.

    Args:
        at_most: Most watchers.
        pause: Waits for some seconds.
    """

    def __init__(
        self,
        *,
        at_most: int = AT_MOST,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._at_most = at_most
        self._pause = pause
        self._count = 0
        self._tables: dict[str, _Watched] = {}
        # Replaced as a whole: threads read it.
        self._followed: frozenset[TableId] = frozenset()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_ended = False

    @property
    def count(self) -> int:
        """Number of watchers; for any thread."""
        return self._count

    async def wait(
        self, table: str, after: str | None, timeout_s: float, looks: Looks
    ) -> tuple[TableMark | None, bool]:
        """Wait until a table's state differs from one that the client knows.

        Args:
            table: Names the table.
            after: See ``TableMark.differs``.
            timeout_s: Seconds.
            looks: Looks at the table, if nobody does yet.

        Returns:
            The state, ``None`` if it isn't known in time, and whether it differs.

        Raises:
            Refusal: There are too many watchers.
            StrandlineError: The table can't be looked at.
        """
        if self._count >= self._at_most:
            raise Refusal(
                *(503, "too_many_watchers", f"{self._at_most} requests watch tables already"),
                allowed=f"at most {self._at_most}",
                retry_after_s=RETRY_AFTER_S,
            )
        loop = self._loop = asyncio.get_running_loop()
        watched = self._tables.setdefault(table, _Watched())
        watcher = _Watcher(after, loop.create_future())
        watched.watchers.add(watcher)
        self._count += 1
        try:
            if watched.state is not None:
                watched.show(watched.state)
            if watched.task is None:
                watched.task = loop.create_task(self._look_on(watched, looks))
            if not self._has_ended:
                await asyncio.wait((watcher.told,), timeout=timeout_s)
            if watcher.told.done() and not watcher.told.cancelled():
                return watcher.told.result(), True
            return watched.state, False
        finally:
            self._count -= 1
            watched.watchers.discard(watcher)
            if not watched.watchers:
                self._forget(table, watched)

    def synced(self, table_id: TableId, newest: Snapshot) -> None:
        """Tell the watchers of a table what a sync brought; for any thread, never waits."""
        loop = self._loop
        if table_id in self._followed and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._show, table_id, newest)

    def end(self) -> None:
        """Answer all watchers now, as the server stops."""
        self._has_ended = True
        for watched in self._tables.values():
            for watcher in watched.watchers:
                watcher.told.cancel()

    def _show(self, table_id: TableId, newest: Snapshot) -> None:
        state = TableMark.of(newest)
        for watched in self._tables.values():
            if watched.table_id == table_id:
                watched.show(state)

    def _forget(self, table: str, watched: _Watched) -> None:
        """End the looks at a table without watchers."""
        if self._tables.get(table) is watched:
            del self._tables[table]
        if watched.task is not None:
            watched.task.cancel()
        self._follow()

    def _follow(self) -> None:
        found = (watched.table_id for watched in self._tables.values())
        self._followed = frozenset(each for each in found if each is not None)

    async def _look_on(self, watched: _Watched, looks: Looks) -> None:
        while True:
            try:
                look = await looks(watched.state)
            except StrandlineError as error:
                # Its watchers are gone then, and with the last of them this task.
                watched.fail(error)
                await self._pause(RETRY_AFTER_S)
                continue
            except Exception:
                logger.exception("a watched table can't be looked at")
                watched.fail(StrandlineError("the table can't be looked at"))
                return
            if look.table_id != watched.table_id:
                watched.table_id = look.table_id
                self._follow()
            watched.show(look.state)
            if look.pause_s:
                await self._pause(look.pause_s)

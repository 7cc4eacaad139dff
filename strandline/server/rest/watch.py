"""``Watches``: requests that wait on the loop until a table's state changes; no thread is held.

All watchers of a table share one *look*: a sync at most every ``watch.secs``, or in a fleet one
watch at the table's owner. A sync for any other reason, ``refresh/`` above all, wakes them, too.
Without watchers nobody looks.

A state that a client knows may be newer than the one that was seen last. So a watcher is told of
another state only if its own is known to be older, or if a look that began after it came found it
(it is *checked* then); at a table of this server such a watcher ends the pause between two looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlencode

from fsview.snapshot.history import History
from fsview.snapshot.snapshot import Snapshot
from fsview.table_view import TableView
from fsview.wire.param import TABLE, WATCH_PATH
from strandline.fleet.forward import Forwarded, Forwarder
from strandline.fleet.peer_connection import PeerAnswer
from strandline.server.rest.parameter import Refusal
from timeline.encoding.json_text import bounded_loads
from timeline.errors import NoServerError, StrandlineError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

AT_MOST: Final = 2_000
"""Most watchers of a server."""
RETRY_AFTER_S: Final = 5
UPSTREAM_S: Final = 30.0
"""How long a watch at a table's owner lasts, before it is asked again."""
_MARGIN_S: Final = 5.0
"""How much later its answer may come."""
LOOK_S: Final = 2.0
"""How much longer than its time-out a watcher waits for its first look, at most."""
_SEEN: Final = 16
"""States of a table that are known to be older, for as long as it is watched."""
_HASH_CHARACTERS: Final = 64
_SHOWN: Final = 200


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

    @classmethod
    def parsed(cls, body: bytes) -> TableMark | None:
        """Return the state in another server's answer to a watch; ``None``: it knows none.

        Raises:
            ValueError: It isn't such an answer.
        """
        try:
            value = bounded_loads(body)
            mark, instant, client_hash = (value[key] for key in ("state", "instant", "hash"))
        except (TypeError, KeyError) as error:
            raise ValueError(f"{body[:_SHOWN]!r} is no state of a table") from error
        if client_hash is None:
            return None
        mark = str(mark)
        return cls(instant, mark, (mark[:_HASH_CHARACTERS], str(client_hash)))

    def differs(self, after: str | None) -> bool:
        """Whether it differs from a mark, or from a timeline hash; from ``None`` it does."""
        if after is not None and len(after) == _HASH_CHARACTERS:
            return after not in self.hashes
        return after != self.mark


def may_be_newer(mark: str, history: History) -> bool:
    """Whether a mark, or a timeline hash, isn't known to be older than a history's newest state."""
    newest = history.newest
    timeline_hash = mark[:_HASH_CHARACTERS]
    if timeline_hash in newest.hashes:
        return TableMark.of(newest).differs(mark)
    return not history.knows(timeline_hash)


class Look(NamedTuple):
    """What a look found.

    Attributes:
        state: The table's state.
        pause_s: Seconds until the next look.
        table: The table, if syncs of it in this process wake its watchers.
    """

    state: TableMark
    pause_s: float = 0.0
    table: TableView | None = None


Looks = Callable[[TableMark | None, frozenset[str]], Awaitable[Look]]
"""Looks at a table, given the state known before, and marks that may be newer; may wait."""


@dataclass(slots=True, eq=False)
class _Watcher:
    """A request; ``checked`` has a result once ``after`` isn't newer than the state seen."""

    after: str | None
    told: asyncio.Future[TableMark]
    checked: asyncio.Future[None]

    def check(self) -> None:
        if not self.checked.done():
            self.checked.set_result(None)


@dataclass(slots=True, eq=False)
class _Watched:
    """A table that is watched; ``task`` looks, and pauses while ``pauses``."""

    state: TableMark | None = None
    table_id: TableId | None = None
    watchers: set[_Watcher] = field(default_factory=set)
    seen: deque[TableMark] = field(default_factory=lambda: deque(maxlen=_SEEN))
    task: asyncio.Task[None] | None = None
    pauses: bool = False

    def unchecked(self) -> list[_Watcher]:
        """Return the watchers whose state may be newer than what was seen."""
        return [each for each in self.watchers if not each.checked.done()]

    def show(self, state: TableMark) -> None:
        """Tell a state to the watchers that don't know it."""
        self.state = state
        if state not in self.seen:
            self.seen.append(state)
        for watcher in self.watchers:
            after = watcher.after
            if not watcher.checked.done() and not (
                after and all(seen.differs(after) for seen in self.seen)
            ):
                watcher.check()
            if watcher.checked.done() and state.differs(after) and not watcher.told.done():
                watcher.told.set_result(state)

    def fail(self, error: StrandlineError | Refusal) -> None:
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
        self._tables: dict[Hashable, _Watched] = {}
        # Replaced as a whole: threads read it.
        self._followed: frozenset[TableId] = frozenset()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_ended = False

    @property
    def count(self) -> int:
        """Number of watchers; for any thread."""
        return self._count

    async def wait(
        self, table: Hashable, after: str | None, timeout_s: float, looks: Looks
    ) -> tuple[TableMark | None, bool]:
        """Wait until a table's state differs from one that the client knows.

        Args:
            table: Names the table, and how it is looked at.
            after: See ``TableMark.differs``.
            timeout_s: Seconds; the first look may take ``LOOK_S`` in any case.
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
        watcher = _Watcher(after, loop.create_future(), loop.create_future())
        watched.watchers.add(watcher)
        self._count += 1
        try:
            if watched.state is not None:
                if watched.table_id is None:  # its owner tells of changes at once
                    watcher.check()
                watched.show(watched.state)
            self._have_looked(watched, watcher, looks)
            if not self._has_ended:
                await _wait(watcher, timeout_s)
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

    def _have_looked(self, watched: _Watched, watcher: _Watcher, looks: Looks) -> None:
        """Begin to look at a table, or end the pause if a watcher must be checked."""
        if watched.pauses and not watcher.checked.done() and watched.task is not None:
            watched.pauses = False
            watched.task.cancel()
            watched.task = None
        if watched.task is None:
            # Without the context of this request, which the looks may outlive by days.
            loop = asyncio.get_running_loop()
            watched.task = Context().run(loop.create_task, self._look_on(watched, looks))

    def _show(self, table_id: TableId, newest: Snapshot) -> None:
        state = TableMark.of(newest)
        for watched in self._tables.values():
            if watched.table_id == table_id:
                watched.show(state)

    def _forget(self, table: Hashable, watched: _Watched) -> None:
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
                pause_s = await self._look(watched, looks)
            except Exception as error:
                if isinstance(error, StrandlineError | Refusal):
                    failure: StrandlineError | Refusal = error
                else:
                    logger.exception("a watched table can't be looked at")
                    failure = StrandlineError("the table can't be looked at")
                # Its watchers are gone then, and with the last of them this task.
                watched.fail(failure)
                await self._pause(RETRY_AFTER_S)
                continue
            if pause_s and not watched.unchecked():
                watched.pauses = True
                await self._pause(pause_s)
                watched.pauses = False

    async def _look(self, watched: _Watched, looks: Looks) -> float:
        """Look once, and tell the watchers; return the seconds until the next look."""
        asking = watched.unchecked()
        look = await looks(watched.state, frozenset(each.after for each in asking if each.after))
        for watcher in asking:
            watcher.check()
        table_id = None if look.table is None else look.table.table_id
        if table_id != watched.table_id:
            watched.table_id = table_id
            self._follow()
        history = None if look.table is None else look.table.state.held
        # As it is now: a sync may have ended since, before it was followed.
        watched.show(look.state if history is None else TableMark.of(history.newest))
        return look.pause_s


async def _wait(watcher: _Watcher, timeout_s: float) -> None:
    """Wait until a watcher is told of a state, or for some seconds; for a first look longer."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    await asyncio.wait(
        (watcher.told, watcher.checked),
        timeout=max(timeout_s, LOOK_S),
        return_when=asyncio.FIRST_COMPLETED,
    )
    await asyncio.wait((watcher.told,), timeout=max(until_s - loop.time(), 0.0))


# In a fleet.


async def look_at_owner(
    forwarder: Forwarder,
    urls: tuple[str, ...],
    base_path: str,
    before: TableMark | None,
    newer: frozenset[str],
) -> TableMark | PeerAnswer | None:
    """Return a table's state at its owner, as soon as it differs from that known before.

    Args:
        forwarder: Asks.
        urls: The owner, then other servers.
        base_path: The table's base path.
        before: See ``Looks``.
        newer: Likewise.

    Returns:
        An answer that isn't a state if the owner gives such a one; ``None``: there is none.
    """
    # What a client knows may be newer than what the owner has seen, which looks then.
    asked = [(mark, 0.0) for mark in sorted(newer)[:1]]
    asked.append(("" if before is None else before.mark, UPSTREAM_S))
    answer: PeerAnswer | None = None
    for mark, timeout_s in asked:
        params = {TABLE: base_path, "after": mark, "timeout": timeout_s}
        sent = Forwarded(
            *("GET", f"{WATCH_PATH}?{urlencode(params)}".encode("ascii")),
            within_s=timeout_s + _MARGIN_S,
            waits=True,
        )
        answer = await forwarder.ask(urls, sent) if urls else None
        if answer is None or answer.status != HTTPStatus.OK:
            return answer
        try:
            found = TableMark.parsed(bytes(answer.body))
        except ValueError as error:
            logger.warning("the owner of %s: %s", base_path, error)
            return answer
        if found is not None:
            return found
    # An owner that doesn't know the state has nothing new to tell.
    return answer if before is None else before


def refused_by_owner(answer: PeerAnswer | None, base_path: str) -> StrandlineError | Refusal:
    """Return the error about another group's table whose servers don't tell its state."""
    if answer is None or answer.status < HTTPStatus.BAD_REQUEST:
        return NoServerError(f"no server of the group that has {base_path!r} tells its state")
    try:
        shape = bounded_loads(bytes(answer.body))
        code, message = str(shape["code"]), str(shape["error"])
    except (ValueError, TypeError, KeyError):
        code, message = NoServerError.code, f"the table's server answered {answer.status}"
    after_s = RETRY_AFTER_S if "retry-after" in answer.headers else 0
    return Refusal(answer.status, code, message, retry_after_s=after_s)

"""``Handover``: a server closes the tables that have moved to another group.

Once the move has flipped, this server passes creations of markers on to the tables' new owners. It
acknowledges that when those have ended that began before, as the new owners create none until then.
When all servers of its group have acknowledged, it closes the tables, which frees their memory.
Each move has a thread for that: a store that hangs holds up neither the other moves nor their
creations of markers, which wait for the acknowledgements.

A server also forgets the markers that it has in memory of tables that others own, whatever the
reason: those add markers that it doesn't hear of, so it would call them new once it owns the table
again. So does one that joins again after its membership had ended, with those of all tables.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from fsview.view_manager import ViewManager
from strandline.fleet.current import CurrentFleet, KnownFleet
from strandline.fleet.mounts import Move, MoveState
from strandline.fleet.state.base import Cancel
from timeline.clock import Clock, SystemClock
from timeline.errors import StrandlineError

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.2
"""Interval of attempts to close tables that are in use, and of looks at creations under way."""
IN_USE_S: Final = 60.0
"""After this time the tables that are still in use are left: they are closed once they aren't."""

Forget = Callable[[Callable[[str], bool]], object]
"""Drops what is kept in memory of the markers of some tables, by the text of their ``TableId``."""


def _in_a_thread(do: Callable[[], object]) -> None:
    # Not joined: closing a table may wait for its store.
    threading.Thread(target=do, name="strandline-closing", daemon=True).start()


class Handover:
    """Threads that do for moves what the former group's servers have to.

    One looks at the fleet, and waits for nothing but creations of markers. Beside it one for each
    move closes its tables.

    Args:
        current: The fleet.
        acknowledge: Called with a move's number, and the state whose work is done.
        clock: Measures how long tables are in use.
        look_s: See ``LOOK_S``.
        begin: Runs what closes a move's tables once, in a thread.
    """

    def __init__(
        self,
        current: CurrentFleet,
        acknowledge: Callable[[int, str], object],
        clock: Clock | None = None,
        *,
        look_s: float = LOOK_S,
        begin: Callable[[Callable[[], object]], object] = _in_a_thread,
    ) -> None:
        self._current, self._acknowledge = current, acknowledge
        self._clock, self._look_s = clock or SystemClock(), look_s
        self._begin = begin
        self._views: ViewManager | None = None
        self._forget: Forget = lambda _: None
        self._done: set[tuple[int, MoveState]] = set()
        self._since: dict[int, float] = {}
        self._closing: set[int] = set()
        self._joined: int | None = None
        self._looked: KnownFleet | None = None
        self._due = threading.Event()
        self._is_stopped = False
        self._cancel: Cancel = lambda: None

    def start(self, views: ViewManager, forget: Forget) -> None:
        """Begin; to be called once.

        Args:
            views: Have the tables open.
            forget: See ``Forget``.
        """
        self.attach(views, forget)
        self._cancel = self._current.listen(lambda _: self._due.set())
        self._due.set()
        # Not joined: closing a table may wait for its store.
        threading.Thread(target=self._run, name="strandline-handover", daemon=True).start()

    def attach(self, views: ViewManager, forget: Forget) -> None:
        """Set what ``look`` works on; see ``start``."""
        self._views, self._forget = views, forget

    def stop(self) -> None:
        """Do nothing more; may be repeated."""
        self._is_stopped = True
        self._cancel()
        self._due.set()

    def _run(self) -> None:
        is_done = True
        while True:
            self._due.wait(None if is_done else self._look_s)
            # Before the look: a change during it triggers another one.
            self._due.clear()
            if self._is_stopped:
                return
            try:
                is_done = self.look()
            except Exception:
                # The move waits for this server, and goes on once it succeeds or ends.
                logger.exception("tables that have moved can't be given up")
                is_done = False

    def look(self) -> bool:
        """Do what is due; return whether nothing is left to do."""
        known, url = self._current.known, self._current.url
        joined = known.joined(url)
        if known is not self._looked:  # else a move waits, and nothing else has changed
            if None not in (joined, self._joined) and joined != self._joined:
                self._forget(lambda _: True)
            else:
                self._forget(lambda table: not known.is_first(table, url))
            self._joined = self._joined if joined is None else joined
            self._looked = known
        moves = [each for each in known.fleet.moves if each.has_flipped]
        mine = {each.number: each for each in moves if each.source == self._current.group}
        # Copied in one step, as the threads that close tables may add to them meanwhile.
        self._done -= {key for key in tuple(self._done) if key[0] not in mine}
        for number in tuple(self._since):
            if number not in mine:
                self._since.pop(number, None)
        until_s = self._clock.monotonic() + self._look_s
        advanced = [self._advanced(move, until_s) for move in mine.values()]  # all in any case
        return all(advanced)

    def _advanced(self, move: Move, until_s: float) -> bool:
        """Do what a move's state asks of this server; return whether it is done.

        Args:
            move: The move.
            until_s: How long creations of markers may be waited for, for all moves together.
        """
        if (move.number, move.state) in self._done:
            return True
        if not self._let_go(move, until_s):
            return False
        if move.state is MoveState.DROPPING:
            if move.number not in self._closing:
                self._closing.add(move.number)
                self._begin(lambda: self._close(move))
            return (move.number, move.state) in self._done
        self._finished(move)
        return True

    def _finished(self, move: Move) -> None:
        self._done.add((move.number, move.state))
        self._acknowledge(move.number, move.state.name)

    def _concerns(self, move: Move) -> Callable[[str], bool]:
        fleet = self._current.known.fleet

        def concerns(table: str) -> bool:
            found = fleet.move(table)
            return found is not None and found.number == move.number

        return concerns

    def _let_go(self, move: Move, until_s: float) -> bool:
        """Return whether no creation is under way that began before this server knew of the flip.

        Later ones are passed on, or refused (``strandline.server.api.forwarding``).
        """
        if (move.number, MoveState.FLIPPED) in self._done:
            return True
        left_s = max(until_s - self._clock.monotonic(), 0.0)
        if not self._current.creations.wait(self._concerns(move), left_s):
            return False
        self._forget(self._concerns(move))
        self._done.add((move.number, MoveState.FLIPPED))
        return True

    def _close(self, move: Move) -> None:
        """Close a move's tables once, and acknowledge it if that is done; else look again later."""
        try:
            if self._closed(move) and not self._is_stopped:
                self._finished(move)
        except Exception:
            # The move waits for this server, and goes on once it succeeds or ends.
            logger.exception("tables of %s can't be given up", move)
        finally:
            self._closing.discard(move.number)

    def _closed(self, move: Move) -> bool:
        """Close the tables; return whether none is open, or is in use for too long."""
        assert self._views is not None, "closed before the start"
        concerns, left = self._concerns(move), 0
        for table in self._views.open_tables():
            if not concerns(self._views.as_given(table.table_id)):
                continue
            try:
                left += not self._views.close_table(table, "moved")
            except StrandlineError as error:
                # It is closed all the same.
                logger.warning("%s was closed with an error: %s", table.table_id, error)
        began_s = self._since.setdefault(move.number, self._clock.monotonic())
        return not left or self._clock.monotonic() >= began_s + IN_USE_S

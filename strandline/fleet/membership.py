"""``Membership``: the thread that keeps a server a member of its fleet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from strandline.fleet.current import CurrentFleet
from strandline.fleet.records import token_mark
from strandline.fleet.roster import Roster
from strandline.fleet.seats import once_ready
from strandline.fleet.state.base import Cancel
from strandline.settings.fleet import HEARTBEAT
from timeline.errors import ConfigError, FleetError, StateConflictError
from timeline.threads import JoinedThread

logger = logging.getLogger(__name__)

HEARTBEAT_S: Final = HEARTBEAT.default
SURE_SHARE: Final = 0.5
"""Fraction of ``dead_s`` after its last renewal in which a server is sure of its seat."""
_LOOK_S: Final = 0.5
"""A server that waits for its address checks at this interval whether it was stopped."""


class Membership:
    """A thread that keeps a server a member, and updates ``current`` when the fleet changes.

    It keeps the last known seats while the state store can't be reached, or while the fleet refuses
    the server, until it can join again.

    Args:
        roster: The server as a member; used by this thread alone from then on.
        warm_s: Others send requests here after ``ready`` was called, or this many seconds after the
            server could have had a seat; of no use if ``roster`` is ready already.
        heartbeat_s: Seconds between two steps; a change in the store triggers one at once.

    Attributes:
        current: The fleet as last read.
        trouble: Why the seats may be outdated; ``None``: they are the newest.
        outages: How often they came to be.

    Raises:
        ConfigError: The roster's ``dead_s`` is less than three heartbeats.
    """

    def __init__(
        self, roster: Roster, *, warm_s: float = 0.0, heartbeat_s: float = HEARTBEAT_S
    ) -> None:
        if not 0 < 3 * heartbeat_s <= roster.dead_s:
            raise ConfigError(
                f"strandline.fleet.dead.secs is {roster.dead_s:g}; allowed: at least three times"
                f" strandline.fleet.heartbeat.secs, which is {heartbeat_s:g}"
            )
        self.current = CurrentFleet(roster.url, roster.layout)
        self.trouble: str | None = None
        self.outages = 0
        self._roster, self._clock = roster, roster.clock
        self._heartbeat_s = heartbeat_s
        self.current.is_sure = self._is_sure
        self._warm_s = warm_s
        self._is_warm = False
        self._acks: dict[int, str] = {}
        self._seat_since_s: float | None = None
        self._known_since: int | None = None
        self._due = threading.Event()
        self.current.catch_up = self._due.set
        self._is_stopped = False
        self._thread = JoinedThread(self._run, "strandline-fleet", daemon=True)
        self._cancel: Cancel = lambda: None

    def start(self, within_s: float = 0.0) -> None:
        """Join, take the first step, and start the thread; to be called once.

        Args:
            within_s: How long to wait if a member has this address: it may be an earlier process of
                this server that was killed, and whose lease hasn't expired yet.

        Raises:
            ConfigError: The fleet has another schema, layout or token, or the group other roots.
            FleetError: A record can't be read, a member has this address, or the store can't be
                reached.
        """
        try:
            self._cancel = self._roster.state.watch("", self._due.set)
            if self._join(self._clock.monotonic() + within_s):
                self._step()
                self._thread.start()
        except BaseException:
            self.stop()
            raise

    def _join(self, deadline_s: float) -> bool:
        """Join as soon as no member has the address; return false if ``interrupt`` ended it."""
        is_told = False
        while not self._is_stopped:
            try:
                self._roster.join()
                self.current.group = self._roster.group
            except StateConflictError as error:
                if self._clock.monotonic() >= deadline_s:
                    raise
                if not is_told:
                    logger.info("waiting: %s", error)
                    is_told = True
            else:
                return True
            self._due.wait(min(self._heartbeat_s, _LOOK_S))
            self._due.clear()
        return False

    @property
    def name(self) -> str:
        """This server's name as a member."""
        return self._roster.name

    def move_counts(self) -> dict[str, dict[str, float]]:
        """Return ``MoveCounts.status``; from any thread."""
        return self._roster.move_counts.status()

    def _is_sure(self) -> bool:
        """Whether nobody has taken this server for dead, with time left for what is under way.

        So its seat isn't another's for that reason. Its tables may be, if it hasn't read of a new
        seat, a drain or a mount yet.

        A server that has joined again isn't sure before ``current`` has the seats as they are now:
        it may have lost its own.
        """
        renewal = self._roster.renewal
        if renewal is None or renewal.joined != self._known_since:
            return False
        return self._roster.boot() - renewal.sent_s < self._roster.dead_s * SURE_SHARE

    def ready(self) -> None:
        """Have others send requests here from now on; for any thread, may be repeated."""
        if not self._is_warm:
            self._is_warm = True
            self._due.set()

    def acknowledge(self, number: int, what: str) -> None:
        """Have all members know what this server has done for a move; for any thread.

        Args:
            number: Of the move, one of ``current``'s fleet.
            what: Name of a state, or ``strandline.fleet.moving.moves.FAILED`` and the reason.
        """
        if self._acks.get(number) != what:
            self._acks[number] = what
            self._due.set()

    def interrupt(self) -> None:
        """Let ``start`` return soon without having joined; for a signal handler."""
        # No lock: the handler may have interrupted the thread that holds it.
        self._is_stopped = True

    def use_tokens(self, tokens: Sequence[str]) -> None:
        """Announce the first token, and know members by any of them; for any thread."""
        self._roster.use_marks([token_mark(token) for token in tokens])
        self._due.set()

    def stop(self) -> None:
        """End the thread and leave the fleet; the seat is vacant at once. May be repeated."""
        self._is_stopped = True
        self._cancel()
        self._due.set()
        self._thread.join()
        try:
            self._roster.leave()
        except FleetError as error:
            logger.warning("%s leaves when its lease ends: %s", self.current.url, error)

    def _run(self) -> None:
        while True:
            is_told = self._due.wait(self._pause_s())
            if is_told:
                # Before the step: a change during it triggers another one. Not after a pause that
                # has passed, which says nothing of a change that was told just then.
                self._due.clear()
            if self._is_stopped:
                return
            try:
                self._step(is_told=is_told)
            except (FleetError, ConfigError) as error:
                if self.trouble is None:
                    self.outages += 1
                    logger.warning("the last known seats of the fleet are used: %s", error)
                self.trouble = str(error)
            except Exception as error:
                # If the thread ended, the others would take this server for dead while it still
                # serves.
                logger.exception("a step of the fleet failed")
                self.outages += self.trouble is None
                self.trouble = f"{type(error).__name__}: {error}"

    def _pause_s(self) -> float:
        """Return the seconds until the next step is due if nothing changes."""
        if self._seat_since_s is None or self._roster.is_ready:
            return self._heartbeat_s
        left_s = self._seat_since_s + self._warm_s - self._clock.monotonic()
        return min(self._heartbeat_s, max(left_s, 0.0))

    def _step(self, *, is_told: bool = True) -> None:
        roster, since_s = self._roster, self._seat_since_s
        now_s = self._clock.monotonic()
        if not roster.is_ready:
            is_late = since_s is not None and now_s >= since_s + self._warm_s
            if is_late:
                logger.warning("records are fetched for more than %g s already", self._warm_s)
            if self._is_warm or is_late:
                roster.become_ready()
        roster.acknowledge(dict(self._acks))  # copied in one step
        fleet = roster.step(is_told=is_told)
        for number in self._acks.keys() - {move.number for move in fleet.moves}:
            self._acks.pop(number, None)
        seats = once_ready(fleet, roster.name).seats
        if not any(seat.holder == roster.name for seat in seats):
            self._seat_since_s = None
        elif since_s is None:
            self._seat_since_s = now_s
        if self.trouble is not None:
            logger.info("the seats of the fleet are read again")
            self.trouble = None
        self.current.tell(roster.fleet, roster.epoch)
        if not is_told:
            # At most once a heartbeat, lest a false epoch triggers one step after another.
            self.current.hear_anew()
        self._known_since = None if roster.renewal is None else roster.renewal.joined

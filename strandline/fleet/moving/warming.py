"""``Warming``: a server fetches the records of the tables that its seat gives it.

A server that takes a seat asks its neighbours, and drained servers, which tables they have open.
For each table that it will own or copy it fetches the record of one of them, the owner's first, and
continues from it, as after a restart: it reads the instants since, and lists no partition. Only
then do others send it requests. A truncated, late or damaged record only costs time: the next one
is asked, and in the end the table is loaded from storage. A record in the server's own store takes
precedence.

When seats or mounts change later, tables that come to the server are fetched in the same way, while
it answers. Those that a move brings (``strandline.fleet.moving.moves``) are fetched, and read up to
the newest instant on storage, before a mount gives them to the server. As long as a living server
of the source doesn't list its tables, the server asks again. Each move has a thread for that: a
table whose storage hangs holds up neither the other moves nor the tables of the server's seat.

Source: Dev and Patgiri, *Dr. Hadoop* (DCMS), section 4.3: a joining node copies its neighbour's
hashtable before it takes part.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from strandline.fleet.current import CurrentFleet, KnownFleet
from strandline.fleet.mounts import MoveState
from strandline.fleet.moving.moves import FAILED, MOST_WHY
from strandline.fleet.moving.neighbours import Neighbours
from strandline.fleet.seats import once_ready
from timeline.clock import Clock, SystemClock
from timeline.errors import (
    ServiceTimeoutError,
    ServiceUnreachableError,
    StoreError,
    StrandlineError,
    TableNotFoundError,
)

logger = logging.getLogger(__name__)

BOUND_S: Final = 30.0
"""How long a server with a seat may fetch records before others send it requests."""
UNFORESEEN: Final = "unforeseen"
"""Name of the count of tables that weren't opened for a reason that has no code."""
SHARE_OF_BUDGET: Final = 4
"""Largest record, as a fraction of the memory of all views: it leaves room for the rest."""
AGAIN_S: Final = 5.0
"""Pause before the tables of a move are asked for again, or those of a seat after a failure."""
AT_ONCE: Final = 2
"""Records that are received at the same time, each for ``BOUND_S`` at most."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table to fetch.

    Attributes:
        base_path: The table.
        urls: The servers that have it open, best first.
    """

    base_path: str
    urls: tuple[str, ...]


def wanted(
    known: KnownFleet, url: str, opened: Mapping[str, Collection[str]]
) -> tuple[Wanted, ...]:
    """Return the tables that a server must fetch; pure.

    Args:
        known: A fleet in which the server has its seat.
        url: The server.
        opened: Address of another server → base paths of the tables that it has open.

    Returns:
        The tables that it owns, then its copies, both in the order of their base paths.
    """
    found: list[tuple[bool, Wanted]] = []
    for table in sorted({table for tables in opened.values() for table in tables}):
        placed = [seat.url for seat in known.owners(table)]
        if url in placed:
            having = [other for other in opened if table in opened[other]]
            # The table's servers first, in their order; all others are equally good.
            having.sort(key=lambda other: placed.index(other) if other in placed else len(placed))
            found.append((placed[0] != url, Wanted(table, tuple(having))))
    found.sort(key=lambda each: each[0])
    return tuple(each for _, each in found)


_Where = tuple[object, ...]
"""What decides which tables are fetched: a server's seat, all seats, and mounts."""
_SEAT: Final = 0
"""In place of a move's number: the tables of the server's seat that no move brings."""


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Tables to fetch together.

    Attributes:
        number: Of the move that brings them, or ``_SEAT``.
        known: The fleet as it is.
        ready: The fleet once this server is ready, and the moves have flipped.
        moving: Numbers of the moves that bring this server tables.
        where: For which seats and mounts; for a move only its own, as nobody changes others there.
    """

    number: int
    known: KnownFleet
    ready: KnownFleet
    moving: tuple[int, ...]
    where: _Where

    def takes(self, table: str) -> bool:
        """Whether a table, by the text of its ``TableId``, is one of these."""
        move = self.known.fleet.move(table)
        number = move.number if move is not None and move.number in self.moving else _SEAT
        return number == self.number

    def is_complete(self, opened: Collection[str]) -> bool:
        """Whether all living servers that may have a move's tables have listed theirs.

        For a seat always: a table that isn't listed is loaded when it is asked for.

        Args:
            opened: The addresses of those that have.
        """
        sources = {move.source for move in self.known.fleet.moves if move.number == self.number}
        living = {each.url for each in self.known.fleet.members if each.group in sources}
        return living.intersection(_having(self.known)) <= set(opened)


def fetches(known: KnownFleet, name: str) -> tuple[_Fetch, ...]:
    """Return what a server has to fetch: for its seat, then for each move; pure.

    Empty if it has no seat, and gets none once it is ready.
    """
    fleet = once_ready(known.fleet, name)
    mine = next((seat for seat in fleet.seats if seat.holder == name), None)
    if mine is None:
        return ()
    ready = KnownFleet(fleet, known.epoch, known.layout, known)
    ready = ready.after or ready
    seats = tuple(seat.number for seat in fleet.seats)
    moves = [move for move in fleet.moves if move.state is MoveState.WARMING]
    brought = {move.number: move.mount for move in moves if move.destination == mine.group}
    moving = tuple(brought)
    where = mine, seats, ready.fleet.mounts, moving
    return (
        _Fetch(_SEAT, known, ready, moving, where),
        *(
            _Fetch(number, known, ready, moving, (mine, seats, mount))
            for number, mount in brought.items()
        ),
    )


class Warming:
    """Threads that fetch records when seats, mounts or moves change; ``status`` is for any thread.

    One looks at the fleet, and waits for nothing else. Beside it one fetches the tables of this
    server's seat, and one those of each move.

    Args:
        current: The fleet.
        name: This server's name as a member.
        neighbours: The other servers.
        ready: Called once the tables of this server's first seat are fetched.
        acknowledge: Called with a move's number, and what this server has done for it.
        bound_s: How long one table may take, and the lists of tables.
        again_s: See ``AGAIN_S``.
        clock: Measures ``bound_s``.
    """

    def __init__(
        self,
        current: CurrentFleet,
        name: str,
        neighbours: Neighbours,
        ready: Callable[[], None],
        acknowledge: Callable[[int, str], object] = lambda _number, _what: None,
        *,
        bound_s: float = BOUND_S,
        again_s: float = AGAIN_S,
        clock: Clock | None = None,
    ) -> None:
        self._current, self._name = current, name
        self._neighbours = neighbours
        self._ready = ready
        self._acknowledge = acknowledge
        self._bound_s, self._again_s = bound_s, again_s
        self._clock = clock or SystemClock()
        self._views: ViewManager | None = None
        self._counts: Counter[str] = Counter()
        self._fetched: dict[int, _Where] = {}
        self._busy: set[int] = set()
        self._receiving = threading.BoundedSemaphore(AT_ONCE)
        self._due = threading.Event()
        self._stopped = threading.Event()
        self._cancel: Callable[[], None] = lambda: None

    def start(self, views: ViewManager) -> None:
        """Begin; to be called once.

        Args:
            views: Opens the tables.
        """
        self._views = views
        self._cancel = self._current.listen(lambda _: self._due.set())
        self._due.set()
        # Not joined: storage may hang.
        threading.Thread(target=self._run, name="strandline-warming", daemon=True).start()

    def stop(self) -> None:
        """Fetch no more; may be repeated. A fetch under way ends with the next piece received."""
        self._stopped.set()
        self._cancel()
        self._due.set()

    def status(self) -> dict[str, int]:
        """Return how many tables were fetched, and the outcomes of the others."""
        counted = dict(self._counts)  # one step of the interpreter
        return dict(sorted(counted.items()))

    def _run(self) -> None:
        while True:
            self._due.wait()
            # Before the look: a change during it triggers another one.
            self._due.clear()
            if self._stopped.is_set():
                return
            try:
                self._look(self._current.known)
            except Exception:
                # The membership makes the server ready anyway, in time. A change begins anew.
                logger.exception("what this server must fetch can't be found")

    def _look(self, known: KnownFleet) -> None:
        """Begin to fetch what isn't fetched yet; only this thread does."""
        due = fetches(known, self._name)
        for number in tuple(self._fetched):
            if all(each.number != number for each in due):
                del self._fetched[number]
        for each in due:
            if each.number in self._busy:
                continue  # once it has ended, there is another look
            if self._fetched.get(each.number) == each.where:
                if each.number == _SEAT:
                    self._ready()
                continue
            self._busy.add(each.number)
            # Not joined: storage may hang.
            threading.Thread(
                target=self._fetch, args=(each,), name="strandline-fetching", daemon=True
            ).start()

    def _fetch(self, fetch: _Fetch) -> None:
        """Fetch tables, and say that they are here; or have it done again after ``AGAIN_S``."""
        try:
            until_s = self._clock.monotonic() + self._bound_s
            opened = self._opened(_having(fetch.known), until_s)
            tables = wanted(fetch.ready, self._current.url, opened)
            why = self._open_all((t for t in tables if fetch.takes(t.base_path)), fetch.number)
            is_done = bool(why) or fetch.is_complete({*opened, self._current.url})
        except Exception as error:
            # The leader undoes the move. Of a seat, the membership makes the server ready in time.
            logger.exception("records of neighbours can't be fetched")
            why = f"{FAILED} {type(error).__name__}: {error}"[:MOST_WHY]
            is_done = fetch.number != _SEAT
        if not is_done:
            self._stopped.wait(self._again_s)
        if self._stopped.is_set():
            return
        if is_done:
            self._fetched[fetch.number] = fetch.where
            if fetch.number != _SEAT:
                self._acknowledge(fetch.number, why or MoveState.WARMING.name)
        self._busy.discard(fetch.number)
        self._due.set()

    def _open_all(self, tables: Iterable[Wanted], number: int) -> str:
        """Open tables; return why the first one that a move brings can't be opened.

        Args:
            tables: The tables.
            number: See ``_Fetch``.
        """
        failed, is_moving = "", number != _SEAT
        for table in tables:
            under_way = (each.number for each in self._current.known.fleet.moves)
            if is_moving and number not in under_way:
                break  # undone meanwhile: its tables stay where they are
            if self._stopped.is_set():
                break
            why = self._open(table, is_followed=is_moving)
            if why is not None and is_moving and not failed:
                failed = f"{FAILED} {table.base_path}: {why}"[:MOST_WHY]
        return failed

    def _opened(self, having: Collection[str], until_s: float) -> dict[str, tuple[str, ...]]:
        """Return what other servers have open, by address."""
        opened: dict[str, tuple[str, ...]] = {}
        urls = [url for url in having if url != self._current.url]
        for number, url in enumerate(urls):
            # A slow server leaves the others their share of the time.
            left_s = (until_s - self._clock.monotonic()) / (len(urls) - number)
            try:
                if left_s <= 0:
                    raise ServiceTimeoutError(f"not asked within {self._bound_s:g} s")
                opened[url] = self._neighbours.tables(url, left_s)
            except StrandlineError as error:
                self._failed(error, f"{url} doesn't list its tables")
        return opened

    def _open(self, table: Wanted, *, is_followed: bool) -> str | None:
        """Open a table; return why it can't be opened.

        Args:
            table: The table.
            is_followed: Whether it is also read up to the newest instant on storage. Its timeline
                is then at or past that of the server that has sent the record.
        """
        views = self._views
        assert views is not None, "fetched before the start"
        try:
            if views.open_table(table.base_path) is None:
                views.view(table.base_path, lambda view: self._prepare(view, table))
            if is_followed:
                views.view(table.base_path).sync()
        except TableNotFoundError as error:
            self._failed(error, f"{table.base_path} isn't opened")
            return None  # dropped meanwhile
        except StrandlineError as error:
            self._failed(error, f"{table.base_path} isn't opened")
            return str(error)
        except Exception as error:
            # A failure of one table, or bad data from another server, must not stop the others.
            self._counts[UNFORESEEN] += 1
            logger.exception("%s isn't opened", table.base_path)
            return f"{type(error).__name__}: {error}"
        return None

    def _prepare(self, view: TableView, table: Wanted) -> None:
        """Have a table that is being opened continue from a neighbour's record, if there is any."""
        try:
            if view.state.recorded() is not None:
                self._counts["own"] += 1
                return
        except StoreError as error:
            # The next record replaces it.
            self._failed(error, f"the own record of {table.base_path} can't be read")
        assert self._views is not None
        most_bytes = self._views.stores.budget.limit_bytes // SHARE_OF_BUDGET
        until_s = self._clock.monotonic() + self._bound_s
        for url in table.urls:
            if self._stopped.is_set():
                raise _stopping()
            try:
                with self._turn(until_s):
                    left_s = self._left_s(until_s)
                    pieces = self._neighbours.record(url, table.base_path, most_bytes, left_s)
                    view.state.take(self._until_stopped(pieces), most_bytes)
            except StrandlineError as error:
                self._failed(error, f"the record of {table.base_path} at {url} isn't taken")
            else:
                self._counts["taken"] += 1
                return
        self._counts["loaded"] += 1

    @contextmanager
    def _turn(self, until_s: float) -> Iterator[None]:
        """Wait until a record may be received, which is the case within the block.

        Raises:
            ServiceTimeoutError: It takes too long.
        """
        if not self._receiving.acquire(timeout=self._left_s(until_s)):
            raise ServiceTimeoutError(f"no turn to receive a record within {self._bound_s:g} s")
        try:
            yield
        finally:
            self._receiving.release()

    def _left_s(self, until_s: float) -> float:
        """Return the time that is left for a record, above 0; see ``_turn`` for the error."""
        left_s = until_s - self._clock.monotonic()
        if left_s <= 0:
            raise ServiceTimeoutError(f"no record within {self._bound_s:g} s")
        return left_s

    def _until_stopped(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            if self._stopped.is_set():
                raise _stopping()
            yield piece

    def _failed(self, error: StrandlineError, what: str) -> None:
        self._counts[error.code] += 1
        logger.warning("%s: %s", what, error)


def _having(known: KnownFleet) -> tuple[str, ...]:
    """Return the addresses of the servers that may have tables open.

    Drained ones have theirs for a while; with one copy, nobody else does.
    """
    fleet = known.fleet
    urls = [seat.url for seat in known.seats if seat.url]
    urls += [each.url for each in fleet.members if each.name in fleet.drained]
    return tuple(dict.fromkeys(urls))


def _stopping() -> ServiceUnreachableError:
    return ServiceUnreachableError("this server is stopping")

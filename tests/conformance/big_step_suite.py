"""Suite of steps of more rows than one transaction writes: define ``new_place``.

Whatever happens between two of their transactions, nobody sees half of one, and no step is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from fsview.store.sql.database import TURN_S
from fsview.store.sql.session import LEASE_S
from fsview.store.sql.store import SharedStore
from fsview.store.sql.upkeep import forget
from tests.conformance.shared_place import Faults, NewPlace, SharedPlace
from tests.kit.servers.stores import blobs_of
from tests.kit.short_runs import quick_runs
from timeline.errors import StoreBehindError, StoreError
from timeline.storage.table_id import TableId

AT_ONCE = 3
FIRST: dict[str, bytes] = {f"row{n:02}": b"first" for n in range(10)}
NEW: dict[str, bytes | None] = {
    **{f"row{n:02}": b"new" for n in range(5, 25)},
    "row01": None,
    "row02": None,
}
TABLE = TableId.of("/warehouse/big")


def after(rows: dict[str, bytes], *, anew: bool) -> dict[str, bytes]:
    """Return what is shown after ``NEW``."""
    changed = NEW if anew else {**rows, **NEW}
    return {name: row for name, row in changed.items() if row is not None}


class Between(Faults):
    """Makes a call after each commit; what it raises ends the server's operation."""

    call: Callable[[], object] | None = None

    @contextmanager
    def statement(self, sql: str, error: Exception) -> Iterator[None]:
        with super().statement(sql, error):
            yield
        call, self.call = self.call, None
        if call is not None and sql == "COMMIT":
            call()
        self.call = self.call or call

    def at_commit(self, nth: int, call: Callable[[], object]) -> None:
        """Make a call after one commit, counted from 0."""
        left = iter(range(nth + 1))

        def count() -> None:
            if next(left, None) == nth:
                call()

        self.call = count


class Server:
    """A server's store; ``waits`` are seconds that it waited for others."""

    def __init__(
        self,
        place: SharedPlace,
        faults: Faults | None = None,
        *,
        table: TableId = TABLE,
        lease_s: float = LEASE_S,
    ) -> None:
        self.waits: list[float] = []
        self.place, self.table = place, table
        self.database = place.open(faults)
        self.store = SharedStore(
            self.database, table, 3, at_once=AT_ONCE, lease_s=lease_s, wait=self.waits.append
        )
        self.store.rows()

    def write(self, *, anew: bool) -> None:
        """Take the big step, with a blob."""
        self.held = self.store.commit(blobs_of([b"blob"]), lambda _: NEW, b"news", anew=anew)

    def change(self, **rows: bytes | None) -> None:
        """Take a small step."""
        self.store.commit([], lambda _: rows, b"news")

    def adopt(self) -> None:
        self.store.adopt(self.store.head())

    @property
    def rows(self) -> dict[str, bytes]:
        """All rows; the next step continues them."""
        return dict(self.store.rows())

    def check_tidy(self) -> None:
        """Nothing but what is shown is in the database."""
        assert self.place.count("row", self.table) == len(self.rows)
        with self.database.reading(self.table) as session:
            head = session.head()
            assert head is not None
            assert not head.is_untidy
            assert not session.has_leftovers()


Open = Callable[..., Server]


@pytest.fixture
def opened(new_place: NewPlace) -> Iterator[Open]:
    """Open servers of one place."""
    place = new_place()
    with ExitStack() as stack:

        def open_one(faults: Faults | None = None, **options: object) -> Server:
            server = Server(place, faults, **options)
            stack.callback(server.database.close)
            return server

        open_one().change(**FIRST)
        yield open_one


def commits_of(between: Between, operation: Callable[[], object]) -> int:
    start = len(between.statements)
    operation()
    return between.statements[start:].count("COMMIT")


@pytest.mark.parametrize("anew", [False, True])
class BigStepSuite:
    """What servers may rely on while one writes many rows."""

    def test_rows_are_those_of_one_step(self, opened: Open, *, anew: bool) -> None:
        between = Between()
        server, other = opened(between), opened()
        seen = other.store.seen
        found = []
        between.call = lambda: found.append(other.rows)
        server.write(anew=anew)
        between.call = None
        wanted = after(FIRST, anew=anew)
        changed = [rows == wanted for rows in found]
        assert changed == sorted(changed)
        assert [rows for rows in found if rows != wanted] == [FIRST] * changed.count(False)
        assert changed.count(False) >= 7
        assert server.store.head().step == seen.step + 1
        server.check_tidy()
        assert server.held[0].read() == b"blob"
        if anew:
            with pytest.raises(StoreBehindError):
                other.store.since(seen)
        else:
            (step,) = other.store.since(seen)
            assert (step.rows, step.news) == (tuple(NEW), b"news")
        assert other.rows == wanted
        other.change(row05=None, row09=b"later")
        assert server.rows == {
            n: r for n, r in (wanted | {"row09": b"later"}).items() if n != "row05"
        }

    @pytest.mark.parametrize("is_done", quick_runs([True], [False, True]))
    @pytest.mark.parametrize("goes_on", [False, True])
    def test_whatever_statement_fails_all_or_nothing_is_seen(
        self, new_place: NewPlace, *, goes_on: bool, is_done: bool, anew: bool
    ) -> None:
        """The server itself goes on, or it dies and another does."""
        place, nth, tried = new_place(), 0, []
        while True:
            table, faults = TableId.of(f"/warehouse/tried/{nth}"), Faults(is_done=is_done)
            server = Server(place, faults, table=table, lease_s=0)
            server.change(**FIRST)
            start = len(faults.statements)
            faults.at, is_refused = start + nth, False
            try:
                server.write(anew=anew)
            except StoreError:
                is_refused = True
            ended = nth >= len(faults.statements) - start
            faults.at = None
            other = Server(place, table=table, lease_s=0)
            wanted = after(FIRST, anew=anew)
            assert other.rows == (FIRST if is_refused else wanted)
            tried.append(is_refused)
            last = server if goes_on else other
            faults.is_away = not goes_on
            if is_refused:
                server.adopt() if goes_on else None
                # What is left neither hides a change nor comes back.
                last.change(row06=b"small", row01=None)
                last.change(row07=None)
                if nth % 2:
                    last.write(anew=anew)
                    assert last.rows == wanted
                last.change(row08=b"last")
            else:
                last.adopt()
                last.change(row06=None, row08=b"last")
                last.store.tidy()
            shown = last.rows
            assert shown.get("row06") == (
                None if not is_refused else b"new" if nth % 2 else b"small"
            )
            assert shown["row08"] == b"last"
            assert other.rows == shown
            other.check_tidy()
            for each in (server, other):
                each.database.close()
            if ended:
                break
            nth += 1
        assert tried == sorted(tried, reverse=True)
        assert tried.count(True) > 30
        assert tried.count(False) > 3

    def test_others_take_steps_in_between(self, opened: Open, *, anew: bool) -> None:
        """The one that writes many rows adopts these, and writes only what differs."""
        between, alone = Between(), Between()
        total = commits_of(alone, lambda: opened(alone, table=TableId.of("/x")).write(anew=anew))
        for nth in range(1, total):
            server, other = opened(between), opened()
            other.store.commit([], lambda _: FIRST, anew=True)
            server.adopt()
            stepped: list[int] = []

            def step(other: Server = other, nth: int = nth, stepped: list[int] = stepped) -> None:
                other.adopt()
                other.change(row03=b"other's %d" % nth, row06=b"other's")
                stepped.append(len(between.statements))

            between.at_commit(nth, step)
            begun = len(between.statements)
            try:
                server.write(anew=anew)
                wanted = {"row03": b"other's %d" % nth, "row06": b"other's"}
            except StoreBehindError:
                first = between.statements[begun:].count("COMMIT")
                assert other.rows["row03"] == b"other's %d" % nth
                server.adopt()
                again = commits_of(between, lambda server=server: server.write(anew=anew))
                assert again < total - first + 2
                wanted = (
                    {"row06": b"new"} if anew else {"row03": b"other's %d" % nth, "row06": b"new"}
                )
            between.call = None
            rows = other.rows
            if not stepped:
                break
            assert rows == after(FIRST, anew=anew) | wanted
            server.check_tidy()
        assert nth > 8

    def test_another_that_writes_many_rows_waits_for_a_moment(
        self, opened: Open, *, anew: bool
    ) -> None:
        between = Between()
        server, other = opened(between), opened()
        refused = []

        def write_too() -> None:
            other.waits.clear()
            with pytest.raises(StoreBehindError, match="another server writes many rows"):
                other.write(anew=anew)
            refused.append(sum(other.waits))

        between.at_commit(4, write_too)
        server.write(anew=anew)
        assert refused == [pytest.approx(TURN_S)]
        with pytest.raises(StoreBehindError, match="not at"):
            other.write(anew=anew)
        other.waits.clear()
        other.adopt()
        other.write(anew=anew)
        assert other.waits == []
        other.check_tidy()
        assert other.rows == after(after(FIRST, anew=anew), anew=anew)

    def test_nobody_waits_for_one_that_is_dead(self, opened: Open, *, anew: bool) -> None:
        """Once its lease has ended; it goes on later, and begins anew."""
        between = Between()
        for nth in range(2, 9):
            server, other = opened(between, lease_s=0), opened()

            def work(other: Server = other) -> None:
                other.adopt()
                other.write(anew=anew)
                other.check_tidy()

            other.store.commit([], lambda _: FIRST, anew=True)
            server.adopt()
            between.at_commit(nth, work)
            with pytest.raises(StoreBehindError):
                server.write(anew=anew)
            between.call = None
            assert other.waits == []
            server.adopt()
            server.write(anew=anew)
            server.check_tidy()
            assert server.rows == after(FIRST, anew=anew)

    @pytest.mark.parametrize("opens", [False, True])
    @pytest.mark.parametrize("lease_s", [LEASE_S, 0])
    def test_what_is_half_written_is_deleted_by_the_next_one(
        self, opened: Open, *, anew: bool, lease_s: float, opens: bool
    ) -> None:
        """Once the lease has ended: when it opens the table, or takes a step."""
        between, other = Between(), opened()
        dying = opened(between, lease_s=lease_s)

        def die() -> None:
            between.is_away = True
            raise StoreError("dead")

        between.at_commit(5, die)
        with pytest.raises(StoreError, match="dead"):
            dying.write(anew=anew)
        rows = other.place.count("row", TABLE)
        assert rows > len(FIRST)
        if opens:
            opened().store.tidy()
        else:
            other.change(row00=b"first")
        assert other.place.count("row", TABLE) == (rows if lease_s else len(FIRST))
        assert other.rows == FIRST

    def test_a_database_that_falls_back_in_the_middle(
        self, new_place: NewPlace, *, anew: bool
    ) -> None:
        """To what has fewer of the rows: they aren't taken for all."""
        nth = 0
        while True:
            place, between = new_place(), Between()
            server = Server(place, between)
            server.change(**FIRST)
            done = []

            def fall_back(place: SharedPlace = place, done: list[int] = done) -> None:
                place.fall_back()
                done.append(1)

            def save(place: SharedPlace = place, between: Between = between) -> None:
                place.save()
                between.at_commit(1, fall_back)

            between.at_commit(nth, save)
            with suppress(StoreError):
                server.write(anew=anew)
            between.call = None
            if not done:
                server.database.close()
                break
            other = Server(place)
            wanted = after(FIRST, anew=anew)
            assert other.rows in (FIRST, wanted)
            server.adopt()
            server.write(anew=anew)
            assert other.rows == wanted
            server.check_tidy()
            for each in (server, other):
                each.database.close()
            nth += 1
        assert nth > 7

    def test_a_table_that_is_forgotten_in_the_middle(self, opened: Open, *, anew: bool) -> None:
        between = Between()
        server, other = opened(between), opened()
        between.at_commit(5, lambda: forget(other.database, TABLE))
        with pytest.raises(StoreBehindError):
            server.write(anew=anew)
        between.call = None
        assert other.rows == {}
        other.check_tidy()
        server.adopt()
        server.write(anew=anew)
        assert other.rows == after({}, anew=anew)
        assert forget(other.database, TABLE) is not None
        other.check_tidy()

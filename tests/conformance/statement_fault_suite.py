"""Suite of shared stores whose statements fail, one after another: define ``new_place``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from fsview.store.base import StoredChunk
from fsview.store.sql.store import SharedStore
from fsview.store.sql.upkeep import forget
from tests.conformance.shared_place import Faults, NewPlace, SharedPlace, State
from tests.conformance.shared_store_suite import KEPT, TABLE
from tests.kit.servers.stores import blobs_of
from tests.kit.short_runs import quick_runs
from timeline.errors import StoreError
from timeline.storage.table_id import TableId

ROWS = {"a": b"2", "b": b"2", "gone": None}


class Server:
    """A server's store and the chunks that it holds."""

    def __init__(
        self,
        place: SharedPlace,
        faults: Faults | None = None,
        kept_steps: int = KEPT,
        table: TableId = TABLE,
    ) -> None:
        self.database = place.open(faults)
        self.store = SharedStore(self.database, table, kept_steps)
        self.store.rows()
        self.held: list[StoredChunk] = []

    def step(self) -> None:
        self.held[:2] = self.store.commit(blobs_of([b"2", b"two"]), lambda _: ROWS, b"news")

    def add(self) -> None:
        self.held += self.store.commit(blobs_of([b"added"]))

    def forget(self) -> None:
        self.held.pop()
        self.store.collect()

    def clear(self) -> None:
        self.store.clear()

    def anew(self) -> None:
        self.held[:2] = self.store.commit(blobs_of([b"2", b"two"]), lambda _: ROWS, anew=True)

    def sweep(self) -> None:
        self.store.sweep([])


def begin(place: SharedPlace, table: TableId) -> None:
    """Make a table with steps, blobs that another process left, and garbage."""
    server = Server(place, table=table)
    for n in range(KEPT + 2):
        rows = {"a": b"%d" % n, "gone": b"1"}
        server.held = server.store.commit(blobs_of([b"%d" % n, b"other"]), lambda _, r=rows: r)
    server.database.close()


def prepare(server: Server) -> None:
    """Have a server hold three blobs, and forget one with its next commit."""
    server.held = server.store.commit(blobs_of([b"1", b"one", b"forgotten"]))
    server.held.pop()


Operation = Callable[[Server], None]
OPERATIONS = [Server.step, Server.add, Server.anew, Server.clear, Server.sweep]


@dataclass(frozen=True)
class Outcome:
    """What an operation did with a statement that failed.

    Attributes:
        failed: The statement; ``None`` if the operation has fewer.
        before, after: The store.
        error: What was raised.
        database: Name of the database.
    """

    failed: str | None
    before: State
    after: State
    error: StoreError | None
    database: str


def run(
    place: SharedPlace, operation: Operation, kept_steps: int, nth: int | None, is_done: bool
) -> Outcome:
    """Have a statement of an operation fail, and check that the server goes on."""
    table, faults = TableId.of(f"/warehouse/tried/{nth}"), Faults(is_done=is_done)
    begin(place, table)
    server = Server(place, faults, kept_steps, table)
    prepare(server)
    before, error, start = State.of(place, table), None, len(faults.statements)
    faults.at = None if nth is None else start + nth
    try:
        operation(server)
    except StoreError as exc:
        error = exc
    statements, faults.at = faults.statements[start:], None
    failed = statements[nth] if nth is not None and nth < len(statements) else None
    after = State.of(place, table)
    server.store.commit([], lambda _: {"on": b"1"})
    server.step()
    rows = server.store.rows()
    assert {name: rows.get(name) for name in (*ROWS, "on")} == {**ROWS, "on": b"1"}
    assert [chunk.read() for chunk in server.held[:2]] == [b"2", b"two"]
    server.database.close()
    return Outcome(failed, before, after, error, server.database.name)


def same(one: State, other: State) -> bool:
    """Whether two states are equal but for handles."""

    def shown(state: State) -> tuple[object, ...]:
        return state.step, state.rows, sorted(state.blobs.values()), state.counted, state.journal

    return shown(one) == shown(other)


class StatementFaultSuite:
    """What a store does whose statements fail.

    Attributes:
        of_an_opening: Of so many statements that make the tables one is tried.
    """

    of_an_opening = 1

    @pytest.mark.parametrize("kept_steps", quick_runs([KEPT], [0, KEPT]))
    @pytest.mark.parametrize("is_done", [False, True])
    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_a_failed_statement_leaves_all_or_nothing(
        self, new_place: NewPlace, operation: Operation, *, is_done: bool, kept_steps: int
    ) -> None:
        """What raises was taken back, unless only its end's answer got lost; it can be retried.

        A step whose answer got lost is looked for and found.
        """
        place = new_place()
        wanted, tried = run(place, operation, kept_steps, None, is_done).after, []
        while True:
            outcome = run(place, operation, kept_steps, len(tried), is_done)
            if outcome.failed is None:
                break
            tried.append(outcome.failed)
            is_lost = is_done and outcome.failed == "COMMIT"
            if outcome.error is None:
                assert same(outcome.after, wanted), outcome.failed
            elif not is_lost:
                assert same(outcome.after, outcome.before), outcome.failed
            is_lost = is_lost and "COMMIT" not in tried[:-1]
            if is_lost and operation in (Server.step, Server.anew, Server.clear):
                assert outcome.error is None
            elif operation in (Server.anew, Server.clear) and "COMMIT" in tried[:-1]:
                assert outcome.error is None  # what is old stays for now
            elif operation is not Server.sweep or tried.count("COMMIT"):  # which reads before
                assert place.trouble in str(outcome.error)
                assert outcome.database in str(outcome.error)
        assert "COMMIT" in tried
        assert len(tried) >= 6

    @pytest.mark.parametrize("is_done", quick_runs([False], [False, True]))
    @pytest.mark.parametrize("is_forgotten", [False, True])
    def test_nothing_of_an_earlier_generation_is_left(
        self, new_place: NewPlace, *, is_forgotten: bool, is_done: bool
    ) -> None:
        """Whatever statement a server dies after: all or nothing is seen, the next one tidies."""
        before = {f"row{n}": b"1" for n in range(1500)}
        after = {} if is_forgotten else {"row1": b"2"}
        place, nth, seen = new_place(), 0, []
        while True:
            table, faults = TableId.of(f"/warehouse/tried/{nth}"), Faults(is_done=is_done)
            server = Server(place, table=table)
            server.held = server.store.commit(blobs_of([b"1"] * 1500), lambda _: before)
            server.database.close()
            dying = Server(place, faults, table=table)
            first = len(faults.statements)
            faults.at = first + nth
            with suppress(StoreError):
                if is_forgotten:
                    forget(dying.database, table)
                else:
                    dying.store.commit([], lambda _: after, anew=True)
            ended = nth >= len(faults.statements) - first
            dying.database.close()
            next_one = Server(place, table=table)
            rows = next_one.store.rows()
            assert rows in (before, after)
            seen.append(rows == after)
            if rows == after:
                next_one.store.tidy()
                assert place.count("row", table) == len(after)
            if is_forgotten:
                forget(next_one.database, table)
                assert next_one.store.status()["blobs"] == 0
                assert [place.count(kind, table) for kind in ("row", "blob")] == [0, 0]
            next_one.database.close()
            if ended:
                break
            nth += 1
        assert seen == sorted(seen)
        assert sum(seen) > 5

    def test_a_failed_statement_of_an_opening_leaves_what_opens(self, new_place: NewPlace) -> None:
        for after in (False, True):
            nth = 0
            while True:
                place, faults = new_place(), Faults(nth, after)
                with suppress(StoreError):
                    place.open(faults).close()
                if nth >= len(faults.statements):
                    break
                state = State.of(place, TABLE)
                assert (state.step, state.rows, state.blobs) == (0, {}, {})
                nth += self.of_an_opening
            assert nth > 8

    def test_forgotten_blobs_that_could_not_be_freed_are_freed_later(
        self, new_place: NewPlace
    ) -> None:
        faults = Faults()
        server = Server(new_place(), faults, 0)
        server.add()
        server.add()
        statements = len(faults.statements)
        server.forget()
        count = len(faults.statements) - statements
        for nth in range(count):
            server.add()
            faults.at = len(faults.statements) + nth
            server.forget()
            faults.at = None
            server.store.collect()
            assert server.store.status()["blobs"] == len(server.held) == 1
        server.database.close()

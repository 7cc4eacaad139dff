"""Suite of servers that leave deletions to their leader: define ``new_place``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count

import pytest

from fsview.store.base import RecordRows
from fsview.store.sql.database import Database
from fsview.store.sql.store import SharedStore
from fsview.store.sql.upkeep import Upkeep
from tests.conformance.big_step_suite import Between
from tests.conformance.shared_place import Faults, NewPlace, SharedPlace
from tests.kit.servers.stores import blobs_of
from timeline.errors import StoreError
from timeline.storage.table_id import TableId

KEPT = 3
AT_ONCE = 4
TABLES = [TableId.of(path) for path in ("/lake/a", "s3://lake/größe", "/lake/\udcff")]

Open = Callable[..., tuple[SharedStore, Database]]


def change(store: SharedStore, **rows: bytes | None) -> None:
    store.commit([], lambda _: rows)


def leave_garbage(store: SharedStore, count: int) -> None:
    chunks = store.commit(blobs_of([b"%d" % n for n in range(count)]), lambda _: {"a": b"0"})
    del chunks
    change(store, a=b"1")


class UpkeepSuite:
    """What is old goes from all tables, by one server, and nothing that is needed does."""

    @pytest.fixture
    def place(self, new_place: NewPlace) -> SharedPlace:
        return new_place()

    @pytest.fixture
    def opened(self, place: SharedPlace) -> Iterator[Open]:
        with ExitStack() as stack:

            def open_one(
                table: TableId = TABLES[0], *, leads: bool = False, faults: Faults | None = None
            ) -> tuple[SharedStore, Database]:
                database = place.open(faults)
                stack.callback(database.close)
                store = SharedStore(
                    database, table, KEPT, at_once=AT_ONCE, lease_s=0, leads=lambda: leads
                )
                store.rows()
                return store, database

            yield open_one

    def test_tables_are_listed_by_name(self, opened: Open) -> None:
        for table in TABLES:
            _, database = opened(table)
        assert database.tables() == sorted(TABLES, key=str)

    def test_the_leader_deletes_of_all_tables_what_others_have_left(self, opened: Open) -> None:
        stores = [opened(table)[0] for table in TABLES]
        _, database = opened()
        upkeep = Upkeep([database], KEPT, at_once=AT_ONCE)
        for store in stores:
            leave_garbage(store, 10)
            for n in range(KEPT - 1):
                change(store, a=b"%d" % n)
        upkeep.run()
        assert [store.status()["blobs"] for store in stores] == [10] * 3  # may still be read
        assert upkeep.deleted == 0
        for store in stores:
            change(store, a=b"last")
            assert store.status()["blobs"] == 10
        upkeep.run()
        assert [store.status()["blobs"] for store in stores] == [0] * 3
        assert [store.status()["bytes"] for store in stores] == [0] * 3
        assert upkeep.deleted == 30
        assert [store.rows() for store in stores] == [{"a": b"last"}] * 3

    @pytest.mark.parametrize("rows", [2, 30])
    def test_rows_of_earlier_generations_go(
        self, opened: Open, place: SharedPlace, rows: int
    ) -> None:
        store, database = opened()
        new: RecordRows = {f"row{n}": b"1" for n in range(rows)}
        store.commit([], lambda _: new, anew=True)
        store.commit([], lambda _: {"row1": b"2"}, anew=True)
        assert place.count("row", TABLES[0]) == rows + 1
        Upkeep([database], KEPT, at_once=AT_ONCE).run()
        assert place.count("row", TABLES[0]) == 1
        assert store.rows() == {"row1": b"2"}

    def test_what_a_dead_server_has_built_is_folded(self, opened: Open, place: SharedPlace) -> None:
        many: RecordRows = {f"row{n}": b"1" for n in range(30)}
        for nth in count():
            table, between = TableId.of(f"/lake/{nth}"), Between()
            dying, _ = opened(table, faults=between)
            change(dying, row1=b"before", row40=b"stays")
            between.at_commit(nth, partial(setattr, between, "is_away", True))
            with suppress(StoreError):
                dying.commit([], lambda _: many)
            if opened(table)[0].head().step == 2:  # shown, and nothing folded
                break
        _, database = opened()
        Upkeep([database], KEPT, at_once=AT_ONCE).run()
        with database.reading(table) as session:
            assert session.rows() == {**many, "row40": b"stays"}
            assert not session.has_leftovers()
        assert place.count("row", table) == 31

    def test_without_a_leader_on_this_database_all_goes_later(
        self, opened: Open, place: SharedPlace
    ) -> None:
        store, _ = opened()
        store.commit([], lambda _: {"row1": b"1", "row2": b"1"}, anew=True)
        store.commit([], lambda _: {"a": b"0"}, anew=True)
        leave_garbage(store, 10)
        left = []
        for n in range(2 * KEPT):
            left.append(store.status()["blobs"])
            change(store, a=b"%d" % n)
        assert left == [10] * (2 * KEPT)
        assert store.status()["blobs"] == 0
        assert place.count("row", TABLES[0]) == 1

    def test_upkeep_that_is_stopped_ends_between_two_transactions(self, opened: Open) -> None:
        between = Between()
        store, database = opened(faults=between)
        leave_garbage(store, 10)
        for n in range(KEPT):
            change(store, a=b"%d" % n)
        upkeep = Upkeep([database], KEPT, at_once=AT_ONCE)
        between.at_commit(1, upkeep.stop)  # the first is of looking
        upkeep.run()
        assert 0 < store.status()["blobs"] < 10
        left = store.status()["blobs"]
        upkeep.run()
        assert store.status()["blobs"] == left

    def test_a_server_that_leads_no_more_leaves_the_other_tables(self, opened: Open) -> None:
        stores = [opened(table)[0] for table in TABLES]
        for store in stores:
            leave_garbage(store, 1)
            for n in range(KEPT):
                change(store, a=b"%d" % n)
        _, database = opened()
        leads = iter([True, False])
        Upkeep([database], KEPT).run(lambda: next(leads))
        assert sorted(store.status()["blobs"] for store in stores) == [0, 1, 1]

    def test_a_table_that_is_damaged_costs_the_others_nothing(
        self, opened: Open, place: SharedPlace
    ) -> None:
        stores = [opened(table)[0] for table in TABLES]
        for store in stores:
            leave_garbage(store, 1)
            for n in range(KEPT):
                change(store, a=b"%d" % n)
        place.damage_heads(TABLES[0])
        _, database = opened(TABLES[1])
        Upkeep([database], KEPT).run()
        assert [store.status()["blobs"] for store in stores[1:]] == [0, 0]

    def test_a_database_that_is_away_costs_the_others_nothing(self, opened: Open) -> None:
        faults = Faults()
        store, database = opened()
        _, away = opened(faults=faults)
        leave_garbage(store, 1)
        for n in range(KEPT):
            change(store, a=b"%d" % n)
        faults.is_away = True
        Upkeep([away, database], KEPT).run()
        assert store.status()["blobs"] == 0

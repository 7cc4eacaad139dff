"""Suite of servers that share a store whose statements fail, or that race: answers stay right.

Define the ``new_place`` fixture.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.record.rows import PARTITION
from fsview.record.status import EVERYTHING, MOST_NEWS, Ahead, InStep
from fsview.store.sql.store import SharedStore
from fsview.store.stores import KEPT_STEPS
from fsview.sync.follower import ATTEMPTS
from fsview.table_view import TableView
from tests.conformance.shared_place import Faults, NewPlace
from tests.conformance.sharing_server import Server
from tests.fsview.store.stored_views import EVERYWHERE, PARTITIONS, check, small, warnings
from tests.kit.short_runs import quick_runs
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import (
    InstantNotFoundError,
    StorageUnavailableError,
    StoreError,
    StoreUnavailableError,
    ViewBehindError,
)
from timeline.storage.local import LocalStorage

Move = Callable[[SmallTable, Server, Server], None]


def sync_what_is_new(table: SmallTable, one: Server, other: Server) -> None:
    table.write(("a", "new"), ("d", "d0"))
    other.view.sync()


def adopt_what_is_new(table: SmallTable, one: Server, other: Server) -> None:
    table.write(("a", "new"), ("d", "d0"))
    one.view.sync()
    other.view.sync()


def load(table: SmallTable, one: Server, other: Server) -> None:
    LocalView.newest(other.view).load_partitions(["d"])


def load_what_another_has(table: SmallTable, one: Server, other: Server) -> None:
    LocalView.newest(one.view).load_partitions(["d"])
    LocalView.newest(other.view).load_partitions(["d"])


def load_anew(table: SmallTable, one: Server, other: Server) -> None:
    other.view.reload("check")


def begin(table: SmallTable, one: Server, other: Server) -> None:
    """Begin with a record that can't be read at once."""


MOVES = [sync_what_is_new, adopt_what_is_new, load, load_what_another_has, load_anew, begin]


def loaded_in_memory(server: Server, faults: Faults) -> tuple[str, str]:
    """Have a server load partition ``a`` while its database is away.

    Returns:
        What a client knows from before: answering it moves chunks that no row names yet.
    """
    table = server.table
    LocalView.newest(server.view).load_partitions(["b/c"])
    pinned = table.known()
    table.write(("d", "new"))
    server.view.sync()
    faults.is_away = True
    LocalView.newest(server.view).load_partitions(["a"])
    table.write(("d", "new"))
    server.view.sync()
    faults.is_away = False
    return pinned


class AwayAtLast(Faults):
    """Fails from a statement on that has some text."""

    is_away_after: str | None = None

    @contextmanager
    def statement(self, sql: str, error: Exception) -> Iterator[None]:
        self.is_away = self.is_away or (self.is_away_after or "\0") in sql
        with super().statement(sql, error):
            yield


class AdoptionFaultSuite:
    """What servers answer while their store fails."""

    @pytest.mark.parametrize("is_done", quick_runs([False], [False, True]))
    @pytest.mark.parametrize("move", MOVES)
    def test_a_statement_that_fails_costs_time_but_no_answer(
        self, new_place: NewPlace, move: Move, *, is_done: bool
    ) -> None:
        place, nth = new_place(), 0
        while True:
            faults = Faults(is_done=is_done)
            table = small(MemoryStorage(f"/memory/{nth}"))
            with ExitStack() as stack:
                one = stack.enter_context(Server.opened(table, place))
                other = stack.enter_context(Server.opened(table, place, faults=faults))
                one.view.sync()
                LocalView.newest(one.view).load_partitions(["a"])
                if move is not begin:
                    other.view.sync()
                    LocalView.newest(other.view).load_partitions(["b/c"])
                start = len(faults.statements)
                faults.at = start + nth
                if move is begin:
                    other.view.sync()
                # Where chunks can't be read a request is refused, and the next one loads them anew.
                with suppress(StoreError):
                    move(table, one, other)
                if nth >= len(faults.statements) - start:
                    break
                faults.at = None
                other.check()
                for server in (one, other, one):
                    table.write(EVERYWHERE[nth % 3], ("d", f"more{nth}"))
                    for each in (server, one, other):
                        each.check()
                joined = stack.enter_context(Server.opened(table, place))
                joined.check()
            nth += 1
        assert nth > 2

    def test_the_database_is_away_for_a_while(self, new_place: NewPlace) -> None:
        """The table is followed in memory, and what came meanwhile is recorded afterwards."""
        table, faults = small(MemoryStorage()), Faults()
        place = new_place()
        with (
            Server.opened(table, place) as one,
            Server.opened(table, place, faults=faults) as other,
        ):
            one.view.sync()
            LocalView.newest(other.view).load_partitions(["a", "d"])
            head = other.store.head()
            faults.is_away = True
            for n in range(5):
                table.write(("b/c", f"new{n}"))
                other.view.sync()
            LocalView.newest(other.view).load_partitions(["b/c"])
            assert other.metrics.get("reloads") == 0
            faults.is_away = False
            assert other.store.head() == head
            table.write(("d", "new"))
            other.view.sync()
            assert other.store.head().step == head.step + 1
            other.check()
            one.calls()
            one.check()
            assert one.metrics.get("adoptions") == 1
            assert one.metrics.get("adopted_instants") == 6
            assert "list lookup" not in one.calls()

    def test_a_table_is_first_asked_for_while_the_database_is_away(
        self, new_place: NewPlace
    ) -> None:
        """It is followed in memory, and recorded once the database is there, for others, too."""
        table, faults = small(MemoryStorage()), Faults()
        place = new_place()
        database = place.open(faults)
        faults.is_away = True
        store = SharedStore(database, TableView(table.storage).table_id, KEPT_STEPS)
        server = Server(table, table.storage, store, database)
        for n in range(3):
            server.check()
            table.write(("a", f"new{n}"))
        assert server.metrics.get("reloads") == 0
        faults.is_away = False
        server.check()
        with Server.opened(table, place) as other:
            other.check()
            assert other.metrics.get("partition_loads", source="record") == len(PARTITIONS)
        for each in (server.view, database):
            each.close()

    @pytest.mark.parametrize("is_new", [True, False])
    def test_the_database_takes_no_writes_for_a_while(
        self, new_place: NewPlace, *, is_new: bool
    ) -> None:
        """As one that is full: a table is followed in memory, whether others have recorded it."""
        table, faults, place = small(MemoryStorage()), Faults(), new_place()
        place.open().close()
        if not is_new:
            with Server.opened(table, place) as other:
                other.check()
        faults.takes_no_writes = True
        with Server.opened(table, place, faults=faults) as one:
            one.check()
            one.calls()
            for n in range(4):
                table.write(("a", f"new{n}"))
                one.check()
                assert "list lookup" not in one.calls()
            assert one.metrics.get("reloads") == 0
            assert one.view.state.record.status.is_ahead
            faults.takes_no_writes = False
            for n in range(2):
                table.write(("a", f"more{n}"))
                one.check()
            assert one.view.state.record.status.rows == InStep()
            assert one.metrics.get("reloads") == 0
            with Server.opened(table, place) as other:
                other.check()
                assert other.metrics.get("partition_loads", source="record") == len(PARTITIONS)

    def test_each_outage_is_told_once(
        self, new_place: NewPlace, caplog: pytest.LogCaptureFixture
    ) -> None:
        table, faults, place = small(MemoryStorage()), Faults(), new_place()
        with Server.opened(table, place, faults=faults) as one:
            one.check()
            for attribute in ("takes_no_writes", "is_away"):
                setattr(faults, attribute, True)
                for n in range(3):
                    table.write((attribute, f"new{n}"))
                    one.view.sync()
                (told,) = warnings(caplog)
                assert "is followed in memory: " in told
                assert place.trouble in told
                caplog.clear()
                setattr(faults, attribute, False)
                table.write((attribute, "last"))
                one.view.sync()
                assert warnings(caplog) == []
            one.check()

    @pytest.mark.parametrize("is_away", [False, True])
    def test_a_reload_needs_no_record_of_others(
        self, new_place: NewPlace, *, is_away: bool
    ) -> None:
        """Which others have written since, and which is damaged, or can't be read."""
        table, faults, place = small(MemoryStorage()), AwayAtLast(), new_place()
        with (
            Server.opened(table, place) as one,
            Server.opened(table, place, faults=faults) as other,
        ):
            for server in (one, other):
                server.check()
            table.write(("a", "new"))
            one.view.sync()
            if is_away:
                faults.is_away_after = "near, content"
            else:
                place.lose_row(PARTITION + "d")
            other.view.reload("check-failed")
            faults.is_away, faults.is_away_after = False, None
            for server in (other, one):
                server.check()

    def test_what_came_while_no_writes_were_taken_is_told_within_bounds(
        self, new_place: NewPlace
    ) -> None:
        table, faults, place = small(MemoryStorage()), Faults(), new_place()
        with (
            Server.opened(table, place, faults=faults) as one,
            Server.opened(table, place) as other,
        ):
            for server in (one, other):
                server.check()
            faults.takes_no_writes = True
            for n in range(MOST_NEWS + 1):
                table.write((PARTITIONS[n % 3], f"new{n % 4}"))
                one.view.sync()
            rows = one.view.state.record.status.rows
            assert isinstance(rows, Ahead)
            assert rows.lack is not EVERYTHING
            assert rows.lack.news is None
            faults.takes_no_writes = False
            table.write(("a", "last"))
            one.check()
            (step,) = one.store.since(other.store.seen)
            assert (step.news, len(step.rows)) == (None, len(PARTITIONS) + 1)
            other.check()
            assert other.metrics.get("record_reads", cause="behind") == 1
            assert other.metrics.get("reloads") == 0

    def test_a_server_that_only_adopts_forgets_what_it_dropped(self, new_place: NewPlace) -> None:
        table, place, at_once = small(MemoryStorage()), new_place(), 20
        with (
            Server.opened(table, place, kept_steps=3) as one,
            Server.opened(table, place, kept_steps=3, at_once=at_once, retained=4) as other,
        ):
            for server in (one, other):
                server.check()
            most = 0
            for n in range(60):
                table.write(*((p, f"new{n % 4}") for p in PARTITIONS))
                one.view.sync()
                other.view.sync()
                most = max(most, len(other.store.forgotten))
            assert other.metrics.get("adoptions") == 60
            assert at_once / 2 < most < 2 * at_once
            for server in (one, other):
                server.check()

    def test_a_server_that_only_adopts_seldom_asks_a_database_that_takes_no_writes(
        self, new_place: NewPlace, caplog: pytest.LogCaptureFixture
    ) -> None:
        table, place, faults, at_once = small(MemoryStorage()), new_place(), Faults(), 10
        with (
            Server.opened(table, place) as one,
            Server.opened(table, place, at_once=at_once, retained=4, faults=faults) as other,
        ):
            for server in (one, other):
                server.check()
            faults.takes_no_writes = True
            for n in range(60):
                table.write(*((p, f"new{n % 4}") for p in PARTITIONS))
                one.view.sync()
                other.view.sync()
            assert 8 * at_once < len(other.store.forgotten)
            assert 1 <= len(warnings(caplog)) <= 5  # at 10, 20, 40, ...
            faults.takes_no_writes = False
            for n in range(70):
                table.write(*((p, f"more{n % 4}") for p in PARTITIONS))
                one.view.sync()
                other.view.sync()
            assert len(other.store.forgotten) < 2 * at_once
            other.check()

    def test_a_record_read_again_is_not_swept_again(self, new_place: NewPlace) -> None:
        table, place, faults = small(MemoryStorage()), new_place(), Faults()
        with Server.opened(table, place) as one:
            one.check()
        with Server.opened(table, place, faults=faults) as other:
            for _ in range(3):
                assert other.view.state.recorded() is not None
            assert sum(" EXCEPT " in sql for sql in faults.statements) == 1
            other.check()

    def test_who_was_forestalled_often_follows_a_table_that_is_rolled_back(
        self, new_place: NewPlace
    ) -> None:
        """An instant that is listed and gone when it is read costs one attempt more."""
        table, place = small(MemoryStorage()), new_place()
        with Server.opened(table, place) as one, Server.opened(table, place) as other:
            for server in (one, other):
                server.check()
            reads: list[str] = []

            def meanwhile(kind: str, path: str) -> None:
                if kind != "read":
                    return
                reads.append(path)
                if len(reads) < ATTEMPTS:
                    table.write(("a", f"new{len(reads)}"))
                    one.view.sync()
                    table.write(("b/c", f"new{len(reads)}"))
                elif len(reads) == ATTEMPTS:
                    raise InstantNotFoundError(f"{path} was rolled back")

            table.write(("a", "new"))
            other.storage.fail[:] = [meanwhile]
            other.view.sync()
            assert len(reads) > ATTEMPTS
            other.storage.fail.clear()
            for server in (one, other):
                server.check()

    def test_who_needs_a_chunk_while_the_database_is_away_is_told_to_ask_elsewhere(
        self, new_place: NewPlace
    ) -> None:
        table, faults = small(MemoryStorage()), Faults()
        with Server.opened(table, new_place(), faults=faults) as server:
            server.check()
            faults.is_away = True
            with pytest.raises(StoreUnavailableError) as refused:
                LocalView.newest(server.view).latest_base_files("a")
            assert (refused.value.status, refused.value.code) == (503, "store_unavailable")
            # The next one is answered from the table's storage.
            server.check()

    def test_a_server_that_is_closed_reads_nothing_more(
        self, new_place: NewPlace, caplog: pytest.LogCaptureFixture
    ) -> None:
        table, place = small(MemoryStorage()), new_place()
        with Server.opened(table, place) as one, Server.opened(table, place) as other:
            one.check()
            other.view.close()
            with pytest.raises(StoreError, match="closed"):
                other.view.sync()
            assert other.calls() == {}
            assert other.metrics.get("reloads") == 0
            assert warnings(caplog) == []

    def test_chunks_that_an_older_snapshot_got_first_stay(self, new_place: NewPlace) -> None:
        """A server that joins before rows name them takes them for a dead server's."""
        table, faults, place, kept = small(MemoryStorage()), Faults(), new_place(), 3
        table.write(*(("a", f"a{n}") for n in range(60)))
        with ExitStack() as stack:
            one = stack.enter_context(Server.opened(table, place, kept_steps=kept, faults=faults))
            pinned = loaded_in_memory(one, faults)
            # From what only memory has; it goes to the database.
            assert len(list(LocalView.at(one.view, *pinned).latest_base_files("a"))) >= 60
            held = one.view.newest().files.versions["a"]
            assert all(chunk.handle is not None for chunk in held.parts)
            joined = stack.enter_context(Server.opened(table, place, kept_steps=kept))
            joined.view.state.recorded()  # sweeps
            for _ in range(kept + 3):
                table.write(("d", "more"))
                for server in (one, joined):
                    server.view.sync()
            for server in (one, joined):
                server.check()
                assert server.metrics.get("reloads") == 0

    def test_chunks_that_went_before_rows_named_them_are_read_anew(
        self, new_place: NewPlace
    ) -> None:
        """As in a database that fell back: no row ever names what isn't there."""
        table, faults = small(MemoryStorage()), Faults()
        table.write(*(("a", f"a{n}") for n in range(60)))
        with Server.opened(table, new_place(), faults=faults) as one:
            pinned = loaded_in_memory(one, faults)
            list(LocalView.at(one.view, *pinned).latest_base_files("a"))
            parts = one.view.newest().files.versions["a"].parts
            with one.database.writing(one.view.table_id) as session:
                handles = [chunk.handle for chunk in parts if chunk.handle is not None]
                session.add_garbage(0, handles)
                assert session.delete_garbage(0, 1000) == len(handles) > 0
            for _ in range(2):
                table.write(("d", "more"))
                one.check()
            assert one.metrics.get("record_reads", cause="behind") == 1
            assert one.metrics.get("reloads") == 0
            assert not one.view.state.record.status.is_ahead

    def test_the_record_moves_on_while_the_database_is_away_from_one(
        self, new_place: NewPlace
    ) -> None:
        table, faults = small(MemoryStorage()), Faults()
        place = new_place()
        with (
            Server.opened(table, place) as one,
            Server.opened(table, place, faults=faults) as other,
        ):
            for server in (one, other):
                server.check()
            for n in range(5):
                faults.is_away = True
                table.write(("b/c", f"new{n}"))
                for _ in range(2):  # chunks in the database can't be read: they are loaded anew
                    with suppress(StoreError):
                        other.check()
                other.check()
                table.write(("a", f"new{n}"))
                one.check()
                faults.is_away = False
                other.check()
                one.check()
            table.write(("d", "new"))
            other.check()
            one.check()
            assert one.metrics.get("reloads") == 0

    def test_servers_that_race(self, new_place: NewPlace, tmp_path: Path) -> None:
        """Each syncs and loads while the table is written; none answers wrong."""
        table, place = small(LocalStorage(str(tmp_path / "table"))), new_place()
        done, failed = threading.Event(), []
        with ExitStack() as stack:
            servers = [
                stack.enter_context(Server.opened(table, place, table.storage)) for _ in range(3)
            ]

            def look(view: LocalView, partition: str) -> None:
                known = {f.file_id for f in view.latest_base_files(partition)}
                view.load_all_partitions()
                assert known == {f.file_id for f in view.latest_base_files(partition)}

            def work(server: Server, partition: str) -> None:
                try:
                    while not done.is_set():
                        # Who was forestalled too often reads the record whole, and then nothing
                        # leads back to an older snapshot: its client syncs and asks again. So it
                        # does where that happened again and again while partitions were listed.
                        with suppress(ViewBehindError, StorageUnavailableError):
                            look(LocalView.synced(server.view), partition)
                except BaseException as exc:
                    failed.append(exc)

            threads = [
                threading.Thread(target=work, args=(server, PARTITIONS[n % 3]))
                for n, server in enumerate((*servers, *servers))
            ]
            for thread in threads:
                thread.start()
            for n in range(40):
                table.write((PARTITIONS[n % 3], f"new{n}"), *EVERYWHERE[:2])
            done.set()
            for thread in threads:
                thread.join()
            if failed:
                raise failed[0]
            for server in servers:
                check(LocalView.synced(server.view), table.storage)
            counted = sum(server.metrics.get("adoptions") for server in servers)
            assert counted

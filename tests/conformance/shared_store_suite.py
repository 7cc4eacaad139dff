"""Conformance suite of databases for shared stores: define the ``open_database`` fixture.

Its databases must wait for the turn to read a table for ``PATIENCE_S``.

Two databases opened at one directory are what two servers have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsview.store.base import Handle
from fsview.store.sql.database import Database
from fsview.store.sql.session import CommittedStep, Head
from fsview.store.sql.store import SharedStore
from fsview.store.sql.upkeep import Forgotten, forget
from tests.kit.servers.stores import blobs_of
from timeline.errors import BlobLostError, StoreBehindError, StoreError
from timeline.storage.table_id import TableId

TABLE = TableId.of("/warehouse/sales/orders")
OTHER = TableId.of("s3://lake/sales/orders")
KEPT = 3

OpenDatabase = Callable[[Path], Database]


def change(store: SharedStore, **rows: bytes | None) -> None:
    store.commit([], lambda _: rows)


def adopt(store: SharedStore, seen: Head) -> list[CommittedStep]:
    steps = store.since(seen)
    if steps:
        store.adopt(steps[-1].head)
    return steps


class SharedStoreSuite:
    """What servers that share the store of one table may rely on."""

    @pytest.fixture
    def pair(self, open_database: OpenDatabase, tmp_path: Path) -> Iterator[list[SharedStore]]:
        databases = [open_database(tmp_path) for _ in range(2)]
        yield [SharedStore(database, TABLE, KEPT) for database in databases]
        for database in databases:
            database.close()

    def test_a_commit_of_rows_is_a_step(self, pair: list[SharedStore]) -> None:
        store, other = pair
        start = store.head()
        assert start == other.head()
        assert start.step == 0
        change(store, a=b"1")
        assert store.head().step == 1
        (chunk,) = store.commit(blobs_of([b"blob"]))
        assert store.head().step == 1
        del chunk
        store.collect()
        assert store.head().step == 1
        change(store, a=b"1")
        assert store.head().step == 2
        assert len({start.stamp, *(step.head.stamp for step in other.since(start))}) == 3

    def test_rows_without_a_change_are_no_step(self, pair: list[SharedStore]) -> None:
        change(pair[0])
        assert pair[1].head().step == 0

    def test_others_find_what_was_committed(self, pair: list[SharedStore]) -> None:
        store, other = pair
        start = other.head()
        names = ["p/größe", "", "p/\udcff", "x\0y", "gone"]
        chunks = store.commit(
            blobs_of([b"1", b"2"], "p/größe"), lambda _: dict.fromkeys(names, b"x"), b"news"
        )
        store.commit([], lambda _: {"gone": None})
        first, second = other.since(start)
        assert (first.rows, first.news) == (tuple(names), b"news")
        assert (second.rows, second.news) == (("gone",), None)
        assert second.head == other.head() == store.head()
        assert other.since(second.head) == []
        assert other.rows() == dict.fromkeys(names[:-1], b"x")
        handles = [chunk.handle for chunk in chunks]
        assert [other.get(handle) for handle in handles] == [b"1", b"2"]

    def test_many_blobs_in_one_commit(self, pair: list[SharedStore]) -> None:
        contents = [b"%d" % n for n in range(2500)]
        chunks = pair[0].commit(blobs_of(contents, "p/a"))
        assert [pair[1].get(chunk.handle) for chunk in chunks] == contents

    def test_servers_that_change_in_turn_adopt_each_others_rows(
        self, pair: list[SharedStore]
    ) -> None:
        seen = [pair[0].head()] * 2
        for n in range(10):
            at = n % 2
            if n:
                steps = adopt(pair[at], seen[at])
                assert [step.rows for step in steps][-1] == (f"row {n - 1}",)
            change(pair[at], **{f"row {n}": b"%d" % n})
            seen[at] = pair[at].head()
        assert pair[0].rows() == {f"row {n}": b"%d" % n for n in range(10)}

    def test_who_is_behind_is_refused(self, pair: list[SharedStore]) -> None:
        store, other = pair
        (kept, forgotten) = other.commit(blobs_of([b"kept", b"forgotten"]), lambda _: {"a": b"0"})
        store.rows()
        (theirs,) = store.commit(blobs_of([b"theirs"]), lambda _: {"a": b"1"})
        head, blobs = store.head(), store.status()["blobs"]
        handle = forgotten.handle
        del forgotten
        with pytest.raises(StoreBehindError, match="sales/orders"):
            other.commit(blobs_of([b"new"]), lambda _: {"a": b"2", "b": b"2"}, b"news")
        for refused in (other.clear, lambda: other.sweep([])):
            with pytest.raises(StoreBehindError):
                refused()
        other.collect()
        assert store.head() == head
        assert store.rows() == {"a": b"1"}
        assert store.status()["blobs"] == blobs
        assert store.get(handle) == b"forgotten"
        assert other.rows() == {"a": b"1"}  # from now on it isn't behind
        for n in range(KEPT + 1):
            change(other, b=b"%d" % n)
        with pytest.raises(StoreError, match=str(handle)):
            store.get(handle)
        assert kept.read() == b"kept"
        assert theirs.read() == b"theirs"

    def test_blobs_of_no_row_are_kept_by_who_is_behind(self, pair: list[SharedStore]) -> None:
        store, other = pair
        change(store, a=b"1")
        (chunk,) = other.commit(blobs_of([b"an old snapshot's"]))
        assert chunk.read() == b"an old snapshot's"
        assert store.head().step == 1

    def test_what_is_forgotten_stays_for_a_number_of_steps(self, pair: list[SharedStore]) -> None:
        store, other = pair
        (chunk,) = store.commit(blobs_of([b"blob"]), lambda _: {"a": b"0"})
        handle, seen = chunk.handle, store.head()
        del chunk
        for n in range(1, KEPT + 1):
            change(store, a=b"%d" % n)
            assert len(other.since(seen)) == n
            assert other.get(handle) == b"blob"
        change(store, a=b"")
        with pytest.raises(StoreBehindError, match=f"step {seen.step} "):
            other.since(seen)
        with pytest.raises(StoreError, match=str(handle)):
            other.get(handle)
        assert other.status()["blobs"] == 0
        assert other.status()["bytes"] == 0

    def test_a_blob_may_be_forgotten_by_two_servers(self, pair: list[SharedStore]) -> None:
        store, other = pair
        (chunk,) = store.commit(blobs_of([b"blob"]), lambda _: {"a": b"0"})
        other.rows()
        theirs = other.chunk(chunk.handle, chunk.size)
        del chunk
        change(store, a=b"1")
        other.adopt(store.head())
        del theirs
        change(other, a=b"2")
        store.adopt(other.head())
        for n in range(KEPT + 1):
            change(store, a=b"%d" % n)
        assert store.status()["blobs"] == 0
        assert store.status()["bytes"] == 0

    def test_changes_are_the_steps_of_others_and_the_rows_as_they_are_now(
        self, pair: list[SharedStore]
    ) -> None:
        store, other = pair
        change(store, a=b"1", same=b"1", gone=b"1")
        other.rows()
        assert other.changes() is None
        seen = other.seen
        store.commit([], lambda _: {"a": b"2", "gone": None}, b"news")
        change(store, a=b"3", b=b"3")
        for _ in range(2):  # until they are adopted
            found = other.changes()
            assert found is not None
            assert (found.seen, found.head) == (seen, store.head())
            assert [step.news for step in found.steps] == [b"news", None]
            assert found.rows == {"a": b"3", "b": b"3", "gone": None}
            with pytest.raises(StoreBehindError):
                change(other, a=b"4")
        other.adopt(found.head)
        assert other.changes() is None
        change(other, a=b"4")
        assert store.rows() == {"a": b"4", "b": b"3", "same": b"1"}

    def test_changes_that_the_journal_does_not_lead_to(self, pair: list[SharedStore]) -> None:
        store, other = pair
        other.rows()
        for n in range(KEPT + 1):
            change(store, a=b"%d" % n)
        with pytest.raises(StoreBehindError, match="step 0 "):
            other.changes()
        assert other.rows() == {"a": b"%d" % KEPT}
        assert other.changes() is None

    def test_a_blob_is_forgotten_with_its_last_chunk(self, pair: list[SharedStore]) -> None:
        store, _ = pair
        (chunk,) = store.commit(blobs_of([b"blob"]), lambda _: {"a": b"0"})
        handle = chunk.handle
        for _ in range(3):
            again = store.chunk(handle, 4)
            del chunk
            for n in range(KEPT + 2):
                change(store, a=b"%d" % n)
            assert again.read() == b"blob"
            chunk = again
        del chunk, again
        for n in range(KEPT + 2):
            change(store, a=b"%d" % n)
        assert store.status()["blobs"] == 0

    def test_who_is_ahead_in_memory_deletes_nothing(self, pair: list[SharedStore]) -> None:
        store, other = pair
        (chunk,) = store.commit(blobs_of([b"blob"]), lambda _: {"a": b"0"})
        handle = chunk.handle
        store.is_ahead = lambda: True
        del chunk
        store.collect()
        store.commit(blobs_of([b"more"]))
        other.rows()
        for n in range(KEPT + 2):
            change(other, b=b"%d" % n)
        assert other.get(handle) == b"blob"
        store.rows()
        store.is_ahead = lambda: False
        for n in range(KEPT + 2):
            change(store, b=b"%d" % n)
        assert store.status()["blobs"] == 0

    def test_heads_of_another_past_are_refused(self, pair: list[SharedStore]) -> None:
        store, other = pair
        for n in range(2):
            change(store, a=b"%d" % n)
        for seen in (Head(1, b"another's stamp."), Head(7, store.head().stamp)):
            with pytest.raises(StoreBehindError, match=f"step {seen.step} "):
                other.since(seen)
            other.adopt(seen)
            with pytest.raises(StoreBehindError, match=f"not at {seen.step} as seen"):
                change(other, a=b"")
        assert store.rows() == {"a": b"1"}

    def test_no_journal_leads_across_a_clear(self, pair: list[SharedStore]) -> None:
        store, other = pair
        change(store, a=b"1", b=b"2")
        seen = store.head()
        store.clear()
        assert store.head().step == 2
        with pytest.raises(StoreBehindError):
            other.since(seen)
        assert other.rows() == {}
        assert other.since(other.head()) == []
        change(other, c=b"3")
        assert store.rows() == {"c": b"3"}

    def test_rows_that_are_all_written_anew(self, pair: list[SharedStore]) -> None:
        """Only all rows tell what is new; nothing of the earlier ones is left."""
        store, other = pair
        change(store, **{f"row{n}": b"1" for n in range(2500)})
        other.rows()
        seen = other.head()
        chunks = store.commit(blobs_of([b"1"]), lambda _: {"a": b"1", "row7": b"2"}, anew=True)
        assert store.head().step == seen.step + 1
        for refused in (lambda: other.since(seen), other.changes):
            with pytest.raises(StoreBehindError, match=f"step {seen.step} "):
                refused()
        assert other.rows() == {"a": b"1", "row7": b"2"}
        assert other.get(chunks[0].handle) == b"1"
        with other.table.reading() as session:
            assert not session.has_leftovers()
        change(other, row7=None)
        assert store.rows() == {"a": b"1"}

    def test_much_garbage_is_deleted(self, pair: list[SharedStore]) -> None:
        store, other = pair
        chunks = store.commit(blobs_of([b"%d" % n for n in range(2500)]), lambda _: {"a": b"0"})
        del chunks
        for n in range(KEPT + 1):
            assert other.status()["blobs"] == 2500
            change(store, a=b"%d" % n)
        assert other.status()["blobs"] == other.status()["bytes"] == 0

    def test_much_is_forgotten_some_at_a_time(self, pair: list[SharedStore]) -> None:
        store, other = pair
        for forgets in (store.collect, lambda: change(store, a=b"1")):
            chunks = store.commit(blobs_of([b"%d" % n for n in range(2500)]), lambda _: {"a": b"0"})
            del chunks
            forgets()
            assert not store.forgotten
        for n in range(KEPT + 1):
            change(store, a=b"%d" % n)
        assert other.status()["blobs"] == other.status()["bytes"] == 0

    def test_blobs_that_rows_name_later_are_no_garbage(self, pair: list[SharedStore]) -> None:
        """Though another server that was opened in between thought so."""
        store, other = pair
        change(store, a=b"0")
        chunks = store.commit(blobs_of([b"named", b"not named"]))
        named, not_named = (chunk.handle for chunk in chunks)
        other.rows()
        other.sweep([])
        store.commit([], lambda _: {"a": b"1"}, named=[named])
        for n in range(KEPT + 1):
            change(store, a=b"%d" % n)
        assert other.get(named) == b"named"
        with pytest.raises(StoreError, match=str(not_named)):
            other.get(not_named)

    def test_rows_name_no_blob_that_is_gone(self, pair: list[SharedStore]) -> None:
        store, other = pair
        change(store, a=b"0")
        (chunk,) = store.commit(blobs_of([b"moved before its row"]))
        other.rows()
        other.sweep([])
        for n in range(KEPT):
            change(other, b=b"%d" % n)
        adopt(store, store.seen)
        with pytest.raises(BlobLostError, match="0 of 1 blobs that rows are to name"):
            store.commit([], lambda _: {"a": b"1"}, named=[chunk.handle])
        assert other.rows()["a"] == b"0"

    def test_a_table_is_forgotten(
        self, pair: list[SharedStore], open_database: OpenDatabase, tmp_path: Path
    ) -> None:
        store, other = pair
        database = open_database(tmp_path)
        assert forget(database, OTHER) is None
        kept = SharedStore(database, OTHER)
        change(kept, a=b"kept")
        assert forget(database, TABLE) is None
        assert store.head().step == 0
        rows = {f"row{n}": b"1" for n in range(1500)}
        chunks = store.commit(blobs_of([b"%d" % n for n in range(1200)]), lambda _: rows)
        other.rows()
        assert forget(database, TABLE) == Forgotten(1500, 1200)
        assert forget(database, TABLE) is None
        for each in pair:
            with pytest.raises(StoreBehindError):
                change(each, a=b"1")
        with pytest.raises(StoreError, match="no blob"):
            chunks[0].read()
        assert store.rows() == {}
        assert store.status()["blobs"] == store.status()["bytes"] == 0
        change(store, a=b"2")
        del chunks
        store.collect()
        assert other.rows() == {"a": b"2"}
        assert kept.rows() == {"a": b"kept"}

    def test_sweep_leaves_what_servers_that_are_behind_may_need(
        self, pair: list[SharedStore]
    ) -> None:
        store, other = pair
        chunks = store.commit(blobs_of([b"named", b"orphan"]), lambda _: {"a": b"0"})
        named, orphan = (chunk.handle for chunk in chunks)
        other.rows()
        other.sweep([named])
        other.sweep([named])
        assert store.get(orphan) == b"orphan"
        for n in range(KEPT):
            change(other, a=b"%d" % n)
        assert store.get(named) == b"named"
        with pytest.raises(StoreError, match=str(orphan)):
            store.get(orphan)
        assert store.status()["blobs"] == 1

    def test_who_goes_ahead_meanwhile_discards_nothing_more(
        self, open_database: OpenDatabase, tmp_path: Path
    ) -> None:
        """What is forgotten from then on may still be named by rows."""
        database = open_database(tmp_path)
        store = SharedStore(database, TABLE, KEPT, at_once=1)
        chunks = store.commit(blobs_of([b"0", b"1", b"2"]), lambda _: {"a": b"0"})
        answers = iter([False, False])
        store.is_ahead = lambda: next(answers, True)
        del chunks
        store.collect()
        assert len(store.forgotten) == 2
        with database.writing(TABLE) as session:
            assert session.delete_garbage(1, 100) == 1
        store.is_ahead = lambda: False
        store.collect()
        assert not store.forgotten

    def test_a_sweep_marks_what_is_not_garbage_yet(
        self, pair: list[SharedStore], open_database: OpenDatabase, tmp_path: Path
    ) -> None:
        store, other = pair
        store.commit(blobs_of([b"orphan"]), lambda _: {"a": b"0"})
        other.rows()
        other.sweep([])
        change(other, a=b"1")
        other.sweep([])
        with open_database(tmp_path).writing(TABLE) as session:
            assert session.delete_garbage(1, 100) == 1
            assert not session.has_garbage(2)

    def test_one_server_at_a_time_has_the_turn_to_read(self, pair: list[SharedStore]) -> None:
        """Another that wants it waits, and has it as soon as it has ended."""
        store, other = pair
        asked, had = threading.Event(), []

        def ask() -> None:
            asked.set()
            with other.turn() as is_had:
                had.append(is_had)

        waiting = threading.Thread(target=ask)
        with store.turn() as is_had:
            assert is_had
            waiting.start()
            asked.wait()
            change(store, a=b"1")
            assert other.rows() == {"a": b"1"}
            change(other, b=b"2")
            with pytest.raises(StoreBehindError):
                change(store, a=b"2")
        waiting.join()
        assert had == [True]

    def test_a_turn_ends_with_an_error(self, pair: list[SharedStore]) -> None:
        def fail() -> None:
            with pair[0].turn():
                raise StoreBehindError("behind")

        with pytest.raises(StoreBehindError, match="behind"):
            fail()
        for store in pair:
            with store.turn() as is_had:
                assert is_had

    def test_turns_of_two_tables_are_apart(
        self, open_database: OpenDatabase, tmp_path: Path
    ) -> None:
        database = open_database(tmp_path)
        one, other = SharedStore(database, TABLE), SharedStore(database, OTHER)
        with one.turn() as is_had, other.turn() as others:
            assert is_had
            assert others

    def test_no_turn_of_a_database_that_is_closed(
        self, open_database: OpenDatabase, tmp_path: Path
    ) -> None:
        database = open_database(tmp_path)
        store = SharedStore(database, TABLE)
        with store.turn() as is_had:
            assert is_had
            database.close()
        with pytest.raises(StoreError, match="closed"), store.turn():
            pass

    def test_tables_of_one_database_are_apart(
        self, open_database: OpenDatabase, tmp_path: Path
    ) -> None:
        database = open_database(tmp_path)
        store, other = SharedStore(database, TABLE), SharedStore(database, OTHER)
        (one,) = store.commit(blobs_of([b"one"]), lambda _: {"a": b"1"})
        (two,) = other.commit(blobs_of([b"two!"]), lambda _: {"a": b"2", "b": b"2"})
        change(other, b=None)
        for its, step, size, row in ((store, 1, 7, b"1"), (other, 2, 8, b"2")):
            assert its.head().step == step
            assert its.rows() == {"a": row}
            assert (its.status()["blobs"], its.status()["bytes"]) == (1, size)
        other.sweep([])
        with pytest.raises(StoreError, match=str(two.handle)):
            store.get(two.handle)
        other.clear()
        assert store.rows() == {"a": b"1"}
        assert one.read() == b"one"
        database.close()
        for its in (store, other):
            with pytest.raises(StoreError, match="closed"):
                its.rows()

    def test_no_update_is_lost_in_a_race(
        self, open_database: OpenDatabase, pair: list[SharedStore], tmp_path: Path
    ) -> None:
        """Each of four stores counts in one row; who is behind adopts and counts again."""
        rounds, failed = 25, []
        database = open_database(tmp_path)
        shared = [*pair, *(SharedStore(database, TABLE, KEPT) for _ in range(2))]
        start = threading.Barrier(len(shared))

        def count(store: SharedStore) -> None:
            start.wait()
            try:
                for _ in range(rounds):
                    while True:
                        counted = int(store.rows().get("count", b"0"))
                        new = b"%d" % (counted + 1)
                        try:
                            (chunk,) = store.commit(
                                blobs_of([new], "count"),
                                lambda handles, new=new: {"count": new, "blob": b"%d" % handles[0]},
                            )
                        except StoreBehindError:
                            continue
                        assert chunk.read() == new
                        break
            except BaseException as exc:
                failed.append(exc)

        threads = [threading.Thread(target=count, args=(store,)) for store in shared]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        rows = pair[0].rows()
        total = rounds * len(shared)
        assert rows["count"] == b"%d" % total
        assert pair[0].head().step == total
        assert pair[0].get(Handle(int(rows["blob"]))) == rows["count"]
        assert pair[0].status()["blobs"] <= len(shared) * (KEPT + 2)

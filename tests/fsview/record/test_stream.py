"""A table's record on its way to another server: all stores send and take, damage is refused."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.record.rows import SNAPSHOT
from fsview.record.shared import kept_in
from fsview.record.stream import (
    FRAME_BYTES,
    MAGIC,
    MAX_FRAME_BYTES,
    StreamedRow,
    items_of,
    record_items,
    record_stream,
    stream_of,
)
from fsview.store.base import Blob, MakeRows, MemoryStore, StoredChunk
from fsview.table_view import TableView
from tests.conformance.view_suite import Client, ViewSuite
from tests.fsview.store.stored_views import EVERYWHERE, PARTITIONS, check, small
from tests.fsview.subject import LocalClient
from tests.kit.servers.stores import ALL_KINDS, stores_of
from tests.kit.short_runs import quick_runs
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.errors import BadAnswerError, ServiceUnreachableError, StoreError
from timeline.storage.base import Storage

MOST = 64 << 20
Items = tuple[Blob | StreamedRow, ...]


@contextmanager
def view_in(kind: str, folder: Path, table: SmallTable) -> Iterator[TableView]:
    """Open a view whose store is of a kind, with nothing recorded yet."""
    folder.mkdir()
    with closing(stores_of(kind, folder)) as stores:
        store = stores.open(TableView(table.storage).table_id)
        with closing(TableView(table.storage, metrics=Metrics(), record=kept_in(store))) as view:
            yield view


def served(storage: Storage) -> TableView:
    """Return a view as a service without a store has it."""
    return TableView(storage, record=kept_in(MemoryStore()))


def sent(view: TableView) -> bytes:
    recorded = view.state.recordable()
    assert recorded is not None
    return b"".join(record_stream(view.table_id, recorded))


def loaded(table: SmallTable) -> TableView:
    view = TableView(table.storage)
    LocalView.newest(view).load_all_partitions()
    return view


def lists(table: SmallTable) -> int:
    """Return how many calls to storage loads have made."""
    calls = table.storage.calls.snapshot()
    return sum(count for (_, cause), count in calls.items() if cause == "lookup")


@pytest.mark.parametrize("takes", ALL_KINDS)
@pytest.mark.parametrize("sends", quick_runs(["sql"], ALL_KINDS))
def test_a_view_goes_on_from_a_record_of_any_store_in_any_other(tmp_path, sends, takes):
    table = small()
    with view_in(sends, tmp_path / "a", table) as one, view_in(takes, tmp_path / "b", table) as two:
        LocalView.newest(one).load_all_partitions()
        for group in EVERYWHERE[::4]:
            table.write(group)
            LocalView.synced(one)
        stream = sent(one)
        table.write(("a", "new"))  # the record is older than the timeline
        before = lists(table)
        two.state.take([stream], MOST)
        assert two.newest().timeline.last == TableView(table.storage).newest().timeline.last
        assert sorted(two.held_partitions()) == sorted(PARTITIONS)
        for partition in PARTITIONS:
            LocalView.newest(two).all_file_slices(partition)
        assert lists(table) == before
        check(LocalView.newest(two), table.storage)
        table.write(*EVERYWHERE)
        check(LocalView.synced(two), table.storage)


@pytest.mark.parametrize("kind", [kind for kind in ALL_KINDS if kind in ("rocksdb", "sql")])
def test_a_record_that_was_taken_lasts_where_records_last(tmp_path, kind):
    table = small()
    stream = sent(loaded(table))
    for turn in range(3):
        with closing(stores_of(kind, tmp_path)) as stores:
            store = stores.open(TableView(table.storage).table_id)
            with closing(TableView(table.storage, record=kept_in(store))) as view:
                assert (view.state.recorded() is not None) == (turn > 0)
                if not turn:
                    view.state.take([stream], MOST)
                    assert view.state.recorded() is not None
                before = lists(table)
                view.newest()
                assert sorted(view.held_partitions()) == sorted(PARTITIONS)
                assert lists(table) == before
                check(LocalView.newest(view), table.storage)
                table.write(("d", f"turn-{turn}"))
                check(LocalView.synced(view), table.storage)


def test_what_is_known_and_what_is_loaded_comes_over(tmp_path):
    table = small()
    one = TableView(table.storage)
    LocalView.newest(one).load_partitions(["a", "none", "../none", "/none"])
    two = served(table.storage)
    two.state.take([sent(one)], MOST)
    two.newest()
    assert two.held_partitions() == ("a",), "a missing partition isn't remembered by others"
    check(LocalView.newest(two), table.storage)
    three = served(table.storage)
    three.state.take([sent(loaded(table))], MOST)
    assert three.newest().files.known == frozenset(PARTITIONS)


def test_a_view_that_was_not_read_has_no_record():
    table = small()
    view = TableView(table.storage)
    assert view.state.recordable() is None
    view.newest()
    assert view.state.recordable() is not None
    view.state.distrust("test")
    assert view.state.recordable() is None


def test_a_record_of_another_table_is_refused():
    one, two = small(), SmallTable(MemoryStorage("memory:///other/t"))
    with pytest.raises(BadAnswerError, match="sent for memory:///other/t can't be read"):
        served(two.storage).state.take([sent(loaded(one))], MOST)


def test_a_stream_is_cut_anywhere_and_bounded():
    stream = sent(loaded(small()))
    pieces = [stream[at : at + 7] for at in range(0, len(stream), 7)]
    items = list(items_of([stream], MOST))
    taken = len(stream) + (len(items) + 1) * FRAME_BYTES
    assert list(items_of(pieces, taken)) == list(items_of([stream], taken)) == items
    with pytest.raises(BadAnswerError, match=rf"more than {taken - 1} bytes"):
        list(items_of([stream], taken - 1))


def test_frames_without_content_count():
    """A blob takes memory, a row an entry, even if there is nothing in it."""
    most = 1 << 20
    made = count()
    with pytest.raises(BadAnswerError, match="takes more than"):
        list(items_of(stream_of(Blob(b"", f"{number}") for number in made), most))
    assert next(made) <= most // FRAME_BYTES + 1


@pytest.mark.property
def test_a_frame_that_comes_byte_by_byte_takes_no_more_than_another():
    content = b"x" * (200 << 10)
    stream = b"".join(stream_of([Blob(content, "p/a")]))
    tracemalloc.start()
    try:
        assert list(items_of((stream[at : at + 1] for at in range(len(stream))), MOST))
        assert tracemalloc.get_traced_memory()[1] < 5 * len(content)
    finally:
        tracemalloc.stop()


def test_a_row_that_would_take_far_more_memory_than_it_is_long_is_not_parsed():
    table = small()
    recorded = loaded(table).state.recordable()
    assert recorded is not None
    items = tuple(record_items(TableView(table.storage).table_id, recorded))
    bomb = StreamedRow("replaced", b"[" + b"[]," * (2 << 20) + b"[]]")
    with pytest.raises(BadAnswerError, match="values in"):
        served(table.storage).state.take(stream_of((*items, bomb)), MOST)


class FullStore(MemoryStore):
    """Has room for blobs, and for no row."""

    lasts = True

    def commit(self, blobs: Sequence[Blob], rows: MakeRows | None = None) -> list[StoredChunk]:
        if rows is not None:
            raise StoreError("full")
        return super().commit(blobs)


def test_a_record_that_can_not_be_saved_is_gone_on_from_in_memory():
    table = small()
    one = loaded(table)
    one.state.require_listing()
    with closing(TableView(table.storage, record=kept_in(FullStore()))) as two:
        two.state.take([sent(one)], MOST)
        assert two.state.record.must_list
        assert two.state.recorded() is not None
        assert two.state.record.failure == "full"
        check(LocalView.newest(two), table.storage)


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=5), st.binary(max_size=9)), max_size=9))
def test_items_come_back_as_they_were(made):
    items = [
        Blob(content, name) if is_blob else StreamedRow(name, content)
        for is_blob, name, content in made
    ]
    assert list(items_of([b"".join(stream_of(items))], MOST)) == items


def test_every_torn_stream_is_refused():
    stream = b"".join(
        stream_of([Blob(b"abc", "p/a"), StreamedRow("p/a", b"[1]"), StreamedRow(SNAPSHOT, b"{}")])
    )
    for length in range(len(stream)):
        with pytest.raises(BadAnswerError, match="before its end"):
            list(items_of([stream[:length]], MOST))
    with pytest.raises(BadAnswerError, match="behind its end"):
        list(items_of([stream, b"", b"x"], MOST))


def test_every_flipped_bit_is_refused():
    stream = b"".join(stream_of([Blob(b"abc", "p/a"), StreamedRow("p/a", b"[1]")]))
    for at, bit in product(range(len(stream)), range(8)):
        damaged = bytearray(stream)
        damaged[at] ^= 1 << bit
        with pytest.raises(BadAnswerError):
            list(items_of([bytes(damaged)], MOST))


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (b"\1\xff\xff\xff\xff\0\0\0\0", "a frame of 4294967295"),
        (b"\1\0\0\0\1\xff\xff\xff\xff", f"allowed: 65536 . {MAX_FRAME_BYTES}"),
        (b"\7\0\0\0\0\0\0\0\0", "kind 7"),
        (b"\2\0\0\0\1\0\0\0\0\xff", "a name that is no text"),
        (b"\3\0\0\0\0\0\0\0\0", "checksum"),
        (b"\3\0\0\0\1\0\0\0\0a", "checksum"),
    ],
)
def test_a_hostile_frame_is_refused_before_its_bytes_are_waited_for(frames, said):
    def stream() -> Iterator[bytes]:
        yield MAGIC
        yield frames
        if "allowed" in said or "frame of" in said:
            raise AssertionError("asked for more")

    with pytest.raises(BadAnswerError, match=said):
        list(items_of(stream(), 1 << 40))


def edited(items: Items, name: str, **changes: object) -> Items:
    """Return a record with another JSON object as one row."""
    return tuple(
        StreamedRow(name, json.dumps({**json.loads(item.content), **changes}).encode())
        if isinstance(item, StreamedRow) and item.name == name
        else item
        for item in items
    )


def items_without(items: Items, name: str) -> Items:
    return tuple(
        item for item in items if not (isinstance(item, StreamedRow) and item.name == name)
    )


def with_row(items: Items, name: str, content: object) -> Items:
    return (*items_without(items, name), StreamedRow(name, json.dumps(content).encode()))


NO_SNAPSHOT = {
    "no items": lambda items: (),
    "no snapshot": lambda items: items_without(items, SNAPSHOT),
    "another format": lambda items: edited(items, SNAPSHOT, format=2),
    "no instants": lambda items: edited(items, SNAPSHOT, instants=[]),
    "instants of numbers": lambda items: edited(items, SNAPSHOT, instants=[[1, 2, 3, 4]]),
    "properties that are a text": lambda items: edited(items, SNAPSHOT, properties="x"),
    "a snapshot that is a number": lambda items: with_row(items, SNAPSHOT, 7),
    "a chunk that isn't there": lambda items: with_row(
        items, "p/a", [True, False, [[9999, 10, "a0"]], []]
    ),
    "a chunk that is too large": lambda items: with_row(
        items, "p/a", [True, False, [[1, 10**9, "a0"]], []]
    ),
    "a chunk that is no number": lambda items: with_row(
        items, "p/a", [True, False, [["zz", 10, "a0"]], []]
    ),
    "a partition that is no list": lambda items: with_row(items, "p/a", {}),
    "a malformed compaction": lambda items: with_row(items, "compaction", [{"x": 1}]),
    "a path where no partition can be": lambda items: (*items, StreamedRow("p/../x", b"")),
    "an absolute path": lambda items: with_row(items, "p//etc", [True, False, [], []]),
    "blobs that two rows name": lambda items: with_row(
        items,
        "p/x",
        next(json.loads(i.content) for i in items if getattr(i, "name", "") == "p/a"),
    ),
}


@pytest.mark.property
@pytest.mark.parametrize("kind", ["memory", "rocksdb", "sql"])
def test_a_record_that_makes_no_snapshot_is_refused_and_leaves_nothing(subtests, tmp_path, kind):
    for what, change in NO_SNAPSHOT.items():
        with subtests.test(what=what):
            table = small()
            recorded = loaded(table).state.recordable()
            assert recorded is not None
            items = tuple(record_items(TableView(table.storage).table_id, recorded))
            with view_in(kind, tmp_path / what, table) as view:
                with pytest.raises(BadAnswerError, match="can't be read"):
                    view.state.take(stream_of(change(items)), MOST)
                assert view.state.recorded() is None
                check(LocalView.newest(view), table.storage)


@pytest.mark.parametrize("error", [ServiceUnreachableError("lost"), StoreError("full")])
def test_an_error_within_the_stream_leaves_nothing(error):
    table = small()
    stream = sent(loaded(table))

    def torn() -> Iterator[bytes]:
        yield stream[: len(stream) // 2]
        raise error

    view = served(table.storage)
    with pytest.raises(type(error), match=str(error)):
        view.state.take(torn(), MOST)
    check(LocalView.newest(view), table.storage)


class TestViewFromARecord(ViewSuite):
    @contextmanager
    def serving(self, scenario: str, step: int, directory: Path) -> Iterator[Client]:
        one, two = (served(golden.GoldenStorage(scenario, step)) for _ in range(2))
        LocalView.newest(one).load_all_partitions()
        two.state.take([sent(one)], MOST)
        yield LocalClient(two)

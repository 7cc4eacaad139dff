"""Loads of more chunks than one transaction moves, by servers that share a store in SQLite."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.record.status import InStep
from fsview.store.sql.store import MOVED_AT_ONCE
from tests.conformance.shared_place import Faults
from tests.conformance.sharing_server import Server
from tests.fsview.store.sql.sqlite_place import SqlitePlace
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StoreError

PARTITIONS = [f"p{n}" for n in range(MOVED_AT_ONCE + 100)]
FEW = 10
"""Chunks that one transaction moves where a load is repeated often."""
KEPT = 2


def table_of(partitions: Sequence[str]) -> SmallTable:
    table = SmallTable(MemoryStorage())
    table.write(*((partition, "g") for partition in partitions))
    return table


class Between(Faults):
    """Makes a call after the first transaction that adds blobs."""

    call: Callable[[], object] | None = None
    is_adding = False

    @contextmanager
    def statement(self, sql: str, error: Exception) -> Iterator[None]:
        with super().statement(sql, error):
            yield
        call = self.call
        if call is not None and "INSERT INTO blob" in sql:
            self.is_adding = True
        elif call is not None and self.is_adding and sql == "COMMIT":
            self.call = None
            call()


def load_all(server: Server) -> None:
    LocalView.newest(server.view).load_all_partitions()


@pytest.mark.property
@pytest.mark.parametrize("at_once", [MOVED_AT_ONCE, 100])
def test_others_write_between_and_keep_what_no_row_names_yet(tmp_path: Path, at_once: int) -> None:
    """One is forestalled then, and records the load without moving its chunks again.

    Its rows are written in one transaction, or built in several.
    """
    table, between, place = table_of(PARTITIONS), Between(), SqlitePlace(tmp_path)
    with ExitStack() as stack:
        one = stack.enter_context(
            Server.opened(table, place, kept_steps=KEPT, faults=between, at_once=at_once)
        )
        one.view.sync()
        others: list[Server] = []

        def join_and_load() -> None:
            other = stack.enter_context(Server.opened(table, place, kept_steps=KEPT))
            other.view.sync()  # sweeps
            LocalView.newest(other.view).load_partitions(["p0", "absent"])
            others.append(other)

        between.call = join_and_load
        load_all(one)
        (other,) = others
        head = one.store.head()
        assert head.step == one.store.seen.step == 3
        assert one.metrics.get("adoptions") == 1
        assert one.view.state.record.status.rows == InStep()
        assert one.store.status()["blobs"] <= len(PARTITIONS) + 1
        for n in range(KEPT + 2):
            LocalView.newest(other.view).load_partitions([f"absent{n}"])
            table.write(("p1", "g"))
            other.view.sync()
        joined = stack.enter_context(Server.opened(table, place))
        for server in (joined, other, one):
            view = LocalView.synced(server.view)
            view.load_all_partitions()
            for partition in PARTITIONS:
                view.all_file_slices(partition)
            found = differences_from_rebuilt(view.snapshot, table.storage)
            assert not found, str(found)
            assert server.metrics.get("reloads") == 0


@pytest.mark.property
@pytest.mark.parametrize("is_done", [False, True])
def test_nothing_is_left_of_a_load_whose_server_dies(tmp_path: Path, *, is_done: bool) -> None:
    """Whatever statement it dies at; the next server has every partition, and no chunk twice."""
    partitions = PARTITIONS[: FEW + 5]
    table, nth, batches = table_of(partitions), 0, 0
    while True:
        directory, faults = tmp_path / "tried", Faults(is_done=is_done)
        place = SqlitePlace(directory)
        with ExitStack() as stack:
            dying = stack.enter_context(
                Server.opened(table, place, kept_steps=0, faults=faults, moved_at_once=FEW)
            )
            dying.view.sync()
            start = len(faults.statements)
            faults.at = start + nth
            with suppress(StoreError):
                load_all(dying)
            statements = faults.statements[start:]
            batches = sum("INSERT INTO blob" in sql for sql in statements)
            faults.is_away = True
            joined = stack.enter_context(
                Server.opened(table, place, kept_steps=0, moved_at_once=FEW)
            )
            joined.view.sync()
            load_all(joined)
            assert joined.store.status()["blobs"] == len(partitions)
            for partition in partitions:
                assert len(LocalView.newest(joined.view).all_file_slices(partition)) == 1
        shutil.rmtree(directory)
        if nth >= len(statements):
            break
        nth += 1
    assert batches == 3  # two of chunks, and the rows without any

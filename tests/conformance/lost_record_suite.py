"""Suite of servers whose shared store loses what it had: answers stay right.

Define the ``new_place`` fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from fsview.record.rows import PARTITION
from fsview.store.sql.upkeep import forget
from tests.conformance.shared_place import NewPlace, SharedPlace
from tests.conformance.sharing_server import Server
from tests.fsview.store.stored_views import PARTITIONS, small
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import BlobLostError, StoreError


class LostRecordSuite:
    """What servers answer when their store falls back, or has lost or damaged rows."""

    def test_the_database_falls_back_under_two_servers(self, new_place: NewPlace) -> None:
        table, place = small(MemoryStorage()), new_place()
        with Server.opened(table, place) as one, Server.opened(table, place) as other:
            one.check()
            place.save()
            table.write(("a", "new"))
            _check_after_falling_back(table, place, one, other)

    def test_the_table_is_gone_from_the_database(self, new_place: NewPlace) -> None:
        table, place = small(MemoryStorage()), new_place()
        place.open().close()
        place.save()
        with Server.opened(table, place) as one, Server.opened(table, place) as other:
            _check_after_falling_back(table, place, one, other)

    def test_a_row_that_is_lost_is_noticed(self, new_place: NewPlace) -> None:
        table, place = small(MemoryStorage()), new_place()
        with Server.opened(table, place) as one, Server.opened(table, place) as other:
            for server in (one, other):
                server.check()
            place.lose_row(PARTITION + "a")
            with Server.opened(table, place) as joined:
                joined.check()
                assert joined.metrics.get("reloads", cause="store-damaged") == 1
            for server in (one, other):
                server.check()
                assert server.metrics.get("reloads") == 0
            table.write(("a", "new"))
            one.check()
            place.lose_row(PARTITION + "a")
            # The rows that it adopts aren't those that were committed.
            other.check()
            assert other.metrics.get("reloads", cause="store-damaged") == 1

    @pytest.mark.parametrize("is_forgotten", [True, False])
    def test_a_head_that_is_lost_leaves_nothing_that_is_shown(
        self, new_place: NewPlace, *, is_forgotten: bool
    ) -> None:
        table, place = small(MemoryStorage()), new_place()
        with Server.opened(table, place, kept_steps=0) as one:
            one.check()
            table_id = one.view.table_id
            before = one.store.status()
            with one.database.writing(table_id) as session:
                session.add_garbage(1000, session.handles(garbage=False)[:1])
            assert place.count("garbage", table_id)
            place.lose_heads()
            if is_forgotten:
                assert forget(one.database, table_id) is not None
                assert [place.count(kind, table_id) for kind in ("row", "blob")] == [0, 0]
                assert one.store.status()["blobs"] == one.store.status()["bytes"] == 0
            table.write(("a", "new"))
            for _ in range(2):
                with suppress(StoreError):  # what only the database had
                    one.check()
            with Server.opened(table, place, kept_steps=0) as joined:
                joined.check()
                assert joined.metrics.get("reloads") == 0
                assert place.count("garbage", table_id) == 0 or not is_forgotten
                status = joined.store.status()
                assert status["blobs"] == place.count("blob", table_id)
                assert status["blobs"] <= before["blobs"] + len(PARTITIONS)

    @pytest.mark.parametrize(
        "change",
        [
            lambda stored: bytes(len(stored)),
            lambda stored: stored[:-9] + b"\xff" + stored[-8:],
            lambda stored: stored[:-20],
            lambda _: b"\xde\xad\xbe\xef",
            lambda _: b"",
        ],
    )
    def test_damaged_chunks_are_never_answered_from(
        self, new_place: NewPlace, change: Callable[[bytes], bytes]
    ) -> None:
        table, place = small(MemoryStorage()), new_place()
        table.write(*(("a", f"a{n}") for n in range(60)))
        with Server.opened(table, place) as server:
            server.check()
        place.replace_blobs(change)
        with Server.opened(table, place) as server:
            with pytest.raises(BlobLostError, match="damaged blob"):
                server.check()
            server.check()
            assert server.metrics.get("reloads", cause="store-damaged") == 1
        with Server.opened(table, place) as server:
            server.check()
            assert server.metrics.get("reloads", cause="store-damaged") == 0

    def test_the_table_is_forgotten(self, new_place: NewPlace) -> None:
        table, place = small(MemoryStorage()), new_place()
        with Server.opened(table, place) as one, Server.opened(table, place) as other:
            for server in (one, other):
                server.check()
            for n in range(3):
                assert forget(one.database, one.view.table_id) is not None
                table.write(("a", f"new{n}"))
                for server in (one, other, one):
                    for _ in range(2):  # what only the database had is loaded anew
                        with suppress(StoreError):
                            server.check()
                    server.check()
            table.write(("d", "more"))
            one.check()
            other.check()
            assert other.metrics.get("adopted_instants") > 0


def _check_after_falling_back(
    table: SmallTable, place: SharedPlace, one: Server, other: Server
) -> None:
    """Have the database fall back under two servers, and check what both answer as writes go on."""
    one.check()
    other.check()
    place.fall_back()
    for server in (one, other, one):
        table.write(("d", "more"))
        server.check()
    other.check()

"""Suite of servers that share a store: what one has read of a table, the others don't read.

Define the ``new_place`` fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fsview.local_view import LocalView
from fsview.record.status import InStep
from fsview.store.stores import KEPT_STEPS
from tests.conformance.shared_place import NewPlace
from tests.conformance.sharing_server import Server
from tests.fsview.store.stored_views import EVERYWHERE, PARTITIONS, check, small
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable

Join = Callable[..., Server]


class AdoptionSuite:
    """What servers that share a store read, and answer."""

    @pytest.fixture
    def table(self) -> SmallTable:
        return small(MemoryStorage())

    @pytest.fixture
    def join(self, table: SmallTable, new_place: NewPlace) -> Iterator[Join]:
        place = new_place()
        with ExitStack() as stack:

            def made(kept_steps: int = KEPT_STEPS) -> Server:
                return stack.enter_context(Server.opened(table, place, kept_steps=kept_steps))

            yield made

    def test_each_new_instant_is_read_by_one_server(self, table: SmallTable, join: Join) -> None:
        servers = [join() for _ in range(3)]
        for server in servers:
            server.check()
            server.calls()
        for n in range(30):
            table.write((PARTITIONS[n % 3], f"new{n}"))
            first, *others = servers[n % 3 :] + servers[: n % 3]
            first.view.sync()
            assert first.calls()["read sync"] >= 1
            for other in others:
                other.view.sync()
                assert set(other.calls()) == {"list sync"}
            for server in servers:
                server.check()
                server.calls()
        counted = [s.metrics.get("adopted_instants") for s in servers]
        assert counted == [20, 20, 20]
        assert [s.metrics.get("sync_instants") for s in servers] == [10, 10, 10]
        assert sum(s.metrics.get("reloads") for s in servers) == 0

    def test_a_timeline_that_moved_on_during_an_adoption_is_listed_again(
        self, table: SmallTable, join: Join
    ) -> None:
        """What came meanwhile is recorded for the others, too."""
        one, other = join(), join()
        one.check()
        other.check()
        table.write(("a", "new"))
        one.view.sync()
        table.write(("d", "new"))
        other.calls()
        other.view.sync()
        assert other.calls()["list sync"] == 2
        assert other.metrics.get("adopted_instants") == 1
        assert other.metrics.get("sync_instants") == 1
        assert other.view.state.record.status.rows == InStep()
        one.calls()
        one.check()
        assert one.metrics.get("adopted_instants") == 1
        assert "read sync" not in one.calls()

    def test_each_partition_is_listed_by_one_server(self, table: SmallTable, join: Join) -> None:
        servers = [join() for _ in range(3)]
        for server in servers:
            server.view.sync()
            server.calls()
        for partition, server in zip(PARTITIONS, servers, strict=True):
            LocalView.newest(server.view).load_partitions([partition])
            assert server.calls()["list lookup"] == 1
        for server in servers:
            LocalView.newest(server.view).load_partitions(PARTITIONS)
            assert server.calls() == {}
            server.check()

    def test_a_second_server_is_ready_without_a_listing(
        self, table: SmallTable, join: Join
    ) -> None:
        join().check()
        second = join()
        second.view.sync()
        calls = second.calls()
        assert sum(calls.values()) <= 3, calls
        LocalView.newest(second.view).load_all_partitions()
        assert second.calls() == {}
        second.check()

    def test_a_server_that_is_many_steps_behind_adopts_them_at_once(
        self, table: SmallTable, join: Join
    ) -> None:
        ahead, behind = join(), join()
        ahead.check()
        behind.check()
        for n in range(40):
            table.write((PARTITIONS[n % 3], f"new{n}"), ("d", "d0"))
            if n % 5 == 4:
                table.finish_clean(*table.begin_clean(table.to_clean()))
            ahead.view.sync()
        known = table.known()
        table.write(EVERYWHERE[0])
        ahead.view.sync()
        behind.calls()
        behind.view.sync()
        assert set(behind.calls()) == {"list sync"}
        assert behind.metrics.get("adoptions") == 1
        assert behind.view.held(*known) is not None
        behind.check()
        assert behind.metrics.get("reloads") == 0

    def test_a_journal_that_was_trimmed_is_made_up_for_by_the_rows(
        self, table: SmallTable, join: Join
    ) -> None:
        ahead, behind = join(3), join(3)
        behind.check()
        ahead.check()
        for n in range(5):
            table.write((PARTITIONS[n % 3], f"new{n}"))
            ahead.view.sync()
        behind.calls()
        behind.check()
        assert "list lookup" not in behind.calls()
        assert behind.metrics.get("adoptions") == 0
        table.write(EVERYWHERE[0])
        behind.check()
        ahead.check()
        assert ahead.metrics.get("adoptions") == 1

    def test_clients_of_an_earlier_instant_get_the_same_answers_at_each_server(
        self, table: SmallTable, join: Join
    ) -> None:
        servers = [join(), join()]
        for server in servers:
            server.check()
        pins = []
        for n in range(12):
            table.write(("a", f"new{n}"), ("d", "d1"))
            pins.append(table.known())
            servers[n % 2].view.sync()
        for server in servers:
            server.view.sync()
        for pin in pins:
            one, other = (LocalView.at(server.view, *pin) for server in servers)
            for partition in PARTITIONS:
                assert one.all_file_slices(partition) == other.all_file_slices(partition)
                assert one.latest_base_files(partition) == other.latest_base_files(partition)

    def test_a_sync_that_is_forestalled_reads_the_record_whole_once(
        self, table: SmallTable, join: Join
    ) -> None:
        ahead, behind = join(2), join(2)
        ahead.check()
        behind.check()
        for n in range(4):
            table.write(("a", f"new{n}"))
            ahead.view.sync()
        table.write(("a", "last"))
        forestalled: list[str] = []

        def forestall(kind: str, path: str) -> None:
            if kind == "read" and ".commit" in path and not forestalled:
                forestalled.append(path)
                table.write(("a", "more"))
                LocalView.newest(ahead.view).load_partitions(["absent"])

        behind.storage.fail.append(forestall)
        behind.check()
        assert len(forestalled) == 1
        causes = ("start", "behind")
        assert [behind.metrics.get("record_reads", cause=cause) for cause in causes] == [1, 1]
        ahead.check()
        behind.check()

    def test_a_partition_whose_name_is_no_utf_8(self, table: SmallTable, join: Join) -> None:
        """It is recorded while a commit is in flight, told, and read by a server that joins."""
        one, other = join(), join()
        other.view.sync()
        partition = b"caf\xe9".decode("utf-8", "surrogateescape")
        table.begin([("a", "x1")])
        time = table.pending[0].instant.requested_time
        files = {".hoodie_partition_metadata": b"commitTime=1\npartitionDepth=1\n"}
        files[f"x1_0-0-0_{time}.parquet"] = b"x"
        for name, content in files.items():
            table.storage.files[f"{partition}/{name}"] = (content, 0)
        one.view.sync()
        for server in (one, other, join()):
            server.view.sync()
            for _ in range(2):
                assert not list(LocalView.newest(server.view).latest_base_files(partition))
            assert partition in server.view.state.history.newest.files.versions

    def test_a_reload_of_one_server_is_read_whole_by_the_others(
        self, table: SmallTable, join: Join
    ) -> None:
        one, other = join(), join()
        one.check()
        other.check()
        one.view.reload("check")
        one.check()
        table.write(EVERYWHERE[0])
        other.check()
        one.check()
        assert other.metrics.get("reloads") == 0

    def test_a_load_goes_on_alone_where_another_has_loaded_the_table_anew(
        self, table: SmallTable, join: Join
    ) -> None:
        """Only a sync that finds a newer timeline gives up what its clients may be asking."""
        one, other = join(), join()
        one.view.sync()
        view = LocalView.synced(other.view)
        view.load_partitions(["a"])
        one.view.reload("check")
        one.check()
        view.load_partitions(["d"])
        check(view, table.storage)
        assert other.view.newest() is view.snapshot
        other.calls()
        table.write(EVERYWHERE[0])
        one.view.sync()
        other.check()
        assert "list lookup" not in other.calls()
        one.check()

    def test_what_rows_name_stays_though_one_server_has_something_else(
        self, table: SmallTable, join: Join
    ) -> None:
        """One was asked for a partition before it was made; another loads what is under way."""
        kept = 3
        one, other = join(kept), join(kept)
        LocalView.synced(one.view).load_partitions(["a", "new"])
        LocalView.synced(other.view).load_partitions(["b/c"])
        write = table.begin([("new", "n1")])
        other.view.sync()
        LocalView.newest(other.view).load_partitions(["new"])
        for n in range(2 * kept):
            table.write(("a", f"more{n}"))
            for server in (one, other):
                server.view.sync()
        table.complete(write)
        for server in (other, one):
            server.check()
            assert server.metrics.get("reloads") == 0

    @pytest.mark.property
    def test_blobs_of_all_servers_are_freed_in_the_end(self, table: SmallTable, join: Join) -> None:
        servers = [join(2), join(2)]
        for server in servers:
            server.check()
        blobs = []
        for n in range(60):
            table.write((PARTITIONS[n % 3], f"{PARTITIONS[n % 3][-1]}0"))
            if n % 4 == 3:
                table.finish_clean(*table.begin_clean(table.to_clean()))
            for server in servers[:: (-1) ** n]:
                server.check()
                for _ in range(9):
                    server.view.state.drop_oldest()
            blobs.append(servers[0].view.status()["store"]["blobs"])
        assert max(blobs[40:]) <= max(blobs[:40])

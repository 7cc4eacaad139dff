"""Servers that share a store in SQLite: what one has read of a table, the others don't read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.store.stores import KEPT_STEPS
from tests.fsview.store.sql.sharing_server import Server
from tests.fsview.store.stored_views import EVERYWHERE, PARTITIONS, check, small
from tests.kit.memory_storage import MemoryStorage
from tests.kit.patience import PATIENCE_S
from tests.kit.small_table import SmallTable

Join = Callable[..., Server]


@pytest.fixture
def table() -> SmallTable:
    return small(MemoryStorage())


@pytest.fixture
def join(table: SmallTable, tmp_path: Path) -> Iterator[Join]:
    with ExitStack() as stack:

        def made(kept_steps: int = KEPT_STEPS) -> Server:
            file = tmp_path / "views.db"
            return stack.enter_context(Server.opened(table, file, kept_steps=kept_steps))

        yield made


def test_each_new_instant_is_read_by_one_server(table: SmallTable, join: Join) -> None:
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


class Together:
    """Has one thread read only when all the others have to wait for it, once a round."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=PATIENCE_S)
        self.met: set[int] = set()

    def wait(self, _: object) -> None:
        self.before_call("read", "")

    def before_call(self, kind: str, path: str) -> None:
        if kind == "read" and threading.get_ident() not in self.met:
            self.met.add(threading.get_ident())
            self.barrier.wait()


def test_servers_asked_at_one_moment_read_an_instant_once(
    table: SmallTable, tmp_path: Path
) -> None:
    count, rounds = 4, 3
    with ExitStack() as stack:
        together = Together(count)
        servers = [
            stack.enter_context(
                Server.opened(table, tmp_path / "views.db", turn_s=PATIENCE_S, wait=together.wait)
            )
            for _ in range(count)
        ]
        for server in servers:
            server.check()
            server.calls()
        for n in range(rounds):
            table.write(("a", f"new{n}"), ("d", "d0"))
            together.met.clear()
            for server in servers:
                server.storage.fail[:] = [together.before_call]
            threads = [threading.Thread(target=server.view.sync) for server in servers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(server.calls().get("read sync", 0) for server in servers) == 1
            for server in servers:
                server.storage.fail.clear()
                server.check()
                server.calls()
        assert sum(s.metrics.get("sync_instants") for s in servers) == rounds
        assert sum(s.metrics.get("adopted_instants") for s in servers) == rounds * (count - 1)
        assert sum(s.metrics.get("reloads") for s in servers) == 0


def test_a_timeline_that_moved_on_during_an_adoption_is_listed_again(
    table: SmallTable, join: Join
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
    assert not other.store.is_ahead
    one.calls()
    one.check()
    assert one.metrics.get("adopted_instants") == 1
    assert "read sync" not in one.calls()


def test_each_partition_is_listed_by_one_server(table: SmallTable, join: Join) -> None:
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


def test_a_second_server_is_ready_without_a_listing(table: SmallTable, join: Join) -> None:
    join().check()
    second = join()
    second.view.sync()
    calls = second.calls()
    assert sum(calls.values()) <= 3, calls
    LocalView.newest(second.view).load_all_partitions()
    assert second.calls() == {}
    second.check()


def test_a_server_that_is_many_steps_behind_adopts_them_at_once(
    table: SmallTable, join: Join
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
    table: SmallTable, join: Join
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
    table: SmallTable, join: Join
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


def test_a_reload_of_one_server_is_read_whole_by_the_others(table: SmallTable, join: Join) -> None:
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
    table: SmallTable, join: Join
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


def test_blobs_of_all_servers_are_freed_in_the_end(table: SmallTable, join: Join) -> None:
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

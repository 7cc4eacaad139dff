"""Snapshots for clients that are behind: found in one step, by hashes made at publication."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsview.table_view import TableView
from tests.kit.servers.stores import Restarted
from tests.kit.tables.small_table import SmallTable

FEW, MANY = 40, 160
CALLS = 60
"""So many calls of Python finding a snapshot may take; hashing one timeline takes more."""


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    """Count the functions of Python that are entered meanwhile."""
    counted = [0]

    def count(_frame: object, event: str, _argument: object) -> None:
        counted[0] += event == "call"

    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(None)


def commit(table: SmallTable) -> tuple[str, str]:
    """Commit once; return the last instant and hash of a client that has seen just that."""
    table.write(("a", "f1-0"))
    return table.known()


def one_sync(table: SmallTable, _: Path, commits: int) -> tuple[TableView, tuple[str, str]]:
    """A view that syncs once after many commits."""
    view = TableView(table.storage)
    view.newest()
    clients = [commit(table) for _ in range(commits)]
    view.sync()
    return view, clients[commits // 2]


def many_syncs(table: SmallTable, _: Path, commits: int) -> tuple[TableView, tuple[str, str]]:
    """A view that syncs after each commit."""
    view = TableView(table.storage)
    view.newest()
    clients = []
    for _ in range(commits):
        clients.append(commit(table))
        view.sync()
    return view, clients[commits // 2]


def resumed(table: SmallTable, directory: Path, commits: int) -> tuple[TableView, tuple[str, str]]:
    """A view that resumes from the state that another one saved."""
    clients = [commit(table) for _ in range(commits)]
    service = Restarted("rocksdb", directory, table.storage)
    service.view.newest()
    clients.append(commit(table))
    service.restart()
    service.view.newest()
    return service.view, clients[-2]


def reached(table: SmallTable, _: Path, commits: int) -> tuple[TableView, tuple[str, str]]:
    """A view that never published the client's timeline."""
    clients = [commit(table) for _ in range(commits)]
    view = TableView(table.storage)
    view.newest()
    view.at(*clients[-3])
    return view, clients[-3]


@pytest.mark.property
@pytest.mark.parametrize("ways", [one_sync, many_syncs, resumed, reached])
def test_a_client_finds_its_snapshot_without_any_hash_being_made(
    ways: Callable[[SmallTable, Path, int], tuple[TableView, tuple[str, str]]], tmp_path: Path
) -> None:
    """The event loop looks snapshots up; publishing computes their hashes (#12)."""
    for commits in (FEW, MANY):
        table = SmallTable()
        commit(table)
        view, client = ways(table, tmp_path / str(commits), commits)
        with calls_counted() as counted:
            found = view.held(*client)
        assert found is not None
        assert client[1] in found.hashes
        assert counted[0] < CALLS
        view.close()

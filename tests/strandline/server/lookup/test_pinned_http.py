"""A client that stays at its instant for a hundred commits costs the service neither syncs nor
listings; each of its requests makes Java's server sync and list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from executor_proxy.failover import ServiceClient
from executor_proxy.http import HttpSession
from executor_proxy.remote_view import RemoteView
from executor_proxy.worker_state import this_worker
from strandline.server.http.server import ServiceServer
from tests.kit.servers.live_service import TOKEN, serving
from tests.kit.tables.small_table import SmallTable

PARTITIONS: Final = [f"p={number:04d}" for number in range(400)]
COMMITS: Final = 100
NOW: Final = "99991231235959999"
TOUCHED: Final = 4
"""Partitions that a commit writes to; each commit to others, until all have been written to."""


class Pinned:
    """A table of many partitions, a service that holds it, and a client from before."""

    def __init__(self, server: ServiceServer, table: SmallTable) -> None:
        self.session = HttpSession(server.url, TOKEN)
        self.table = table
        self.client = self.newest()
        self.client.load_all_partitions()
        self.then = table.model.read_at(NOW)

    def newest(self) -> RemoteView:
        """Return the view of a client that reads the timeline now."""
        service = ServiceClient((self.session,), this_worker().circuit, "/t")
        return RemoteView(service, self.table.storage.base_path, *self.table.known())

    def commit(self, number: int) -> None:
        """Write to some partitions."""
        first = number * TOUCHED % len(PARTITIONS)
        self.table.write(*((p, f"{p}-0") for p in PARTITIONS[first : first + TOUCHED]))

    def costs(self) -> dict[str, int]:
        """Return all that the table has cost so far: calls by kind and cause, and counters."""
        told: Any = json.loads(self.session.get("/v1/strandline/status", {}))
        (table,) = told["tables"].values()
        counted = {f"{c['kind']} for {c['cause']}": c["count"] for c in table["storage_calls"]}
        kinds = {"list", "stat", "read", "create", "replace", "delete"}
        assert {name.split()[0] for name in counted} <= kinds
        of_requests = {k: n for k, n in table["counters"].items() if not k.startswith("requests")}
        return counted | of_requests

    def read_everything(self) -> set[str]:
        """Return the paths of the files that the client is shown, partition by partition."""
        found = set()
        for partition in PARTITIONS:
            found |= {f"{partition}/{f.name}" for f in self.client.latest_base_files(partition)}
        for partition in PARTITIONS[::10]:
            for read in self.client.latest_file_slices(partition):
                assert read.base_file is not None
                assert f"{partition}/{read.base_file.name}" in found
        return found


@pytest.fixture
def pinned() -> Iterator[Pinned]:
    table = SmallTable()
    table.write(*((partition, f"{partition}-0") for partition in PARTITIONS))
    base = table.storage.base_path
    with serving(base, opener=lambda _path, _options: table.storage) as server:
        yield Pinned(server, table)


def every_commit_is_seen(pinned: Pinned) -> None:
    for number in range(COMMITS):
        pinned.commit(number)
        pinned.newest().latest_base_files(PARTITIONS[number])


def only_the_last_commit_is_seen(pinned: Pinned) -> None:
    for number in range(COMMITS):
        pinned.commit(number)
    pinned.newest().latest_base_files(PARTITIONS[0])


def no_commit_is_seen(pinned: Pinned) -> None:
    for number in range(COMMITS):
        pinned.commit(number)


@pytest.mark.property
@pytest.mark.parametrize(
    "others", [every_commit_is_seen, only_the_last_commit_is_seen, no_commit_is_seen]
)
def test_a_client_from_before_a_hundred_commits_costs_nothing(
    pinned: Pinned, others: Callable[[Pinned], None]
) -> None:
    others(pinned)
    before = pinned.costs()
    assert pinned.read_everything() == pinned.then
    assert pinned.costs() == before
    newest = pinned.table.model.read_at(NOW)
    assert not newest & pinned.then  # every partition has been written to since
    shown = pinned.newest().all_latest_base_files_before_or_on(NOW)
    assert {f"{partition}/{f.name}" for partition in shown for f in shown[partition]} == newest

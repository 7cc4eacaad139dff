"""Whole tables read from their commits' metadata: the same files as a listing, or none at all."""

from __future__ import annotations

from functools import cache

import pytest

from fsview.bootstrap import Loaded, hindrance, is_archived, read_table
from fsview.build import base_extensions, discover_partitions, snapshot_of
from fsview.packed import PartitionVersion
from fsview.table_view import TableView
from tests.conformance.view_suite import replay, servers, told
from tests.fsview.subject import LocalClient
from tests.kit import golden
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage

READ_IN_PART = {
    "archival_cow_v6": 5,
    "archival_cow_v9": 5,
    "archival_mor_v9": 4,
    "rollback_cow_v6": 2,
    "rollback_cow_v9": 2,
    "rollback_mor_v9": 2,
    "savepoint_cow_v6": 5,
    "savepoint_cow_v9": 5,
}
"""Golden tables of which only the first steps can be read: then something was archived, or a write
failed, or one was restored away."""


def sizes(version: PartitionVersion) -> dict[str, int]:
    """Return name → size of every file."""
    return {file.name: file.size for file in version.files()}


def read(storage: Storage) -> Loaded | None:
    """Read a table's metadata if that is sound."""
    client = TableMetaClient.open(storage)
    snapshot = snapshot_of(client)
    if hindrance(snapshot) is not None or is_archived(client):
        return None
    return read_table(client, snapshot)


def listed(storage: Storage) -> dict[str, dict[str, int]]:
    """Return partition → name → size of every data file, as they lie there."""
    extensions = base_extensions(TableMetaClient.open(storage).config)
    return {
        partition: sizes(PartitionVersion.of_listing(partition, listing, extensions))
        for partition, listing in discover_partitions(storage)
    }


@cache
def readable_steps(scenario: str) -> tuple[int, ...]:
    """Return the steps at which a golden table may be read."""
    return tuple(
        step
        for step in golden.steps(scenario)
        if read(golden.GoldenStorage(scenario, step)) is not None
    )


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_golden_tables_are_read_until_something_is_missing(scenario: str) -> None:
    steps = golden.steps(scenario)
    if "_mor_v6" in scenario:  # its logs don't say who wrote them
        assert readable_steps(scenario) == ()
    else:
        assert readable_steps(scenario) == steps[: READ_IN_PART.get(scenario, len(steps))]


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_metadata_says_what_a_listing_says(scenario: str) -> None:
    for step in readable_steps(scenario):
        storage = golden.GoldenStorage(scenario, step)
        loaded = read(storage)
        assert loaded is not None
        there = listed(storage)
        assert {p: sizes(version) for p, version in loaded.versions.items()} == there
        assert loaded.known == there.keys()


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_tables_read_from_metadata_answer_as_recorded(scenario: str) -> None:
    (server,) = servers(scenario)
    recorded = golden.recorded_steps(scenario, server)
    for step in set(readable_steps(scenario)).intersection(recorded):
        storage = golden.GoldenStorage(scenario, step)
        table = TableView(storage)
        loaded = read(storage)
        assert loaded is not None
        files = table.newest().snapshot.files
        files.versions.update(loaded.versions)
        files.known = loaded.known
        client = LocalClient(table)
        recording = golden.recording(scenario, step, server, base=client.base_path)
        found = replay(client, recording, f"{scenario}/{step:02d}", times=False)
        assert not found, told(found)
        assert set(storage.calls.snapshot()) & {("list", "lookup")} == set()

"""Damaged, lost or randomly changed metadata tables never give a wrong answer."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsview.load.metadata_table import FILES, FOLDER, NotInStepError, newest_slice
from fsview.sync.metadata_reader import snapshot_of
from tests.fsview.load.metadata_table import BEGINNING, GROUP, MetadataTable
from tests.fsview.load.metadata_tables import (
    VERSIONS,
    commit,
    files_of,
    half_compacted,
    kept,
    read,
    refused,
)
from tests.fsview.load.wide_table import cleaned, listed
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.errors import CorruptMetadataError, PathNotFoundError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage


@cache
def golden_files(scenario: str) -> tuple[str, ...]:
    """Return the paths of the files read at the last step."""
    client = TableMetaClient.open(last_step(scenario))
    snapshot = snapshot_of(client)
    found = newest_slice(client, snapshot)
    return tuple(f"{FOLDER}/{FILES}/{file.name}" for file in (found.base, *found.logs))


def last_step(scenario: str) -> golden.GoldenStorage:
    return golden.GoldenStorage(scenario, golden.steps(scenario)[-1])


@pytest.mark.parametrize("scenario", ["mdt_mor_v6", "mdt_mor_v9"])
@given(data=st.data())
@settings(max_examples=60)
def test_damage_is_found_or_harmless(scenario: str, data: st.DataObject) -> None:
    storage = last_step(scenario)
    path = data.draw(st.sampled_from(golden_files(scenario)))
    file = bytearray(storage.read(path))
    if data.draw(st.booleans(), label="cut"):
        del file[data.draw(st.integers(0, len(file) - 1)) :]
    else:
        file[data.draw(st.integers(0, len(file) - 1))] ^= data.draw(st.integers(1, 255))
    storage._contents[path] = bytes(file)
    assert files_or_error(storage) in ("refused", listed(storage))


def files_or_error(storage: Storage) -> object:
    """Return what is read, or that nothing is."""
    try:
        return files_of(read(storage))
    except (NotInStepError, CorruptMetadataError):
        return "refused"


@pytest.mark.parametrize("scenario", ["mdt_mor_v6", "mdt_mor_v9"])
def test_a_file_that_is_gone_is_an_error(scenario: str) -> None:
    for path in golden_files(scenario):
        storage = last_step(scenario)
        del storage._contents[path]
        with pytest.raises(PathNotFoundError, match=GROUP):
            read(storage)


# All of it, in any order.


EVENTS = ("commit", "replace", "clean", "compact", "half", "archive", "archive there")


@VERSIONS
@given(events=st.lists(st.sampled_from(EVENTS), max_size=12), told=st.booleans())
@settings(max_examples=40)
def test_a_metadata_table_is_used_if_it_has_every_instant(
    version: int, events: list[str], told: bool
) -> None:
    table, metadata = kept(version)
    for event in events:
        happen(table, metadata, event)
    if told:
        assert files_of(read(table.storage)) == listed(table.storage)
        return
    commit(table)
    refused(table, "behind")


def happen(table: SmallTable, metadata: MetadataTable, event: str) -> None:
    """Let something happen to a table whose metadata table is kept, or to that."""
    if event == "commit":
        commit(table)
    elif event == "replace":
        table.complete(table.begin([("d", f"g{len(metadata.told)}-0")], [("a", "f1-0")]))
    elif event == "clean" and table.to_clean():
        cleaned(table)
    elif event == "compact" and metadata.pending:
        metadata.finish_compaction()
    elif event == "compact" and metadata.logs:
        metadata.compact()
    elif event == "half" and metadata.logs and not metadata.pending:
        half_compacted(table, metadata)
    elif event == "archive":
        archive_oldest(table, metadata)
    elif event == "archive there" and metadata.merged != BEGINNING:
        archive_merged(table, metadata)
    metadata.follow()


def archive_oldest(table: SmallTable, metadata: MetadataTable) -> None:
    """Archive the oldest write, if the metadata table has merged it."""
    first = table.meta.active_timeline()[0].requested_time
    if first < metadata.merged != BEGINNING and len(table.meta.active_timeline()) > 3:
        for path in [p for p in table.storage.files if f"/{first}" in p and FOLDER not in p]:
            del table.storage.files[path]


def archive_merged(table: SmallTable, metadata: MetadataTable) -> None:
    """Archive the instants of the metadata table's own timeline that it has merged."""
    folder = f"{FOLDER}/{metadata.layout.folder}/"
    for time in (BEGINNING, *metadata.told):
        if time < metadata.merged and time != max(metadata.told):
            for path in [p for p in table.storage.files if p.startswith(f"{folder}{time}")]:
                del table.storage.files[path]

"""Whole tables read from their metadata table: the same files as a listing, or none at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsview import metadata_table
from fsview.bootstrap import Loaded, uncertainty
from fsview.build import snapshot_of
from fsview.files_slice import FILES, FOLDER, NotInStepError, look
from fsview.from_commits import to_read
from fsview.snapshot import Snapshot
from fsview.table_view import TableView
from tests.conformance.view_suite import replay, servers, told
from tests.fsview.subject import LocalClient
from tests.kit import golden
from tests.kit.metadata_table import (
    BEGINNING,
    GROUP,
    MetadataTable,
    avro_block,
    delete_block,
    said,
)
from tests.kit.view_model import ModelTable
from tests.kit.wide_table import cleaned, delete_partition, listed, sizes, small_table
from timeline.errors import CorruptMetadataError, PathNotFoundError
from timeline.instant import (
    COMMIT,
    COMPACTION,
    DELTA_COMMIT,
    LOG_COMPACTION,
    ROLLBACK,
    Instant,
    State,
)
from timeline.log_blocks import AVRO_DATA, COMMAND, DELETE, HFILE_DATA
from timeline.meta_client import TableMetaClient
from timeline.metadata_records import ALL_PARTITIONS, Files
from timeline.storage.base import Storage

STEPS = [
    (scenario, step)
    for scenario in golden.scenarios()
    if golden.info(scenario).get("metadata_table")
    for step in golden.steps(scenario)
]
VERSIONS = pytest.mark.parametrize("version", [6, 9])


def read(storage: Storage, snapshot: Snapshot | None = None) -> Loaded:
    """Read a table's metadata table, as of now or of a snapshot.

    Raises:
        NotInStepError: It doesn't say what a listing says.
    """
    client = TableMetaClient.open(storage)
    snapshot = snapshot or snapshot_of(client)
    assert uncertainty(snapshot) is None
    done = to_read(snapshot.active)
    return Loaded(*metadata_table.read(client, snapshot, done, look(client, snapshot, done)))


def files_of(loaded: Loaded) -> dict[str, dict[str, int]]:
    """Return partition → name → size."""
    assert loaded.known == loaded.versions.keys()
    return {partition: sizes(version) for partition, version in loaded.versions.items()}


def refused(table: ModelTable, reason: str, snapshot: Snapshot | None = None) -> None:
    with pytest.raises(NotInStepError) as error:
        read(table.storage, snapshot)
    assert error.value.reason == reason


def kept(version: int = 9) -> tuple[ModelTable, MetadataTable]:
    """Return a table with a metadata table that was told of two commits."""
    table = small_table(version)
    metadata = MetadataTable(table)
    for _ in range(2):
        table.complete(table.begin([("a", "f1-0"), ("c", "f3-0")]))
        metadata.follow()
    return table, metadata


def commit(table: ModelTable) -> None:
    table.complete(table.begin([("a", "f1-0"), ("b", "f2-0")]))


# Real tables.


def test_there_are_golden_tables_with_metadata_tables() -> None:
    assert {scenario for scenario, _ in STEPS} >= {"mdt_mor_v6", "mdt_mor_v9"}


@pytest.mark.parametrize(("scenario", "step"), STEPS)
def test_the_metadata_table_says_what_a_listing_says(scenario: str, step: int) -> None:
    storage = golden.GoldenStorage(scenario, step)
    assert files_of(read(storage)) == listed(storage)


@pytest.mark.parametrize("scenario", sorted({scenario for scenario, _ in STEPS}))
def test_tables_read_from_it_answer_as_recorded(scenario: str) -> None:
    (server,) = servers(scenario)
    for step in golden.recorded_steps(scenario, server):
        storage = golden.GoldenStorage(scenario, step)
        table = TableView(storage)
        loaded = read(storage)
        files = table.newest().snapshot.files
        files.versions.update(loaded.versions)
        files.known = loaded.known
        client = LocalClient(table)
        recording = golden.recording(scenario, step, server, base=client.base_path)
        found = replay(client, recording, f"{scenario}/{step:02d}", times=False)
        assert not found, told(found)
        assert ("list", "lookup") not in storage.calls.snapshot()


# What a metadata table may have gone through.


def dropped(table: ModelTable, metadata: MetadataTable) -> None:
    table.complete(table.begin([], [("c", "f3-0")]))
    gone = [path for path in table.storage.files if path.startswith("c/")]
    names = {path.rpartition("/")[2] for path in gone if path.endswith(".parquet")}
    for path in gone:
        del table.storage.files[path]
    delete_partition(table, "c", tuple(names))
    metadata.follow()


def compacted(table: ModelTable, metadata: MetadataTable) -> None:
    metadata.compact()
    commit(table)
    metadata.follow()


def half_compacted(table: ModelTable, metadata: MetadataTable) -> None:
    """A compaction has written its base file and isn't completed; logs already belong to it."""
    time = metadata.compact(complete=False)
    metadata.put_instant(Instant(time, COMPACTION, State.INFLIGHT))
    commit(table)
    metadata.follow()


def archived_there(table: ModelTable, metadata: MetadataTable) -> None:
    """What was merged is archived, the beginning and the compaction too."""
    for _ in range(2):
        metadata.compact()
        commit(table)
        metadata.follow()
    folder = f"{FOLDER}/{metadata.layout.folder}/"
    last = max(metadata.told)
    for path in [path for path in table.storage.files if path.startswith(folder)]:
        if last not in path:
            del table.storage.files[path]


def archived_here(table: ModelTable, metadata: MetadataTable) -> None:
    compacted(table, metadata)
    first = table.meta.active_timeline()[0].requested_time
    for path in [path for path in table.storage.files if f"/{first}" in path]:
        if not path.startswith(FOLDER):
            del table.storage.files[path]


def failed_there(table: ModelTable, metadata: MetadataTable) -> None:
    """A write was told there and never completed here; one hasn't completed even there."""
    files = [("a", {"nobody's_0-1-1_20990101000000000.parquet": 7})]
    metadata.add(table.tick(), files)
    metadata.add(table.tick(), files, complete=False)


def avro_logged(table: ModelTable, metadata: MetadataTable) -> None:
    commit(table)
    instant = table.meta.active_timeline().completed()[-1]
    time = instant.requested_time
    metadata.write_log(time, AVRO_DATA, avro_block(metadata.records_of(instant)))
    metadata.complete(time)


def deleted_and_written_again(table: ModelTable, metadata: MetadataTable) -> None:
    """A delete block takes a whole record away, whatever was in the base file and before it."""
    commit(table)
    instant = table.meta.active_timeline().completed()[-1]
    time = instant.requested_time
    metadata.write_log(time, DELETE, delete_block(["a"]))
    metadata.write_log(time, HFILE_DATA, metadata_records({"a": listed(table.storage)["a"]}))
    metadata.add(time, [r for r in metadata.records_of(instant) if r[0] != "a"])


def metadata_records(files: dict[str, Files]) -> bytes:
    return MetadataTable.content(files.items())


def appended(table: ModelTable, metadata: MetadataTable) -> None:
    """Of a file that is said twice the greater size counts, whichever comes last."""
    commit(table)
    instant = table.meta.active_timeline().completed()[-1]
    time, records = instant.requested_time, metadata.records_of(instant)
    smaller = [
        (key, {name: size and size - 1 for name, size in files.items() if key != ALL_PARTITIONS})
        for key, files in records
    ]
    metadata.write_log(time, HFILE_DATA, MetadataTable.content(records))
    metadata.add(time, [(key, {n: s or None for n, s in f.items()}) for key, f in smaller if f])


@VERSIONS
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda table, metadata: None, id="nothing else"),
        pytest.param(lambda table, metadata: (cleaned(table), metadata.follow()), id="cleaned"),
        pytest.param(
            lambda table, metadata: table.meta.create_requested(COMMIT, table.tick()),
            id="a write is requested",
        ),
        dropped,
        compacted,
        half_compacted,
        archived_there,
        archived_here,
        failed_there,
        avro_logged,
        deleted_and_written_again,
    ],
)
def test_a_metadata_table_in_step_says_what_a_listing_says(
    version: int, change: Callable[[ModelTable, MetadataTable], object]
) -> None:
    table, metadata = kept(version)
    change(table, metadata)
    assert files_of(read(table.storage)) == listed(table.storage)

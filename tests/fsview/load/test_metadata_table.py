"""A metadata table in step with its table says what a listing says; one out of step is not used."""

from __future__ import annotations

import pytest

from fsview.load.metadata_table import FOLDER
from fsview.sync.metadata_reader import snapshot_of
from tests.fsview.load.metadata_table import (
    BEGINNING,
    MetadataTable,
    avro_block,
    delete_block,
    hfile_content,
)
from tests.fsview.load.metadata_tables import (
    VERSIONS,
    commit,
    files_of,
    half_compacted,
    kept,
    read,
    refused,
)
from tests.fsview.load.wide_table import cleaned, delete_partition, listed, small_table
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.encoding.log_block import AVRO_DATA, COMMAND, DELETE, HFILE_DATA
from timeline.instant import (
    COMMIT,
    DELTA_COMMIT,
    INDEXING,
    LOG_COMPACTION,
    ROLLBACK,
    Instant,
    State,
)
from timeline.metadata.files_record import Files
from timeline.metadata.instant_metadata import IndexCommitMetadata

STEPS = [
    (scenario, step)
    for scenario in golden.scenarios()
    if golden.info(scenario).get("metadata_table")
    for step in golden.steps(scenario)
]
MORE_STEPS = [
    (f"metadata_tables/{path.stem}", step)
    for path in sorted((golden.FOLDER / "metadata_tables").glob("*.zip"))
    for step in golden.steps(f"metadata_tables/{path.stem}")
]
"""Of other releases, versions and forms; without recordings."""


def test_there_are_golden_tables_with_metadata_tables() -> None:
    assert {scenario for scenario, _ in STEPS} >= {"mdt_mor_v6", "mdt_mor_v9"}
    assert {scenario.rpartition("/")[2] for scenario, _ in MORE_STEPS} == {
        "cow_v6_h0150",
        "mor_v6_h0150",
        "mor_v8",
        "nonpart_cow_v9",
    }


@pytest.mark.parametrize(("scenario", "step"), STEPS + MORE_STEPS)
def test_the_metadata_table_says_what_a_listing_says(scenario: str, step: int) -> None:
    storage = golden.GoldenStorage(scenario, step)
    assert files_of(read(storage)) == listed(storage)


# What a metadata table may have gone through.


def dropped(table: SmallTable, metadata: MetadataTable) -> None:
    table.complete(table.begin([], [("c", "f3-0")]))
    gone = [path for path in table.storage.files if path.startswith("c/")]
    names = {path.rpartition("/")[2] for path in gone if path.endswith(".parquet")}
    for path in gone:
        del table.storage.files[path]
    delete_partition(table, "c", tuple(names))
    metadata.follow()


def compacted(table: SmallTable, metadata: MetadataTable) -> None:
    metadata.compact()
    commit(table)
    metadata.follow()


def indexed(table: SmallTable, metadata: MetadataTable) -> None:
    """An index was built: an instant of both timelines that touches no file of the table."""
    time = table.tick()
    running = table.meta.transition_to_inflight(table.meta.create_requested(INDEXING, time))
    metadata.complete(time)
    table.meta.complete(running, IndexCommitMetadata(), table.tick())
    compacted(table, metadata)


def archived_there(table: SmallTable, metadata: MetadataTable) -> None:
    """All that was merged is archived, including the first commit and the compaction."""
    for _ in range(2):
        metadata.compact()
        commit(table)
        metadata.follow()
    folder = f"{FOLDER}/{metadata.layout.folder}/"
    last = max(metadata.told)
    for path in [path for path in table.storage.files if path.startswith(folder)]:
        if last not in path:
            del table.storage.files[path]


def archived_here(table: SmallTable, metadata: MetadataTable) -> None:
    compacted(table, metadata)
    first = table.meta.active_timeline()[0].requested_time
    for path in [path for path in table.storage.files if f"/{first}" in path]:
        if not path.startswith(FOLDER):
            del table.storage.files[path]


def failed_there(table: SmallTable, metadata: MetadataTable) -> None:
    """One write has completed there and not here; another hasn't completed even there."""
    files = [("a", {"nobody's_0-1-1_20990101000000000.parquet": 7})]
    metadata.add(table.tick(), files)
    metadata.add(table.tick(), files, complete=False)


def newest(table: SmallTable, metadata: MetadataTable) -> tuple[str, list[tuple[str, Files]]]:
    """Return time and records of the newest completed instant."""
    instant = table.meta.active_timeline().completed()[-1]
    return instant.requested_time, metadata.records_of(instant)


def avro_logged(table: SmallTable, metadata: MetadataTable) -> None:
    commit(table)
    time, records = newest(table, metadata)
    metadata.write_log(time, AVRO_DATA, avro_block(records))
    metadata.complete(time)


def deleted_and_written_again(table: SmallTable, metadata: MetadataTable) -> None:
    """A delete block takes a whole record away, whatever was in the base file and before it."""
    commit(table)
    time, records = newest(table, metadata)
    metadata.write_log(time, DELETE, delete_block(["a"]))
    metadata.write_log(time, HFILE_DATA, hfile_content([("a", listed(table.storage)["a"])]))
    metadata.add(time, [record for record in records if record[0] != "a"])


def appended(table: SmallTable, metadata: MetadataTable) -> None:
    """If a file is recorded twice, the greater size counts, whichever comes last."""
    commit(table)
    time, records = newest(table, metadata)
    smaller = {name: 1 for name, size in dict(records)["a"].items() if size is not None}
    metadata.write_log(time, HFILE_DATA, hfile_content(records))
    metadata.add(time, [("a", smaller)])


IN_STEP = {
    "nothing else": lambda table, metadata: None,
    "cleaned": lambda table, metadata: (cleaned(table), metadata.follow()),
    "a write is requested": lambda table, metadata: table.meta.create_requested(
        COMMIT, table.tick()
    ),
    "dropped": dropped,
    "compacted": compacted,
    "indexed": indexed,
    "half compacted": half_compacted,
    "archived there": archived_there,
    "archived here": archived_here,
    "failed there": failed_there,
    "logged in Avro": avro_logged,
    "deleted and written again": deleted_and_written_again,
    "appended": appended,
}


@VERSIONS
def test_a_metadata_table_in_step_says_what_a_listing_says(
    subtests: pytest.Subtests, version: int
) -> None:
    for what, change in IN_STEP.items():
        with subtests.test(what=what):
            table, metadata = kept(version)
            change(table, metadata)
            assert files_of(read(table.storage)) == listed(table.storage)


@pytest.mark.parametrize("again", [True, False])
def test_a_command_voids_what_came_before_it(again: bool) -> None:
    """In version 6 an instant that is written again has a block that doesn't count."""
    table, metadata = kept(6)
    commit(table)
    time, records = newest(table, metadata)
    metadata.add(time, [("a", {"nobody's_0-1-1_20990101000000000.parquet": 7})])
    metadata.roll_back(time)
    if again:
        metadata.write_log(time, HFILE_DATA, hfile_content(records))
        assert files_of(read(table.storage)) == listed(table.storage)
    else:
        refused(table, "behind")


# Out of step.


def not_told_last(table: SmallTable, metadata: MetadataTable) -> None:
    commit(table)


def not_told_between(table: SmallTable, metadata: MetadataTable) -> None:
    commit(table)
    time, _ = newest(table, metadata)
    metadata.told[time] = []
    commit(table)
    metadata.follow()


def told_in_part(table: SmallTable, metadata: MetadataTable) -> None:
    """The instant is there, its log isn't."""
    (path,) = [path for path in metadata.files() if path.endswith("_0-1-3")]
    del table.storage.files[path]


def not_completed_there(table: SmallTable, metadata: MetadataTable) -> None:
    commit(table)
    time, records = newest(table, metadata)
    metadata.add(time, records, complete=False)
    metadata.put_instant(Instant(time, DELTA_COMMIT, State.INFLIGHT))


def cleaned_unsaid(table: SmallTable, metadata: MetadataTable) -> None:
    cleaned(table)


def no_base(table: SmallTable, metadata: MetadataTable) -> None:
    del table.storage.files[next(path for path in metadata.files() if path.endswith(".hfile"))]


def no_timeline(table: SmallTable, metadata: MetadataTable) -> None:
    folder = f"{FOLDER}/{metadata.layout.folder}/"
    for path in [path for path in table.storage.files if path.startswith(folder)]:
        del table.storage.files[path]


def not_there(table: SmallTable, metadata: MetadataTable) -> None:
    table.storage.delete_tree(FOLDER)


def undone_there(table: SmallTable, metadata: MetadataTable) -> None:
    metadata.put_instant(Instant(table.tick(), ROLLBACK, State.INFLIGHT))


def logs_compacted(table: SmallTable, metadata: MetadataTable) -> None:
    metadata.put_instant(Instant(table.tick(), LOG_COMPACTION, State.REQUESTED))


def other_group(table: SmallTable, metadata: MetadataTable) -> None:
    metadata.put(f"files-0001-0_0-1-1_{BEGINNING}.hfile", b"")


def other_command(table: SmallTable, metadata: MetadataTable) -> None:
    time = max(metadata.told)
    metadata.write_log(time, COMMAND, b"")


def unheard_of(table: SmallTable, metadata: MetadataTable) -> None:
    """A block of an instant that the table had never, between two that it had."""
    time = str(int(min(metadata.told)) + 1)
    assert time < max(metadata.told)
    metadata.add(time, [("a", {"x": 1})])


def unheard_of_and_merged(table: SmallTable, metadata: MetadataTable) -> None:
    unheard_of(table, metadata)
    metadata.compact()


def no_partition(table: SmallTable, metadata: MetadataTable) -> None:
    commit(table)
    time, records = newest(table, metadata)
    name = f"f9-0_0-1-1_{time}.parquet"
    metadata.add(time, [*records, ("z", {name: 7})])


OUT_OF_STEP = [
    (not_told_last, "behind"),
    (not_told_between, "behind"),
    (told_in_part, "behind"),
    (not_completed_there, "behind"),
    (cleaned_unsaid, "behind"),
    (no_base, "missing"),
    (no_timeline, "missing"),
    (not_there, "missing"),
    (undone_there, "pending"),
    (logs_compacted, "unsupported"),
    (other_group, "unsupported"),
    (other_command, "unsupported"),
    (unheard_of, "unknown"),
    (unheard_of_and_merged, "unknown"),
    (no_partition, "unknown"),
]


@VERSIONS
def test_a_metadata_table_out_of_step_is_not_used(subtests: pytest.Subtests, version: int) -> None:
    for change, reason in OUT_OF_STEP:
        with subtests.test(change=change.__name__):
            table, metadata = kept(version)
            change(table, metadata)
            refused(table, reason)


@VERSIONS
@pytest.mark.parametrize("follows", [True, False])
def test_what_was_written_just_after_it_was_made_is_missed(version: int, follows: bool) -> None:
    """Nothing of the metadata table's own is older then: only completion times tell."""
    table = small_table(version)
    metadata = MetadataTable(table)
    assert files_of(read(table.storage)) == listed(table.storage)
    commit(table)
    refused(table, "behind")
    metadata.told[newest(table, metadata)[0]] = []
    if follows:  # the next writer keeps it
        commit(table)
        metadata.follow()
        refused(table, "behind")


@VERSIONS
def test_what_is_newer_than_the_snapshot_does_not_count(version: int) -> None:
    table, metadata = kept(version)
    before, snapshot = listed(table.storage), snapshot_of(table.meta)
    commit(table)
    metadata.follow()
    assert files_of(read(table.storage, snapshot)) == before
    metadata.compact()
    # The base file before it may be gone soon, and the new one has too much.
    refused(table, "ahead", snapshot)

"""The archive of versions 8 and 9: history files and their manifests."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.tables.model.archiving import HISTORY_SCHEMA
from tests.timeline.archive.archives import PLAN, said
from timeline.archive.archived_timeline import HELD_BYTES, HistoryArchive
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import Instant, State
from timeline.metadata.codec import encode
from timeline.metadata.instant_metadata import CleanMetadata, CommitMetadata
from timeline.storage.local import LocalStorage

HISTORY = ".hoodie/timeline/history"
COMMIT = CommitMetadata(operation_type="INSERT")
CLEAN = CleanMetadata(start_clean_time="1")


def row(time: str, action: str, metadata: bytes, plan: bytes | None = None) -> dict:
    return {
        "instantTime": time,
        "completionTime": f"{time}5",
        "action": action,
        "metadata": metadata,
        "plan": plan,
        "version": 1,
    }


ROWS = [
    row("10", "commit", encode(COMMIT, 9)),
    row("20", "clean", encode(CLEAN, 9), encode(PLAN, 9)),
    row("30", "commit", encode(COMMIT, 9)),
]


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def write_file(storage: LocalStorage, name: str, rows: list[dict]) -> str:
    with storage.create_stream(f"{HISTORY}/{name}") as file:
        pq.write_table(pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA), file)
    return name


def write_manifest(storage: LocalStorage, version: int, names: list[str]) -> None:
    manifest = {"files": [{"fileName": name, "fileLen": 0} for name in names]}
    storage.create(f"{HISTORY}/manifest_{version}", json.dumps(manifest).encode())


def point_to(storage: LocalStorage, version: str) -> None:
    storage.replace(f"{HISTORY}/_version_", version.encode())


@pytest.fixture
def history(storage: LocalStorage) -> HistoryArchive:
    names = [
        write_file(storage, "10_20_1.parquet", ROWS[:2]),
        write_file(storage, "30_30_0.parquet", ROWS[2:]),
    ]
    write_file(storage, "10_10_0.parquet", [row("99", "commit", b"merged, so not in the manifest")])
    write_manifest(storage, 4, names)
    point_to(storage, "4")
    return HistoryArchive(storage.for_cause("timeline"), HISTORY)


def test_the_history_has_instants_metadata_and_plans(history: HistoryArchive) -> None:
    assert [(i.requested_time, i.completion_time, i.action) for i in history.timeline] == [
        ("10", "105", "commit"),
        ("20", "205", "clean"),
        ("30", "305", "commit"),
    ]
    assert history.read(history.timeline[0]) == COMMIT
    assert history.read(history.timeline[1]) == CLEAN
    assert history.read_plan(history.timeline[1]) == PLAN
    assert history.completion_times("20", "30") == {"20": "205"}


def test_history_of_an_absent_instant(history: HistoryArchive) -> None:
    for time, action in (("15", "commit"), ("10", "clean"), ("99", "commit")):
        with pytest.raises(InstantNotFoundError, match=time):
            history.read(Instant(time, action, State.COMPLETED))


def test_only_files_that_may_hold_the_time_are_read(
    history: HistoryArchive, storage: LocalStorage
) -> None:
    history.completion_times("25", "99")
    assert storage.calls.snapshot()["read", "timeline"] == 3  # pointer, manifest, one file


def many_rows(count: int) -> list[dict]:
    """Return commits and cleans in turn, each with its own time in its metadata."""
    rows = []
    for at in range(count):
        time = f"{at:03d}"
        if at % 2:
            clean = CleanMetadata(start_clean_time=time)
            rows.append(row(time, "clean", encode(clean, 9), encode(PLAN, 9)))
        else:
            rows.append(row(time, "commit", encode(CommitMetadata(operation_type=time), 9)))
    return rows


def test_each_file_is_opened_once_for_all_that_archived_instants_say(storage: LocalStorage) -> None:
    """However many instants are read in order, with their plans (#12)."""
    rows = many_rows(28)
    names = [
        write_file(storage, "000_019_1.parquet", rows[:20]),
        *(write_file(storage, f"{at:03d}_{at:03d}_0.parquet", [rows[at]]) for at in range(20, 28)),
    ]
    write_manifest(storage, 1, names)
    point_to(storage, "1")
    archive = HistoryArchive(storage.for_cause("timeline"), HISTORY)
    assert len(archive.timeline) == len(rows)
    before = storage.calls.snapshot()["read", "timeline"]
    assert before == 2 + len(names)  # pointer and manifest
    for instant in archive.timeline:
        assert said(archive, instant) == instant.requested_time
    assert storage.calls.snapshot()["read", "timeline"] - before == len(names)


@pytest.mark.parametrize("held_bytes", [0, HELD_BYTES])
def test_metadata_is_cached_by_row_group_within_a_bound(
    storage: LocalStorage, held_bytes: int
) -> None:
    rows = many_rows(40)
    with storage.create_stream(f"{HISTORY}/000_039_2.parquet") as file:
        table = pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)
        pq.write_table(table, file, row_group_size=10)
    write_manifest(storage, 1, ["000_039_2.parquet"])
    point_to(storage, "1")
    archive = HistoryArchive(storage.for_cause("timeline"), HISTORY, held_bytes=held_bytes)
    forth = list(archive.timeline)
    before = storage.calls.snapshot()["read", "timeline"]
    for instant in (*forth, *reversed(forth)):
        assert said(archive, instant) == instant.requested_time
    groups = 4
    opened = 2 * groups - 1 if held_bytes == 0 else groups
    assert storage.calls.snapshot()["read", "timeline"] - before == opened


@pytest.mark.parametrize("held_bytes", [0, HELD_BYTES])
def test_an_instant_is_found_if_any_row_group_may_contain_it(
    storage: LocalStorage, held_bytes: int
) -> None:
    """Without statistics all row groups may, and they needn't fit into the cache together."""
    with storage.create_stream(f"{HISTORY}/000_039_2.parquet") as file:
        table = pa.Table.from_pylist(many_rows(40), schema=HISTORY_SCHEMA)
        pq.write_table(table, file, row_group_size=10, write_statistics=False)
    write_manifest(storage, 1, ["000_039_2.parquet"])
    point_to(storage, "1")
    archive = HistoryArchive(storage, HISTORY, held_bytes=held_bytes)
    for instant in archive.timeline:
        assert said(archive, instant) == instant.requested_time


@pytest.mark.parametrize("pointer", [None, "", "rubbish"])
def test_without_a_pointer_the_newest_manifest_counts(
    history: HistoryArchive, storage: LocalStorage, pointer: str | None
) -> None:
    write_manifest(storage, 10, ["30_30_0.parquet"])
    if pointer is None:
        storage.delete(f"{HISTORY}/_version_")
    else:
        point_to(storage, pointer)
    assert [i.requested_time for i in history.timeline] == ["30"]


def test_a_file_merged_while_being_read(history: HistoryArchive, storage: LocalStorage) -> None:
    class MergedMeanwhile(LocalStorage):
        merged = False

        def open_input(self, path: str, *about: object) -> pa.NativeFile:
            if not self.merged:
                self.merged = True
                write_file(storage, "10_30_2.parquet", ROWS)
                write_manifest(storage, 5, ["10_30_2.parquet"])
                point_to(storage, "5")
                storage.delete(f"{HISTORY}/10_20_1.parquet")
            return super().open_input(path, *about)

    reading = HistoryArchive(MergedMeanwhile(storage.base_path), HISTORY)
    assert [i.requested_time for i in reading.timeline] == ["10", "20", "30"]


def test_a_file_that_is_lost_is_named(history: HistoryArchive, storage: LocalStorage) -> None:
    storage.delete(f"{HISTORY}/10_20_1.parquet")
    with pytest.raises(CorruptMetadataError, match=r"10_20_1\.parquet"):
        assert history.timeline


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"files": [5]}', b'{"files": [{}]}'])
def test_a_damaged_manifest_is_named(
    history: HistoryArchive, storage: LocalStorage, data: bytes
) -> None:
    storage.replace(f"{HISTORY}/manifest_4", data)
    with pytest.raises(CorruptMetadataError, match="manifest_4"):
        assert history.timeline


def test_a_manifest_far_too_long_is_not_parsed(
    history: HistoryArchive, storage: LocalStorage
) -> None:
    """10 million empty lists stopped all answers for 3.4 s."""
    name = b'{"fileName": "30_30_0.parquet"}'
    storage.replace(f"{HISTORY}/manifest_4", b'{"files": [%b]}' % b",".join([name] * 40_000))
    with pytest.raises(CorruptMetadataError, match=r"manifest_4.*allowed: at most 1048576 bytes"):
        assert history.timeline


def test_a_file_that_a_manifest_names_again_is_read_once(
    history: HistoryArchive, storage: LocalStorage
) -> None:
    """A small manifest could name one file 200,000 times."""
    point_to(storage, "5")
    write_manifest(storage, 5, ["10_20_1.parquet"] * 9 + ["30_30_0.parquet"] * 9)
    assert list(history.completion_times("", "~")) == ["10", "20", "30"]
    assert storage.calls.snapshot()["read", "timeline"] == 4  # pointer, manifest, two files


@pytest.mark.parametrize("keep", [0, 3, 100])
def test_a_damaged_history_file_is_named(
    history: HistoryArchive, storage: LocalStorage, keep: int
) -> None:
    path = f"{HISTORY}/10_20_1.parquet"
    storage.replace(path, storage.read(path)[:keep])
    with pytest.raises(CorruptMetadataError, match=r"10_20_1\.parquet"):
        assert history.timeline

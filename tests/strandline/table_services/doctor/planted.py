"""Recorded tables with one planted fault each, and what must be found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.table_services.doctor.picture import DAY_MS
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from timeline.clock import format_instant_time
from timeline.encoding.java_properties import parse_properties
from timeline.instant import Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata import codec
from timeline.metadata.instant_metadata import (
    CleanMetadata,
    CommitMetadata,
    InstantInfo,
    RollbackMetadata,
)
from timeline.table.config import CONFIG_PATH
from timeline.table.config_file import BACKUP_PATH

Names = set[str] | None
"""Paths that the finding must name; ``None``: not looked at."""


def recorded(scenario: str) -> MemoryStorage:
    """Return a recorded table after its last step, with its data files, in memory."""
    storage = MemoryStorage()
    storage.files = {
        path: (data, (ns or 0) // 1_000_000)
        for path, (data, ns) in golden._final(scenario)[0].items()
    }
    return storage


def newest_ms(storage: MemoryStorage) -> int:
    return max(mtime for _, mtime in storage.files.values())


class Recorded:
    """A recorded table, three days later, to plant a fault in.

    Attributes:
        storage: The table.
        clock: Three days after its last step.
        meta: Its meta client before the fault.
    """

    def __init__(self, scenario: str) -> None:
        self.storage = recorded(scenario)
        self.then = newest_ms(self.storage)
        self.clock = ManualClock(self.then + 3 * DAY_MS)
        self.storage._now_ms = self.clock.now_ms
        self.meta = TableMetaClient.open(self.storage)

    def put(self, path: str, data: bytes, days: float = 2) -> str:
        """Write a file that is some days old."""
        self.storage.files[path] = data, self.clock.now_ms() - int(days * DAY_MS)
        return path

    def time(self, days: float = 2) -> str:
        """Return an instant's time some days ago."""
        return format_instant_time(self.clock.now_ms() - int(days * DAY_MS), "UTC")

    def data(self, path: str) -> bytes:
        return self.storage.files[path][0]

    def move(self, path: str, other: str) -> str:
        self.storage.files[other] = self.storage.files.pop(path)
        return other

    def drop(self, path: str) -> str:
        del self.storage.files[path]
        return path

    def cut(self, path: str, end: int) -> str:
        """Leave a file's bytes before this end."""
        return self.put(path, self.data(path)[:end])

    def paths(self, *parts: str) -> list[str]:
        """Return the paths, newest last, that have all these parts; not Hadoop's checksums."""
        found = [path for path in self.storage.files if all(part in path for part in parts)]
        return sorted(path for path in found if not path.endswith(".crc"))

    def bases(self) -> list[str]:
        """Return the base files, the newest last."""
        found = (path for path in self.paths(".parquet") if not path.startswith(".hoodie/"))
        return sorted(found, key=time_of)

    def archived_bases(self) -> list[str]:
        """Return the base files of instants that only the archive still has."""
        first = self.meta.active_timeline().write_timeline().first
        assert first is not None
        return [path for path in self.bases() if time_of(path) < first.requested_time]

    def logs(self) -> list[str]:
        return [path for path in self.paths(".log.") if not path.startswith(".hoodie/")]

    def last(self, action: str) -> Instant:
        found = [i for i in self.meta.active_timeline().completed() if i.action == action]
        return found[-1]

    def instant_file(self, instant: Instant) -> str:
        return self.meta.path_of(instant)

    def folder(self) -> str:
        return self.meta.layout.folder

    def change_properties(self, **changes: str | None) -> None:
        """Write the properties with other values, whose names have ``_`` for a dot."""
        properties = parse_properties(self.data(CONFIG_PATH))
        for name, value in changes.items():
            name = name.replace("_", ".")
            properties.pop(name, None)
            if value is not None:
                properties[name] = value
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        self.put(CONFIG_PATH, text.encode())

    def change_stat(self, path: str, **changes: int | str) -> None:
        """Change the statistics of a base file in its commit."""
        active = self.meta.active_timeline()
        instant = active.find(time_of(path))
        assert instant is not None
        metadata = self.meta.read(instant)
        assert isinstance(metadata, CommitMetadata)
        stats = {
            partition: tuple(
                replace(stat, **changes) if stat.path == path else stat for stat in found
            )
            for partition, found in metadata.partition_to_write_stats.items()
        }
        changed = replace(metadata, partition_to_write_stats=stats)
        data = codec.encode(changed, self.meta.config.version)
        self.put(self.instant_file(instant), data)

    def roll_back(self, days: float = 2) -> None:
        """Write a rollback that has undone a write of this time, which has left no instant."""
        self.storage.files |= {
            path: (data, self.clock.now_ms() - int((days - 0.1) * DAY_MS))
            for path, data in rollback_of(self.meta, self.time(days), self.time(days - 0.1)).items()
        }


def rollback_of(meta: TableMetaClient, time: str, then: str) -> dict[str, bytes]:
    """Return the files of a completed rollback of a write."""
    action = "commit" if meta.config.table_type == "COPY_ON_WRITE" else "deltacommit"
    metadata = RollbackMetadata(
        then, commits_rollback=(time,), instants_rollback=(InstantInfo(time, action),)
    )
    stem = f"{meta.layout.folder}/{then}"
    done = stem if meta.config.layout_version == 1 else f"{stem}_{int(then) + 1}"
    return {
        f"{stem}.rollback.requested": b"",
        f"{stem}.rollback.inflight": b"",
        f"{done}.rollback": codec.encode(metadata, meta.config.version),
    }


def time_of(path: str) -> str:
    """Return the instant in a base file's name."""
    return PurePosixPath(path).stem.rsplit("_", 1)[1]


def beside(path: str, *, file_id: str = "", token: str = "", time: str = "") -> str:
    """Return the path of a base file with another id, token or instant."""
    folder, _, name = path.rpartition("/")
    parts = name.removesuffix(".parquet").split("_")
    chosen = (file_id or parts[0], token or parts[1], time or parts[2])
    return f"{folder}/{'_'.join(chosen)}.parquet".lstrip("/")


@dataclass(frozen=True)
class Plant:
    """A fault to be planted.

    Attributes:
        code: What must be found.
        scenario: In which recorded table.
        plant: Plants it; returns the names to be found.
        deep: Whether base files must be opened.
        fixable: Whether a repair puts it right.
    """

    code: str
    scenario: str
    plant: Callable[[Recorded], Names]
    deep: bool = False
    fixable: bool = False

    @property
    def id(self) -> str:
        return f"{self.code}-{self.plant.__name__}-{self.scenario}"


PLANTS: list[Plant] = []


def plants(
    code: str, *scenarios: str, deep: bool = False, fixable: bool = False
) -> Callable[[Callable[[Recorded], Names]], Callable[[Recorded], Names]]:
    def add(plant: Callable[[Recorded], Names]) -> Callable[[Recorded], Names]:
        PLANTS.extend(Plant(code, each, plant, deep, fixable) for each in scenarios)
        return plant

    return add


NEW_ID = "00000000-1111-2222-3333-444444444444-0"


# Properties.


@plants("properties-missing", "cow_basic_v9", "cow_basic_v6")
def only_the_backup(table: Recorded) -> Names:
    return {CONFIG_PATH, table.move(CONFIG_PATH, BACKUP_PATH)}


@plants("properties-unreadable", "cow_basic_v9")
def no_name(table: Recorded) -> Names:
    table.change_properties(hoodie_table_name=None)
    return {CONFIG_PATH}


@plants("properties-checksum-wrong", "cow_basic_v9", "mor_basic_v6", fixable=True)
def renamed_by_hand(table: Recorded) -> Names:
    table.change_properties(hoodie_table_name="renamed")
    return {CONFIG_PATH}


@plants("properties-checksum-missing", "cow_basic_v9", fixable=True)
def no_checksum(table: Recorded) -> Names:
    table.change_properties(hoodie_table_checksum=None)
    return {CONFIG_PATH}


@plants("timeline-layout-mismatch", "cow_basic_v9")
def layout_of_version_6(table: Recorded) -> Names:
    table.change_properties(hoodie_timeline_layout_version="1")
    return {CONFIG_PATH}


@plants("timeline-layout-mismatch", "cow_basic_v9", "cow_basic_v6")
def instants_in_the_other_place(table: Recorded) -> Names:
    other = ".hoodie/timeline" if table.folder() == ".hoodie" else ".hoodie"
    return {table.put(f"{other}/{table.time()}.commit.requested", b"")}


# The timeline.


@plants("future-instant", "cow_basic_v9", "mor_basic_v6")
def a_zone_ahead(table: Recorded) -> Names:
    time = table.time(-1 / 24)
    return {table.put(f"{table.folder()}/{time}.clean.requested", b"", 0)}


@plants("instants-out-of-order", "cow_basic_v9")
def completed_before_its_request(table: Recorded) -> Names:
    clean = table.last("clean")
    path, time = table.instant_file(clean), clean.requested_time
    return {table.move(path, f"{table.folder()}/{time}_{int(time) - 1}.clean")}


@plants("instants-out-of-order", "cow_basic_v9")
def completed_at_one_time(table: Recorded) -> Names:
    first, second = table.last("commit"), table.last("clean")
    name = f"{table.folder()}/{second.requested_time}_{first.completion_time}.clean"
    folder = table.folder()
    table.move(table.instant_file(second), name)
    if str(first.completion_time) > second.requested_time:
        return {name, table.instant_file(first)}
    late = f"{folder}/{first.requested_time}_{second.completion_time}.commit"
    table.move(table.instant_file(first), late)
    return {table.move(name, table.instant_file(second)), late}


@plants("instant-completed-twice", "cow_basic_v9")
def two_completions(table: Recorded) -> Names:
    clean = table.last("clean")
    path = table.instant_file(clean)
    later = f"{clean.requested_time}_{int(clean.completion_time or 0) + 1}.clean"
    return {path, table.put(f"{table.folder()}/{later}", table.data(path))}


@plants("broken-instant", "cow_basic_v9", "mor_basic_v6", "replace_cow_v9")
def an_empty_commit(table: Recorded) -> Names:
    return {table.put(table.instant_file(table.last("commit")), b"")}


@plants("broken-instant", "mor_basic_v9", "mor_basic_v6")
def an_empty_clean(table: Recorded) -> Names:
    return {table.put(table.instant_file(table.last("clean")), b"")}


@plants("broken-instant", "cow_basic_v9", "cow_basic_v6")
def half_a_clean(table: Recorded) -> Names:
    return {table.cut(table.instant_file(table.last("clean")), -40)}


@plants("broken-instant", "replace_mor_v9", "replace_cow_v6")
def half_a_replacecommit(table: Recorded) -> Names:
    return {table.cut(table.instant_file(table.last("replacecommit")), -40)}


@plants("missing-predecessor", "cow_basic_v9", "cow_basic_v6")
def completed_without_inflight(table: Recorded) -> Names:
    clean = table.last("clean")
    del table.storage.files[f"{table.folder()}/{clean.requested_time}.clean.inflight"]
    return {table.instant_file(clean)}


@plants("missing-predecessor", "cow_basic_v9")
def inflight_without_requested(table: Recorded) -> Names:
    return {table.put(f"{table.folder()}/{table.time(0.1)}.inflight", b"", 0.1)}


@plants("timeline-incomplete", "cow_basic_v9", "cow_basic_v6")
def no_instant_at_all(table: Recorded) -> Names:
    for instant in table.meta.active_timeline():
        for path in table.paths(f"{table.folder()}/{instant.requested_time}"):
            del table.storage.files[path]
    return {table.folder()}


@plants("timeline-incomplete", "cow_basic_v9", "mor_basic_v6")
def a_commit_after_one_that_is_lost(table: Recorded) -> Names:
    path = table.bases()[-1]
    time = str(int(time_of(path)) - 1)
    table.change_stat(path, prev_commit=time)
    return {f"{table.folder()}/{time}"}


@plants("service-pending", "cow_basic_v9", "cow_basic_v6")
def an_old_clean(table: Recorded) -> Names:
    clean = table.last("clean")
    plan = table.data(f"{table.folder()}/{clean.requested_time}.clean.requested")
    return {table.put(f"{table.folder()}/{table.time()}.clean.requested", plan)}


@plants("write-pending", "cow_basic_v9", "mor_basic_v6")
def a_dead_write(table: Recorded) -> Names:
    action = "commit" if table.meta.config.table_type == "COPY_ON_WRITE" else "deltacommit"
    inflight = "inflight" if action == "commit" else "deltacommit.inflight"
    stem = f"{table.folder()}/{table.time()}"
    table.put(f"{stem}.{action}.requested", b"")
    return {table.put(f"{stem}.{inflight}", b"")}


@plants("rollback-pending", "replace_mor_v6", "cow_basic_v9")
def an_old_rollback(table: Recorded) -> Names:
    return {table.put(f"{table.folder()}/{table.time()}.rollback.requested", b"")}


# What was left.


@plants("marker-left", "cow_basic_v9", "mor_basic_v6", fixable=True)
def markers_of_a_commit(table: Recorded) -> Names:
    folder = f".hoodie/.temp/{table.last('commit').requested_time}"
    table.put(f"{folder}/{table.bases()[-1]}.marker.CREATE", b"")
    return {folder}


@plants("heartbeat-left", "cow_basic_v9", "mor_basic_v6", fixable=True)
def a_heartbeat(table: Recorded) -> Names:
    return {table.put(f".hoodie/.heartbeat/{table.time()}", b"")}


@plants("lock-left", "cow_basic_v9", "mor_basic_v6")
def lock_of_a_dead_writer(table: Recorded) -> Names:
    return {table.put(".hoodie/lock", b"{}")}


@plants("temp-file-left", "cow_basic_v9", "cow_basic_v6", fixable=True)
def half_an_instant(table: Recorded) -> Names:
    name = f"{table.time()}.commit.requested.0aa1bb22-1234-4321-8888-0123456789ab"
    return {table.put(f"{table.folder()}/{name}", b"x")}


@plants("temp-file-left", "mor_basic_v9", fixable=True)
def half_of_the_properties(table: Recorded) -> Names:
    name = ".hoodie/.hoodie.properties.0aa1bb22-1234-4321-8888-0123456789ab"
    return {table.put(name, b"x")}


@plants("archive-file-missing", "archival_cow_v9", "archival_mor_v9")
def a_history_file_less(table: Recorded) -> Names:
    manifest = table.data(table.paths("manifest_")[-1])
    path = f"{table.meta.config.archive_folder}/{json.loads(manifest)['files'][0]['fileName']}"
    return {table.drop(path)}


@plants("broken-archive", "archival_cow_v9")
def half_a_manifest(table: Recorded) -> Names:
    for path in table.paths("manifest_"):
        table.cut(path, 20)
    return {table.meta.config.archive_folder}


@plants("metadata-table-missing", "mdt_mor_v9", "mdt_mor_v6")
def no_metadata_folder(table: Recorded) -> Names:
    table.storage.delete_tree(".hoodie/metadata")
    return {".hoodie/metadata"}


@plants("metadata-table-stale", "mdt_mor_v9", "mdt_mor_v6")
def an_instant_less_in_the_metadata_table(table: Recorded) -> Names:
    last = table.last("clean").requested_time
    for path in table.paths(f".hoodie/metadata/{table.folder()}/{last}"):
        del table.storage.files[path]
    return {".hoodie/metadata"}


# Files.


@plants("orphan-file", "cow_basic_v9", "cow_basic_v6", "nonpart_cow_v6", fixable=True)
def a_base_file_of_no_instant(table: Recorded) -> Names:
    table.roll_back()
    path = table.bases()[-1]
    return {table.put(beside(path, time=table.time()), table.data(path))}


@plants("orphan-file", "mor_basic_v9", "mor_basic_v8", fixable=True)
def a_log_of_no_instant(table: Recorded) -> Names:
    table.roll_back()
    return a_slice_of_no_instant(table)


@plants("orphan-file", "mor_basic_v6")
def a_slice_of_no_instant(table: Recorded) -> Names:
    path = table.logs()[-1]
    folder, _, name = path.rpartition("/")
    file_id = name[1:].split("_")[0]
    return {table.put(f"{folder}/.{file_id}_{table.time()}.log.1_0-1-2", table.data(path))}


@plants("visible-orphan", "cow_basic_v9", "cow_basic_v6", "mor_basic_v9")
def a_group_that_its_commit_lacks(table: Recorded) -> Names:
    path = table.bases()[-1]
    return {table.put(beside(path, file_id=NEW_ID), table.data(path))}


@plants("visible-orphan", "archival_cow_v9", "archival_cow_v6")
def a_group_that_the_archive_lacks(table: Recorded) -> Names:
    archived = table.meta.archived_timeline().timeline
    assert archived.last is not None
    path = table.bases()[-1]
    time = str(int(archived[len(archived) // 2].requested_time) + 1)
    return {table.put(beside(path, file_id=NEW_ID, time=time), table.data(path))}


@plants("orphan-file", "cow_basic_v9", "mor_basic_v9")
def a_file_that_no_rollback_explains(table: Recorded) -> Names:
    path = table.bases()[-1]
    return {table.put(beside(path, time=table.time()), table.data(path))}


@plants("table-within", "cow_basic_v9", "mor_basic_v6")
def a_copy_below(table: Recorded) -> Names:
    for path, (data, _) in list(table.storage.files.items()):
        table.put(f"backup/{path}", data)
    return {"backup"}


@plants("missing-file", "cow_basic_v9", "cow_basic_v6", "mor_basic_v9", "nonpart_cow_v6")
def the_newest_base_file_less(table: Recorded) -> Names:
    return {table.drop(table.bases()[-1])}


@plants("missing-file", "cow_basic_v9", "savepoint_cow_v6")
def an_earlier_base_file_less(table: Recorded) -> Names:
    clean = table.meta.read(table.last("clean"))
    assert isinstance(clean, CleanMetadata)
    retained = [p for p in table.bases() if time_of(p) >= clean.earliest_commit_to_retain]
    ids = [path.split("_")[0] for path in retained]
    path = next(p for p, file_id in zip(retained, ids, strict=True) if ids.count(file_id) > 1)
    return {table.drop(path)}


@plants("missing-file", "mor_basic_v9", "mor_basic_v6", "multi_mor_v6")
def a_log_less(table: Recorded) -> Names:
    return {table.drop(table.logs()[-1])}


@plants("missing-file", "archival_cow_v9", "archival_cow_v6", "archival_mor_v9", deep=True)
def an_archived_base_file_less(table: Recorded) -> Names:
    newest = {path.split("_")[0]: path for path in table.bases()}
    path = next(path for path in table.archived_bases() if path in newest.values())
    return {table.drop(path)}


@plants("wrong-size", "cow_basic_v9", "cow_basic_v6", "mor_basic_v6")
def a_truncated_base_file(table: Recorded) -> Names:
    return {table.cut(table.bases()[-1], -1000)}


@plants("torn-log", "mor_basic_v9", "mor_basic_v6", "bucket_mor_v6")
def a_truncated_log(table: Recorded) -> Names:
    return {table.cut(table.logs()[-1], -7)}


@plants("torn-log", "mor_basic_v6", "bucket_mor_v9")
def half_a_block_more(table: Recorded) -> Names:
    path = table.logs()[-1]
    return {table.put(path, table.data(path) + table.data(path)[:100])}


@plants("duplicate-base-file", "cow_basic_v9", "mor_basic_v6", fixable=True)
def a_repeated_task(table: Recorded) -> Names:
    path = table.bases()[-1]
    return {table.put(beside(path, token="7-77-777"), table.data(path))}


@plants("duplicate-file-name", "archival_cow_v9", "archival_cow_v6")
def a_copy_in_another_partition(table: Recorded) -> Names:
    path = table.archived_bases()[0]
    folder = next(p.rpartition("/")[0] for p in table.bases() if p.split("/")[0] not in path)
    return {path, table.put(f"{folder}/{path.rpartition('/')[2]}", table.data(path))}


@plants("log-without-base", "mor_basic_v6")
def a_log_of_another_compaction(table: Recorded) -> Names:
    path = table.logs()[-1]
    commits = [i for i in table.meta.active_timeline().completed() if i.action == "commit"]
    now = commits[-1].requested_time
    assert now in path
    other = table.put(path.replace(now, commits[-2].requested_time), table.data(path))
    return {other}


@plants(
    "partition-metadata-missing", "cow_basic_v9", "cow_basic_v6", "nonpart_cow_v6", fixable=True
)
def a_partition_without_its_file(table: Recorded) -> Names:
    path = f"{table.bases()[-1].rpartition('/')[0]}/.hoodie_partition_metadata".lstrip("/")
    return {table.drop(path)}


@plants("replaced-group", "replace_cow_v9", "replace_cow_v6", "replace_mor_v6")
def a_group_that_no_clean_deleted(table: Recorded) -> Names:
    commits = [table.meta.read(i) for i in table.meta.active_timeline().completed()]
    commits = [each for each in commits if isinstance(each, CommitMetadata)]
    replaced = [each for each in commits if each.partition_to_replace_file_ids]
    partition, ids = next(iter(replaced[0].partition_to_replace_file_ids.items()))
    stats = [stat for each in commits for stat in each.partition_to_write_stats.get(partition, ())]
    stat = next(stat for stat in stats if stat.file_id == ids[0] and ".log." not in str(stat.path))
    return {table.put(str(stat.path), bytes(stat.file_size_in_bytes))}


@plants("replaced-group-visible", "archival_cow_v9")
def a_group_that_the_archive_replaced(table: Recorded) -> Names:
    archive = table.meta.archived_timeline()
    replacing = next(i for i in archive.timeline if i.action == "replacecommit")
    metadata = archive.read(replacing)
    assert isinstance(metadata, CommitMetadata)
    partition, ids = next(iter(metadata.partition_to_replace_file_ids.items()))
    before = [i for i in archive.timeline if i.requested_time < replacing.requested_time]
    time = next(i.requested_time for i in reversed(before) if i.action == "commit")
    path = f"{partition}/{ids[0]}_0-1-2_{time}.parquet"
    return {table.put(path, table.data(table.bases()[-1]))}


# Contents.


@plants("unreadable-base-file", "cow_basic_v9", "mor_basic_v6", deep=True)
def a_footer_of_zeros(table: Recorded) -> Names:
    path = table.bases()[-1]
    return {table.put(path, table.data(path)[:-100] + bytes(100))}


@plants("row-count", "cow_basic_v9", "cow_basic_v6", deep=True)
def a_row_less_than_written(table: Recorded) -> Names:
    path = table.bases()[-1]
    table.change_stat(path, num_writes=1_000_000)
    return {path}


@plants("key-range", "archival_cow_v9", deep=True)
def keys_beyond_the_footers_range(table: Recorded) -> Names:
    path = table.archived_bases()[0]
    rows = pq.read_table(pa.BufferReader(table.data(path)))
    range_ = {b"hoodie_min_record_key": b"a", b"hoodie_max_record_key": b"b"}
    kept = rows.schema.metadata or {}
    sink = pa.BufferOutputStream()
    pq.write_table(rows.replace_schema_metadata({**kept, **range_}), sink)
    return {table.put(path, sink.getvalue().to_pybytes())}

"""Synthetic tables of any size: names, sizes and metadata as Hudi's writers make them, no rows.

Tables are copy-on-write of any version, partitioned by day; base files are sparse. File ids are
derived from the partition's name, so a table of a million files takes a minute to make and no
memory to describe. Each instant's metadata names every file that it wrote.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import orjson

from fsview.model.file_name import base_file_name, parse_base_name
from timeline.encoding.avro import write_container
from timeline.encoding.java_properties import format_properties
from timeline.instant import COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.codec import encode
from timeline.metadata.instant_metadata import NULL_COMMIT, CommitMetadata, WriteStat
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config
from timeline.table.partition_metadata import FILE_NAME, depth_of

VERSION: Final = 6
AVRO_VERSION: Final = 8
"""The first version whose commit metadata is Avro and whose instants have a completion time."""

FILES_A_COMMIT: Final = 20_000
"""Bounds a commit, because an instant's metadata is written and read as a whole."""

_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "row",
        "fields": [{"name": name, "type": "string"} for name in ("id", "day")],
    }
)
_FIRST_DAY: Final = date(2020, 1, 1)
_FIRST_INSTANT: Final = datetime(2026, 1, 1)


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a table.

    Attributes:
        partitions: Number of partitions.
        groups: Number of file groups in each partition.
        slices: Number of base files in each group, one per instant.
    """

    partitions: int
    groups: int
    slices: int = 1

    @property
    def files(self) -> int:
        """Number of base files."""
        return self.partitions * self.groups * self.slices

    def __str__(self) -> str:
        slices = f" x {self.slices}" if self.slices > 1 else ""
        return f"{self.partitions:,} x {self.groups:,}{slices}"


@dataclass(frozen=True, slots=True)
class ClientState:
    """The timeline parameters of a client that has just read the timeline."""

    last_instant: str
    timeline_hash: str


class BigTable:
    """An existing table to which commits can be added; make one with ``create``.

    Attributes:
        path: The base path.
        partitions: Paths of the partitions, in order.
    """

    def __init__(self, path: Path, shape: Shape) -> None:
        self.path = path
        self.shape = shape
        self.partitions = [_day(number) for number in range(shape.partitions)]
        self._meta = TableMetaClient.open(LocalStorage(str(path)))
        self._times = map(_instant_time, count())
        self._stat = _stat_form()
        self._newest: dict[str, dict[str, str]] = {}  # of updated partitions: file id → name

    @classmethod
    def create(cls, path: Path, shape: Shape, version: int = VERSION) -> BigTable:
        """Write a new table of this shape."""
        config = TableConfig.create(
            name=path.name, version=version, record_key_fields=("id",), partition_fields=("day",)
        )
        write_table_config(LocalStorage(str(path)), config, create=True)
        table = cls(path, shape)
        together = max(1, FILES_A_COMMIT // shape.groups)
        for start in range(0, shape.partitions, together):
            table._fill(table.partitions[start : start + together])
        return table

    def state(self) -> ClientState:
        """Return the state of a client that reads the timeline now."""
        timeline = self._meta.active_timeline().client_timeline()
        assert timeline.last is not None
        return ClientState(timeline.last.requested_time, timeline.hash)

    def file_ids(self, partition: str) -> list[str]:
        """Return the ids of the file groups with which a partition was created."""
        return list(islice(_file_ids(partition), self.shape.groups))

    def update(self, partitions: Sequence[str], groups: int, *, with_files: bool = True) -> None:
        """Commit a new base file for some groups of each of some partitions.

        Args:
            partitions: The partitions.
            groups: Number of file groups in each.
            with_files: Whether to create the files; a server that follows the timeline doesn't
                need them.
        """
        instant = next(self._times)
        stats = {}
        for partition in partitions:
            newest = self._newest.get(partition) or self._newest_files(partition)
            ids = self.file_ids(partition)[:groups]
            before = [newest[id_] for id_ in ids]
            stats[partition] = self._write(instant, partition, ids, before, with_files=with_files)
            self._newest[partition] = newest | dict(zip(ids, _names(stats[partition]), strict=True))
        self._commit(instant, stats, "UPSERT")

    def insert(self, partition: str) -> str:
        """Commit a new file group in a partition; return its id."""
        instant = next(self._times)
        file_id = next(_file_ids(instant))
        self._commit(
            instant, {partition: self._write(instant, partition, [file_id], [None])}, "INSERT"
        )
        return file_id

    def extend(self, partitions: int) -> None:
        """Commit more partitions of the same size, without data files.

        A server that follows the timeline lists nothing, so it doesn't need them.
        """
        first = len(self.partitions)
        added = [_day(first + number) for number in range(partitions)]
        self.partitions += added
        self.shape = replace(self.shape, partitions=len(self.partitions))
        self._fill(added, with_files=False)

    def begin_write(self) -> str:
        """Leave a commit in flight, so that the files can be found only by listing; return it."""
        instant = next(self._times)
        self._meta.transition_to_inflight(self._meta.create_requested(COMMIT, instant))
        return instant

    def follow_clock(self) -> None:
        """Take the clock's times from now on, as other writers of the table do."""
        self._times = map(str, _clock_times())

    def _fill(self, partitions: Sequence[str], *, with_files: bool = True) -> None:
        """Create partitions with all their slices."""
        ids = {partition: self.file_ids(partition) for partition in partitions}
        names: dict[str, list[str | None]] = {p: [None] * len(ids[p]) for p in partitions}
        for number in range(self.shape.slices):
            instant = next(self._times)
            stats = {}
            for partition in partitions:
                if number == 0:
                    self._make_partition(partition, instant)
                before = names[partition]
                stats[partition] = self._write(
                    instant, partition, ids[partition], before, with_files=with_files
                )
                names[partition] = [*_names(stats[partition])]
            self._commit(instant, stats, "UPSERT" if number else "INSERT")

    def _make_partition(self, partition: str, instant: str) -> None:
        # Not through the storage, which would flush each of a hundred thousand directories.
        folder = self.path / partition
        folder.mkdir()
        metadata = {"commitTime": instant, "partitionDepth": str(depth_of(partition))}
        (folder / FILE_NAME).write_bytes(format_properties(metadata, "partition metadata"))

    def _write(
        self,
        instant: str,
        partition: str,
        file_ids: Sequence[str],
        before: Sequence[str | None],
        *,
        with_files: bool = True,
    ) -> list[dict[str, Any]]:
        """Create one base file for each group; return the write stats."""
        sizes = random.Random(f"{partition} {instant}")
        stage = int(instant[8:12])
        stats = []
        for number, (file_id, old) in enumerate(zip(file_ids, before, strict=True)):
            token = f"{number}-{stage}-{stage * 1000 + number}"
            name = base_file_name(file_id, token, instant, ".parquet")
            size = sizes.randrange(20_000_000, 120_000_000)
            if with_files:
                _make_sparse(self.path / partition / name, size)
            stats.append(
                self._stat
                | {
                    "fileId": file_id,
                    "path": f"{partition}/{name}",
                    "partitionPath": partition,
                    "prevCommit": NULL_COMMIT if old is None else _instant_of(old),
                    "prevBaseFile": old,
                    "numWrites": size // 500,
                    "totalWriteBytes": size,
                    "fileSizeInBytes": size,
                }
            )
        return stats

    def _commit(self, instant: str, stats: dict[str, Any], operation: str) -> None:
        """Write a completed commit to the timeline."""
        meta, version = self._meta, self._meta.config.version
        meta.transition_to_inflight(meta.create_requested(COMMIT, instant))
        commit = CommitMetadata(operation_type=operation, extra_metadata={"schema": _SCHEMA})
        form = json.loads(encode(commit, VERSION))
        record = form | {"partitionToWriteStats": stats}
        if version < AVRO_VERSION:
            done, data = Instant(instant, COMMIT, State.COMPLETED), orjson.dumps(record)
        else:
            done = Instant(instant, COMMIT, State.COMPLETED, str(int(instant) + 1))
            data = write_container("HoodieCommitMetadata", record)
        meta.storage.create(meta.path_of(done), data)

    def _newest_files(self, partition: str) -> dict[str, str]:
        """Return the newest base file of each group."""
        names = [n for n in os.listdir(self.path / partition) if n.endswith(".parquet")]
        return {_file_id_of(name): name for name in sorted(names, key=_instant_of)}


def _names(stats: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return an iterator of the file names in write stats."""
    return (stat["path"].rpartition("/")[2] for stat in stats)


def _day(number: int) -> str:
    """Return the n-th partition."""
    return (_FIRST_DAY + timedelta(days=number)).isoformat()


def _instant_time(number: int) -> str:
    """Return the time of the n-th instant; there is one a minute."""
    return (_FIRST_INSTANT + timedelta(minutes=number)).strftime("%Y%m%d%H%M%S000")


def _clock_times() -> Iterator[int]:
    """Return an iterator of the clock's times in milliseconds, each once.

    A commit's completion time is one later (``BigTable._commit``), so they are two apart or more.
    """
    last = 0
    while True:
        now = datetime.now().astimezone(timezone.utc).strftime("%Y%m%d%H%M%S%f")[:-3]
        last = max(last + 2, int(now))
        yield last


def _file_ids(seed: str) -> Iterator[str]:
    """Return an iterator of file ids like Hudi's, the same for the same seed."""
    bits = random.Random(seed)
    return (f"{uuid.UUID(int=bits.getrandbits(128), version=4)}-0" for _ in count())


def _file_id_of(name: str) -> str:
    parts = parse_base_name(name)
    assert parts is not None
    return parts[0]


def _instant_of(name: str) -> str:
    parts = parse_base_name(name)
    assert parts is not None
    return parts[1]


def _stat_form() -> dict[str, Any]:
    """Return the JSON form of a write stat with all members that a writer sets."""
    commit = json.loads(encode(CommitMetadata({"": (WriteStat(),)}), VERSION))
    form: dict[str, Any] = commit["partitionToWriteStats"][""][0]
    return form


def _make_sparse(path: Path, size: int) -> None:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        os.ftruncate(handle, size)
    finally:
        os.close(handle)

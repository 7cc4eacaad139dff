"""Synthetic tables of any size: names, sizes and metadata as Hudi's writers give them, no rows.

Copy-on-write, table version 6 or another, partitions by day, base files that are holes. File ids
follow from the partition's name, so a table of a million files takes a minute and nothing has to be
remembered about it. Each instant names every file that it wrote.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
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
"""From this on commit metadata is Avro, and says when the commit completed."""

FILES_A_COMMIT: Final = 20_000
"""An instant's metadata is written and read as a whole, so that of a large table are several."""

_FIRST_DAY: Final = date(2020, 1, 1)
_FIRST_INSTANT: Final = datetime(2026, 1, 1)


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a table is.

    Attributes:
        partitions: Partitions of the table.
        groups: File groups of each partition.
        slices: Base files of each group, one an instant.
    """

    partitions: int
    groups: int
    slices: int = 1

    @property
    def files(self) -> int:
        """All its base files."""
        return self.partitions * self.groups * self.slices

    def __str__(self) -> str:
        slices = f" x {self.slices}" if self.slices > 1 else ""
        return f"{self.partitions:,} x {self.groups:,}{slices}"


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client that has just looked at the timeline sends along."""

    last_instant: str
    timeline_hash: str


class BigTable:
    """A table that is there, and how it goes on; make one with ``create``.

    Attributes:
        path: Its base path.
        partitions: Paths of its partitions, in order.
    """

    def __init__(self, path: Path, shape: Shape) -> None:
        self.path = path
        self.shape = shape
        self.partitions = [_day(number) for number in range(shape.partitions)]
        self._meta = TableMetaClient.open(LocalStorage(str(path)))
        self._times = map(_instant_time, count())
        self._stat = _stat_form()
        self._newest: dict[str, dict[str, str]] = {}  # of what was updated: id → name

    @classmethod
    def create(cls, path: Path, shape: Shape, version: int = VERSION) -> BigTable:
        """Write a table of this shape at a path where there is none."""
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
        """Return what a client knows now."""
        timeline = self._meta.active_timeline().client_timeline()
        assert timeline.last is not None
        return ClientState(timeline.last.requested_time, timeline.hash)

    def file_ids(self, partition: str) -> list[str]:
        """Return the ids of the groups that a partition was made with."""
        return list(islice(_file_ids(partition), self.shape.groups))

    def update(self, partitions: Sequence[str], groups: int, *, with_files: bool = True) -> None:
        """Commit a new base file for some groups of each of some partitions.

        Args:
            partitions: Which.
            groups: How many of each.
            with_files: Whether the files are made: who follows the timeline doesn't miss them.
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
        """Commit one file group more in a partition; return its id."""
        instant = next(self._times)
        file_id = next(_file_ids(instant))
        self._commit(
            instant, {partition: self._write(instant, partition, [file_id], [None])}, "INSERT"
        )
        return file_id

    def extend(self, partitions: int) -> None:
        """Commit more partitions as large as the others, without their data files.

        Who follows the timeline lists nothing, so doesn't miss them.
        """
        first = len(self.partitions)
        added = [_day(first + number) for number in range(partitions)]
        self.partitions += added
        self.shape = replace(self.shape, partitions=len(self.partitions))
        self._fill(added, with_files=False)

    def begin_write(self) -> None:
        """Leave a commit in flight: what lies in the table then only a listing tells."""
        self._meta.transition_to_inflight(self._meta.create_requested(COMMIT, next(self._times)))

    def _fill(self, partitions: Sequence[str], *, with_files: bool = True) -> None:
        """Make partitions with all their slices."""
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
        said = {"commitTime": instant, "partitionDepth": str(depth_of(partition))}
        (folder / FILE_NAME).write_bytes(format_properties(said, "partition metadata"))

    def _write(
        self,
        instant: str,
        partition: str,
        file_ids: Sequence[str],
        before: Sequence[str | None],
        *,
        with_files: bool = True,
    ) -> list[dict[str, Any]]:
        """Make one base file for each group; return their stats."""
        sizes = random.Random(f"{partition} {instant}")
        stage = int(instant[8:12])
        stats = []
        for number, (file_id, old) in enumerate(zip(file_ids, before, strict=True)):
            token = f"{number}-{stage}-{stage * 1000 + number}"
            name = base_file_name(file_id, token, instant, ".parquet")
            size = sizes.randrange(20_000_000, 120_000_000)
            if with_files:
                _make_hole(self.path / partition / name, size)
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
        """Put a completed commit on the timeline."""
        meta, version = self._meta, self._meta.config.version
        meta.transition_to_inflight(meta.create_requested(COMMIT, instant))
        said = json.loads(encode(CommitMetadata(operation_type=operation), VERSION))
        record = said | {"partitionToWriteStats": stats}
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
    """Yield the file names of write stats."""
    return (stat["path"].rpartition("/")[2] for stat in stats)


def _day(number: int) -> str:
    """Return the n-th partition."""
    return (_FIRST_DAY + timedelta(days=number)).isoformat()


def _instant_time(number: int) -> str:
    """Return the time of the n-th instant: one a minute."""
    return (_FIRST_INSTANT + timedelta(minutes=number)).strftime("%Y%m%d%H%M%S000")


def _file_ids(seed: str) -> Iterator[str]:
    """Yield file ids as Hudi makes them, the same for the same seed."""
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
    """Return the JSON of a write stat with every member that a writer sets."""
    said = json.loads(encode(CommitMetadata({"": (WriteStat(),)}), VERSION))
    form: dict[str, Any] = said["partitionToWriteStats"][""][0]
    return form


def _make_hole(path: Path, size: int) -> None:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        os.ftruncate(handle, size)
    finally:
        os.close(handle)

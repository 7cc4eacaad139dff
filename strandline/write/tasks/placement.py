"""Assigns the rows of a write to file groups: ``place`` by counts, ``AssignTask`` each row.

An update goes to the group that holds its key. Inserts first fill the *small* files of their
partition up to the maximum size, then open new groups; how many rows fit is estimated from the
record size of earlier commits. ``AssignTask`` chooses the group of each insert by the hash of its
record key over the groups' shares, so that a repeated task chooses the same. ``pack`` divides the
groups among the tasks that write them.

Array operations assign all rows of a batch at once. An update is assigned by its file's number. An
insert is assigned by a binary search: of its key's hash among the bounds of its partition's shares,
or of its key among their least keys.

Source: Hudi 1.2.0 ``UpsertPartitioner``, ``AverageRecordSizeEstimator``.
"""

from __future__ import annotations

import heapq
import uuid
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsview.model.file_group import FileSlice
from fsview.model.file_name import base_file_name, log_file_name
from strandline.commit.markers import APPEND, CREATE, MERGE
from strandline.commit.slice_logs import slice_log_token
from strandline.records.file.base_file import EXTENSION
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.tasks.columns import (
    BUCKET,
    FILE,
    KEY_HASH,
    TASK,
    assigned_schema,
    changed,
    fill_from,
    refuse_without_key,
)
from timeline.errors import UnsupportedTableError
from timeline.instant import Instant
from timeline.table.partition_metadata import path_in

_NO_BUCKET: Final = -1
_TASK_BYTES: Final = 512 * 1024 * 1024
"""The most bytes that a task writes, if it writes more than one file."""
_EVEN: Final = 1.25
"""Factor by which a task may be heavier so that rows needn't move; moving costs about as much."""


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The slice that a group's next log belongs to, in table version 6.

    There the name of a log has the base instant of its slice, and the logs of a slice are numbered.

    Attributes:
        instant: The base instant: of the base file, or of the group's pending compaction.
        base_file: Name of the base file; ``""`` if the slice has only logs.
        logs: Names of its logs, in order.
        version: Version of the next log.
    """

    instant: str
    base_file: str
    logs: tuple[str, ...]
    version: int

    @classmethod
    def of(cls, found: FileSlice, compaction: str | None) -> LogSlice:
        """Return the slice of the next log of a group.

        Args:
            found: The group's newest slice, merged over a pending compaction.
            compaction: Requested time of the group's pending compaction, if there is one.
        """
        instant, base = compaction or found.base_instant, found.base_file
        logs = sorted(found.log_files, key=lambda log: log.order)
        own = [log for log in logs if log.instant == instant]
        name = base.name if base is not None and base.instant == instant else ""
        version = max((log.version for log in own), default=0) + 1
        return cls(instant, name, tuple(log.name for log in own), version)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The newest base file of a group; ``size`` in bytes.

    A new group has no name, nor has one that has only logs.

    Attributes:
        has_logs: Whether the group's newest slice has logs, those included that a base file hides
            whose write hasn't completed.
        late_logs: Names of those logs whose writers may have looked keys up before the base file
            was visible. If a compaction wrote it, they may have keys that it lacks, because logs
            had deleted them.
        slice: The slice of the group's next log, in table version 6; else ``None``.
    """

    partition: str
    file_id: str
    name: str
    size: int
    has_logs: bool = False
    late_logs: tuple[str, ...] = ()
    slice: LogSlice | None = None

    @property
    def path(self) -> str:
        """Path under the table's base path."""
        return path_in(self.partition, self.name)

    @property
    def searched(self) -> tuple[str, ...]:
        """Paths of the files that have its keys."""
        return (self.path, *(path_in(self.partition, name) for name in self.late_logs))


@dataclass(frozen=True, slots=True)
class Sizing:
    """Sizes that decide where inserts go, in bytes.

    Attributes:
        max_file_bytes: ``hoodie.parquet.max.file.size``.
        small_file_bytes: ``hoodie.parquet.small.file.limit``; with 0 stored files get no inserts.
        record_bytes: Estimated size of a record in a file.
    """

    max_file_bytes: int
    small_file_bytes: int
    record_bytes: int

    def room(self, size: int) -> int:
        """Return the number of records that still fit into a file of ``size`` bytes."""
        return max((self.max_file_bytes - size) // self.record_bytes, 0)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A file group that the write adds one base file to, or logs.

    Attributes:
        base_file: Name of the base file that the new one replaces; ``None`` for a new group, and
            if the rows go to logs.
        is_log: Whether the rows go to logs of a stored group.
        slice: The slice of these logs, in table version 6; else ``None``.
    """

    number: int
    partition: str
    file_id: str
    base_file: str | None = None
    is_log: bool = False
    slice: LogSlice | None = None

    @property
    def first_log(self) -> int:
        """The version of the write's first log."""
        return 1 if self.slice is None else self.slice.version


def marked_file(
    bucket: Bucket, write_token: str, instant: str, version: int | None = None
) -> tuple[str, str]:
    """Return the path of a bucket's new file, a log or base file; and its marker.

    Args:
        bucket: The bucket.
        write_token: Token of the task attempt.
        instant: Requested time of the write.
        version: Version of the log; ``None``: of the first one.
    """
    if bucket.is_log:
        version, found = version or bucket.first_log, bucket.slice
        if found is None:
            name = log_file_name(bucket.file_id, write_token, instant, version)
            return path_in(bucket.partition, name), CREATE
        token = slice_log_token(write_token, instant)
        name = log_file_name(bucket.file_id, token, found.instant, version)
        return path_in(bucket.partition, name), APPEND
    is_new = bucket.base_file is None
    return marked_base_file(bucket.partition, bucket.file_id, write_token, instant, is_new=is_new)


def marked_base_file(
    partition: str, file_id: str, write_token: str, instant: str, *, is_new: bool
) -> tuple[str, str]:
    """Return the path of a file group's new base file, its first one or a later; and its marker."""
    name = base_file_name(file_id, write_token, instant, EXTENSION)
    return path_in(partition, name), CREATE if is_new else MERGE


@dataclass(frozen=True, slots=True)
class InsertShares:
    """The buckets of one partition's inserts, and each bucket's share.

    Attributes:
        numbers: Numbers of the buckets.
        bounds: Upper bound of each bucket's share of [0, 1), ascending; the last is 1.
        keys: Least key of each bucket but the first, ascending; empty if the key's hash chooses the
            bucket.
    """

    numbers: tuple[int, ...]
    bounds: tuple[float, ...]
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRows:
    """A number of consecutive rows that go to one bucket."""

    bucket: int
    rows: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the rows of a write go.

    Attributes:
        buckets: The buckets by number.
        weights: Estimated size of each bucket's new file in bytes.
        of_file: Bucket of each stored file's updates by the file's number; -1 without updates.
        inserts: Buckets of new records by partition path.
        in_parts: Part → partition path → the buckets of its rows, if rows stay in their parts;
            they come in the order of the buckets' numbers.
    """

    buckets: tuple[Bucket, ...] = ()
    weights: tuple[int, ...] = ()
    of_file: tuple[int, ...] = ()
    inserts: Mapping[str, InsertShares] = field(default_factory=dict)
    in_parts: Mapping[int, Mapping[str, tuple[GroupRows, ...]]] | None = None

    def tasks(self, cores: int) -> tuple[int, ...]:
        """Return the number of the task that writes each bucket.

        There are no more tasks than cores, unless they would become large.
        """
        return pack(self.weights, tasks_for(self.weights, cores))

    @property
    def parts(self) -> tuple[int, ...]:
        """The part of each bucket's rows, if rows stay in their parts."""
        of_bucket = {
            share.bucket: part
            for part, paths in (self.in_parts or {}).items()
            for shares in paths.values()
            for share in shares
        }
        return tuple(of_bucket[bucket.number] for bucket in self.buckets)

    def tasks_in_place(self, parts: Mapping[str, int] | None, cores: int) -> tuple[int, ...] | None:
        """Return the part of each bucket's rows if they can be written where they are.

        Args:
            parts: Part of all rows of each partition; ``None``: a partition's rows may be in any.
            cores: Number of tasks that can run at the same time.

        Returns:
            The parts; ``None`` if one of them would write much more than any task of ``tasks``.
        """
        if parts is None:
            return None
        chosen = tuple(parts[bucket.partition] for bucket in self.buckets)
        least = heaviest(self.weights, self.tasks(cores))
        return chosen if is_even(heaviest(self.weights, chosen), least) else None


def new_file_id(new_uuid: Callable[[], uuid.UUID] = uuid.uuid4) -> str:
    """Return the id of a new file group, which doesn't look like that of a small bucket.

    Two in a million do. If such a group were a partition's only one, the partition's files would
    count as those of a bucket index, and other writes would be refused.
    """
    found = str(new_uuid())
    while found.startswith("0000"):
        found = str(new_uuid())
    return f"{found}-0"


class _Builder:
    """Opens buckets and numbers them in that order."""

    def __init__(self, sizing: Sizing, new_file_id: Callable[[], str]) -> None:
        self.buckets: list[Bucket] = []
        self.weights: list[int] = []
        self._stored: dict[tuple[str, str], int] = {}
        self._sizing = sizing
        self._new_file_id = new_file_id

    def stored(self, file: StoredFile, rows: int, *, is_log: bool = False) -> int:
        """Return the bucket of a stored file's group, to which rows are added."""
        group = (file.partition, file.file_id)
        if group not in self._stored:
            at = len(self.buckets)
            if is_log:
                self._open(Bucket(at, *group, is_log=True, slice=file.slice), 0)
            else:
                self._open(Bucket(at, *group, file.name or None), file.size)
            self._stored[group] = at
        number = self._stored[group]
        self.weights[number] += rows * self._sizing.record_bytes
        return number

    def new(self, partition: str, rows: int) -> int:
        """Open the bucket of a new group."""
        bucket = Bucket(len(self.buckets), partition, self._new_file_id())
        self._open(bucket, rows * self._sizing.record_bytes)
        return bucket.number

    def _open(self, bucket: Bucket, weight: int) -> None:
        self.buckets.append(bucket)
        self.weights.append(weight)


def place(
    updates: Mapping[int, int],
    inserts: Mapping[str, int],
    files: Sequence[StoredFile],
    clustered: Mapping[tuple[str, str], Instant],
    sizing: Sizing,
    *,
    fills: bool = True,
    rewrites: int | None = None,
    new_file_id: Callable[[], str] = new_file_id,
) -> Placement:
    """Place the rows of a write; buckets are numbered in the order of their partitions' paths.

    Args:
        updates: Number of rows to update, by the number of the stored file.
        inserts: Number of new records by partition path.
        files: The newest base files of the partitions; a file's number is its position.
        clustered: (partition, file id) → the pending clustering that replaces the group. Such a
            group takes no inserts.
        sizing: Sizes of files and records.
        fills: Whether inserts go to small stored files first.
        rewrites: In a merge-on-read table the most small files of a partition that take inserts,
            which rewrites them. They have no logs, and the updates of their groups join the
            rewrite; all other updates go to logs. ``None``: all files are rewritten.
        new_file_id: Makes the id of a new group.

    Raises:
        UnsupportedTableError: An update goes to a group of a pending clustering.
    """
    updated: dict[str, list[int]] = {}
    for number in sorted(updates, key=lambda number: files[number].file_id):
        file = files[number]
        instant = clustered.get((file.partition, file.file_id))
        if instant is not None:
            raise _refused(file, updates[number], instant)
        updated.setdefault(file.partition, []).append(number)
    small: dict[str, list[StoredFile]] = {}
    for file in files:
        is_small = fills and file.size < sizing.small_file_bytes
        if is_small and rewrites is not None:
            is_small = bool(file.name) and not file.has_logs
        if is_small and (file.partition, file.file_id) not in clustered:
            small.setdefault(file.partition, []).append(file)
    build = _Builder(sizing, new_file_id)
    of_file = [_NO_BUCKET] * len(files)
    shares: dict[str, InsertShares] = {}
    for partition in sorted({*updated, *inserts}):
        rows = inserts.get(partition, 0)
        filled = _filled(small.get(partition, ()), rows, sizing, rewrites)
        rewritten = {file.file_id for file, _ in filled}
        for number in updated.get(partition, ()):
            file = files[number]
            is_stored = bool(file.name) or file.has_logs
            is_log = rewrites is not None and is_stored and file.file_id not in rewritten
            of_file[number] = build.stored(file, updates[number], is_log=is_log)
        if rows:
            shares[partition] = _share(build, partition, rows, filled, sizing)
    return Placement(tuple(build.buckets), tuple(build.weights), tuple(of_file), shares)


def _filled(
    small: Iterable[StoredFile], rows: int, sizing: Sizing, most: int | None
) -> list[tuple[StoredFile, int]]:
    """Return the small files that take inserts, and the number of rows for each.

    Args:
        small: A partition's small files.
        rows: The number of its inserts.
        sizing: Sizes of files and records.
        most: The number of files, the smallest, that may take inserts; ``None``: any number.
    """
    taken: list[tuple[StoredFile, int]] = []
    for file in sorted(small, key=lambda file: (file.size, file.file_id))[:most]:
        fits = min(sizing.room(file.size), rows)
        if fits > 0:
            taken.append((file, fits))
            rows -= fits
    return taken


def _share(
    build: _Builder,
    partition: str,
    rows: int,
    filled: Iterable[tuple[StoredFile, int]],
    sizing: Sizing,
) -> InsertShares:
    """Distribute one partition's inserts: first to small files, then evenly to new groups."""
    taken = [(build.stored(file, fits), fits) for file, fits in filled]
    left = rows - sum(fits for _, fits in taken)
    groups = -(-left // max(sizing.room(0), 1))
    for number in range(groups):
        # The first groups take one record more if the number isn't divisible.
        fits = left // groups + (number < left % groups)
        taken.append((build.new(partition, fits), fits))
    bounds = tuple(total / rows for total in accumulate(count for _, count in taken))
    return InsertShares(tuple(number for number, _ in taken), bounds)


def _refused(file: StoredFile, rows: int, instant: Instant) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"{rows} rows of this write update file group {file.file_id} of partition"
        f" {file.partition!r}, which is in the pending clustering {instant.requested_time}",
        hint="let the clustering finish, or roll it back",
    )


def rewritten_bytes(buckets: Iterable[Bucket], stored: Iterable[StoredFile]) -> int:
    """Return the total size of the stored files that the buckets' files replace."""
    replaced = {(bucket.partition, bucket.base_file) for bucket in buckets}
    return sum(file.size for file in stored if (file.partition, file.name) in replaced)


def tasks_for(weights: Sequence[int], cores: int) -> int:
    """Return the number of tasks for indivisible items of some bytes.

    There are at most as many tasks as cores, unless they would become too large.
    """
    fair = -(-sum(weights) // _TASK_BYTES)
    return min(len(weights), max(cores, fair))


def is_even(heaviest_part: int, least: int) -> bool:
    """Whether a division's heaviest part is at most a quarter heavier than that of another."""
    return heaviest_part <= _EVEN * least


def heaviest(weights: Sequence[int], parts: Sequence[int]) -> int:
    """Return the weight of the heaviest part; ``parts`` has the part of each item."""
    loads: Counter[int] = Counter()
    for weight, part in zip(weights, parts, strict=True):
        loads[part] += weight
    return max(loads.values(), default=0)


def pack(weights: Sequence[int], parts: int) -> tuple[int, ...]:
    """Return the part of each item, keeping the heaviest part light (longest first).

    Cost: ``n log(n)``. The heaviest part is at most 4/3 of the lightest possible.

    Source: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969.
    """
    loads = [(0, part) for part in range(parts)]
    chosen = [0] * len(weights)
    for item in sorted(range(len(weights)), key=lambda item: -weights[item]):
        load, part = loads[0]
        heapq.heapreplace(loads, (load + weights[item], part))
        chosen[item] = part
    return tuple(chosen)


def average_record_bytes(
    commits: Iterable[tuple[int, int]], *, default: int, threshold_bytes: float
) -> int:
    """Return the estimated size of a record, from the newest commit that is large enough.

    Args:
        commits: (bytes written, records written) of completed commits, newest first.
        default: Result if no commit is large enough.
        threshold_bytes: Bytes that a commit must exceed to count, because in small files footers
            and Bloom filters outweigh the records.

    Source: Hudi 1.2.0 ``AverageRecordSizeEstimator``.
    """
    for total_bytes, records in commits:
        if total_bytes > threshold_bytes and records > 0:
            return max(-(-total_bytes // records), 1)
    return default


_HASHES: Final = 2**32
_NOT_COUNTED: Final = -1
_PIECE_ROWS: Final = 8_192
"""Rows that are searched at once: arrays of megabytes would get new memory pages each time."""
_Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class AssignTask:
    """Turns tagged (or keyed) rows into assigned rows.

    Attributes:
        schema: The columns of the rows.
        updates: Bucket of each stored file by the file's number; -1 for files without updates.
        inserts: Buckets of new rows by partition path.
        tasks: Number of the write task of each bucket.
    """

    schema: pa.Schema
    updates: tuple[int, ...]
    inserts: Mapping[str, InsertShares]
    tasks: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the numbers of their bucket and task.

        Raises:
            RowsChangedError: There is a row that wasn't counted.
        """
        form = assigned_schema(self.schema)
        by_file = np.array([*self.updates, _NOT_COUNTED], np.int32)
        tasks = np.array([*self.tasks, _NOT_COUNTED], np.int32)
        search = _InsertSearch(self.inserts)
        for rows in batches:
            if not rows.num_rows:
                continue
            refuse_without_key(rows)
            numbers = search.buckets(rows)
            if FILE in rows.schema.names:
                files = pc.fill_null(rows.column(FILE), _NOT_COUNTED).to_numpy()
                numbers = np.where(files == _NOT_COUNTED, numbers, by_file[files])
            if (numbers == _NOT_COUNTED).any():
                path = rows.column(PARTITION_PATH)[int(np.argmax(numbers == _NOT_COUNTED))].as_py()
                raise changed(path, "rows of a file group, or new rows, weren't counted")
            of_task = pa.array(tasks[numbers], pa.int32())
            added = {BUCKET: pa.array(numbers, pa.int32()), TASK: of_task}
            yield fill_from(form, rows, **added)


class _InsertSearch:
    """The shares of all partitions as one ascending array.

    The number n is added to the bounds of the n-th partition's shares, and to the hashes, as
    fractions, of the keys searched among them.
    """

    def __init__(self, inserts: Mapping[str, InsertShares]) -> None:
        self._paths = pa.array(inserts, pa.string())
        shares = list(inserts.values())
        raised = [at + np.asarray(each.bounds) for at, each in enumerate(shares)]
        self._bounds = np.concatenate([*raised, np.zeros(0)])
        numbers = [number for each in shares for number in each.numbers]
        self._numbers = np.array([*numbers, _NOT_COUNTED], np.int32)
        self._ranges = {at: each for at, each in enumerate(shares) if each.keys}

    def buckets(self, rows: pa.RecordBatch) -> _Numbers:
        """Return the bucket of each row; -1 if its partition has no shares. There must be rows."""
        begins = range(0, rows.num_rows, _PIECE_ROWS)
        return np.concatenate([self._found(rows.slice(each, _PIECE_ROWS)) for each in begins])

    def _found(self, rows: pa.RecordBatch) -> _Numbers:
        coded = rows.column(PARTITION_PATH).dictionary_encode()
        of_path = pc.fill_null(pc.index_in(coded.dictionary, value_set=self._paths), _NOT_COUNTED)
        at = of_path.to_numpy()[coded.indices.to_numpy()]
        wanted = at + rows.column(KEY_HASH).to_numpy() / _HASHES
        found = self._numbers[np.searchsorted(self._bounds, wanted, "right")]
        for path in self._ranges.keys() & set(at.tolist()):
            shares, here = self._ranges[path], np.flatnonzero(at == path)
            keys = rows.column(RECORD_KEY).take(pa.array(here)).to_pylist()
            # Python orders texts by code points, which is the order of their UTF-8 bytes.
            found[here] = [shares.numbers[bisect_right(shares.keys, key)] for key in keys]
        return np.where(at == _NOT_COUNTED, np.int32(_NOT_COUNTED), found)

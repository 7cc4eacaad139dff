"""Assigns the rows of a write to file groups; pure functions of counts.

An update goes to the group that holds its key. Inserts first fill the *small* files of their
partition up to the maximum size, then open new groups; how many rows fit is estimated from the
record size of earlier commits. Tasks choose the group of each insert by a hash of its record key
over the groups' shares, so that a repeated task chooses the same.

Source: Hudi 1.2.0 ``UpsertPartitioner``, ``AverageRecordSizeEstimator``.
"""

from __future__ import annotations

import uuid
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from timeline.errors import UnsupportedTableError
from timeline.instant import Instant


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The newest base file of a group, as the tag tasks report it; ``size`` in bytes."""

    file_id: str
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class UpdateGroup:
    """Number of rows that update one stored file."""

    partition: str
    file_id: str
    base_file: str
    rows: int


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
    """A file group that the write adds one base file to.

    Attributes:
        base_file: Name of the base file that the new one replaces; ``None`` for a new group.
    """

    number: int
    partition: str
    file_id: str
    base_file: str | None = None


@dataclass(frozen=True, slots=True)
class InsertShares:
    """The buckets of one partition's inserts, and each one's share.

    Attributes:
        numbers: Numbers of the buckets.
        bounds: Upper bound of each bucket's share of [0, 1), ascending; the last is 1.
    """

    numbers: tuple[int, ...]
    bounds: tuple[float, ...]

    def pick(self, key: str) -> int:
        """Return the bucket of a new record by its key's hash."""
        at = bisect_right(self.bounds, zlib.crc32(key.encode()) / 2**32)
        return self.numbers[min(at, len(self.numbers) - 1)]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Buckets by number; bucket by (partition, file id) of updates, by partition of inserts."""

    buckets: tuple[Bucket, ...] = ()
    updates: Mapping[tuple[str, str], int] = field(default_factory=dict)
    inserts: Mapping[str, InsertShares] = field(default_factory=dict)


class _Builder:
    """Opens buckets and numbers them in that order."""

    def __init__(self, new_file_id: Callable[[], str]) -> None:
        self.buckets: list[Bucket] = []
        self.updates: dict[tuple[str, str], int] = {}
        self._new_file_id = new_file_id

    def stored(self, partition: str, file_id: str, base_file: str) -> int:
        """Return the bucket of a stored group, opening it on first use."""
        known = self.updates.get((partition, file_id))
        if known is not None:
            return known
        self.updates[partition, file_id] = len(self.buckets)
        return self._open(partition, file_id, base_file)

    def new(self, partition: str) -> int:
        """Open the bucket of a new group."""
        return self._open(partition, self._new_file_id(), None)

    def _open(self, partition: str, file_id: str, base_file: str | None) -> int:
        self.buckets.append(Bucket(len(self.buckets), partition, file_id, base_file))
        return len(self.buckets) - 1


def assign(
    updates: Iterable[UpdateGroup],
    inserts: Mapping[str, int],
    stored: Mapping[str, Iterable[StoredFile]],
    sizing: Sizing,
    new_file_id: Callable[[], str],
) -> Assignment:
    """Assign the rows of a write to buckets.

    Args:
        updates: Groups that have rows to update.
        inserts: Partition → number of new records.
        stored: Partition → files that may take inserts (none under a pending clustering).
        sizing: Sizes of files and records.
        new_file_id: Makes the id of a new group.
    """
    build = _Builder(new_file_id)
    for group in sorted(updates, key=lambda group: (group.partition, group.file_id)):
        build.stored(group.partition, group.file_id, group.base_file)
    shares = {
        partition: _share(build, partition, rows, stored.get(partition, ()), sizing)
        for partition, rows in sorted(inserts.items())
        if rows
    }
    return Assignment(tuple(build.buckets), build.updates, shares)


def _share(
    build: _Builder, partition: str, rows: int, stored: Iterable[StoredFile], sizing: Sizing
) -> InsertShares:
    """Distribute one partition's inserts: first to small files, then evenly to new groups."""
    taken: list[tuple[int, int]] = []
    left = rows
    for file in sorted(stored, key=lambda file: (file.size, file.file_id)):
        fits = min(sizing.room(file.size), left)
        if file.size < sizing.small_file_bytes and fits > 0:
            taken.append((build.stored(partition, file.file_id, file.name), fits))
            left -= fits
    groups = -(-left // max(sizing.room(0), 1))
    for number in range(groups):
        # The first groups take one record more if the number isn't divisible.
        taken.append((build.new(partition), left // groups + (number < left % groups)))
    bounds = tuple(total / rows for total in accumulate(count for _, count in taken))
    return InsertShares(tuple(number for number, _ in taken), bounds)


def refuse_clustered(
    updates: Iterable[UpdateGroup], clustered: Mapping[tuple[str, str], Instant]
) -> None:
    """Check that no update goes to a file group that a pending clustering replaces.

    Args:
        updates: The groups with updates.
        clustered: (partition, file id) → the pending clustering.

    Raises:
        UnsupportedTableError: One does.
    """
    for group in updates:
        instant = clustered.get((group.partition, group.file_id))
        if instant is not None:
            raise UnsupportedTableError(
                f"{group.rows} rows of this write update file group {group.file_id} of partition"
                f" {group.partition!r}, which is in the pending clustering"
                f" {instant.requested_time}",
                hint="let the clustering finish, or roll it back",
            )


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


def new_file_id() -> str:
    """Return the id of a new file group."""
    return f"{uuid.uuid4()}-0"

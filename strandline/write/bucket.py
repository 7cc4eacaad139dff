"""Which file group every row of a write goes to: a pure decision from counts.

An update goes to the group that holds its key. Inserts first fill the *small* files of their
partition up to the maximum size, then open new groups; how many rows fit is estimated from the
record size that earlier commits showed. Which insert goes to which of these groups is decided in
the tasks by a hash of the record key over the groups' shares, so that a task that runs twice
decides the same.

Source: Hudi 1.2.0 ``UpsertPartitioner``, ``AverageRecordSizeEstimator``.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The newest base file of a group as the tag tasks report it. ``size`` in bytes."""

    file_id: str
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class UpdateGroup:
    """Rows that belong to one stored file."""

    partition: str
    file_id: str
    base_file: str
    rows: int


@dataclass(frozen=True, slots=True)
class Sizing:
    """How big files should get; sizes in bytes.

    Attributes:
        max_file_bytes: ``hoodie.parquet.max.file.size``.
        small_file_bytes: ``hoodie.parquet.small.file.limit``; 0 never adds to stored files.
        record_bytes: What one record takes in a file, estimated.
    """

    max_file_bytes: int
    small_file_bytes: int
    record_bytes: int

    def room(self, size: int) -> int:
        """Return how many records still fit into a file of ``size`` bytes."""
        return max((self.max_file_bytes - size) // self.record_bytes, 0)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One file group that the write touches: one new base file.

    Attributes:
        base_file: Name of the base file that the new one supersedes; ``None`` for a new group.
    """

    number: int
    partition: str
    file_id: str
    base_file: str | None = None


@dataclass(frozen=True, slots=True)
class InsertShares:
    """Over which buckets the inserts of one partition spread.

    Attributes:
        numbers: Of the buckets.
        bounds: Upper bound of each bucket's share of [0, 1), ascending; the last is 1.
    """

    numbers: tuple[int, ...]
    bounds: tuple[float, ...]

    def pick(self, key: str) -> int:
        """Return the bucket for a new record."""
        if len(self.numbers) == 1:
            return self.numbers[0]
        at = bisect_right(self.bounds, zlib.crc32(key.encode()) / 2**32)
        return self.numbers[min(at, len(self.numbers) - 1)]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The decision: buckets by number, and how rows find theirs."""

    buckets: tuple[Bucket, ...] = ()
    updates: Mapping[tuple[str, str], int] = field(default_factory=dict)
    inserts: Mapping[str, InsertShares] = field(default_factory=dict)


class _Builder:
    """Buckets as they are opened, numbered in that order."""

    def __init__(self, new_file_id: Callable[[], str]) -> None:
        self.buckets: list[Bucket] = []
        self.updates: dict[tuple[str, str], int] = {}
        self._new_file_id = new_file_id

    def stored(self, partition: str, file_id: str, base_file: str) -> int:
        """Return the bucket of a stored group, opened if it isn't yet."""
        known = self.updates.get((partition, file_id))
        if known is not None:
            return known
        self.updates[partition, file_id] = len(self.buckets)
        return self._open(partition, file_id, base_file)

    def new(self, partition: str) -> int:
        """Open a bucket for a new group."""
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
    """Decide the buckets of a write.

    Args:
        updates: Groups that have rows to update.
        inserts: Partition → number of new records.
        stored: Partition → files that may take more records (none under a pending clustering).
        sizing: How big files should get.
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
    """Spread one partition's inserts: small files first, then as many new groups as it takes."""
    taken: list[tuple[int, int]] = []
    left = rows
    for file in sorted(stored, key=lambda file: (file.size, file.file_id)):
        fits = min(sizing.room(file.size), left)
        if file.size < sizing.small_file_bytes and fits > 0:
            taken.append((build.stored(partition, file.file_id, file.name), fits))
            left -= fits
    groups = -(-left // max(sizing.room(0), 1))
    for number in range(groups):
        # As even as whole records go: the first groups take one more.
        taken.append((build.new(partition), left // groups + (number < left % groups)))
    bounds = tuple(total / rows for total in accumulate(count for _, count in taken))
    return InsertShares(tuple(number for number, _ in taken), bounds)


def average_record_bytes(
    commits: Iterable[tuple[int, int]], *, default: int, threshold_bytes: float
) -> int:
    """Estimate what one record takes.

    Args:
        commits: (bytes written, records written) of completed commits, newest first.
        default: Answer when no commit tells.
        threshold_bytes: Commits that wrote no more than this don't tell: footers and filters
            outweigh the records in small files.

    Source: Hudi 1.2.0 ``AverageRecordSizeEstimator``.
    """
    for total_bytes, records in commits:
        if total_bytes > threshold_bytes and records > 0:
            return max(-(-total_bytes // records), 1)
    return default

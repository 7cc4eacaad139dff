"""Sums over a partition's files: how many groups, slices and files it has, and their bytes.

They are made from packed rows without making files, as nearly all groups are plain (see
``fsview.query.latest_json``): named by a UUID, with base files only, and with no plan pending.
Other groups are handed to the queries, whose answers the sums equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from struct import Struct, iter_unpack
from typing import Final

from fsview.files.group import PLAIN_FLAGS, is_plain
from fsview.files.partition import Groups, PartitionVersion
from fsview.files.row import BASE_BYTES, TEXT, UNKNOWN_SIZE, id_end, time_text, unpack_id
from fsview.model.file_group import FileSlice
from fsview.query.queries import all_file_groups, all_file_slices, latest_file_slices_before_or_on
from fsview.snapshot.snapshot import Snapshot

NEWEST: Final = "9" * 17
"""A time after all instants."""
_PACKED: Final = Struct(">7Q")
_ROW: Final = "BQI18x"
"""Flags, instant and size of a patterned row of a base file."""

Packed = bytes
"""Packed sums."""


@dataclass(frozen=True, slots=True)
class PartitionSums:
    """Sums over one partition or more.

    Attributes:
        partitions: Number of partitions.
        file_groups: Number of file groups that aren't replaced and have a committed slice.
        base_files: Base files of the newest slices.
        log_files: Logs of the newest slices.
        bytes: Size of these base and log files.
        slices: Committed slices of groups that aren't replaced.
        files: Files of groups that aren't replaced, committed or not.
    """

    partitions: int = 0
    file_groups: int = 0
    base_files: int = 0
    log_files: int = 0
    bytes: int = 0
    slices: int = 0
    files: int = 0

    def packed(self) -> Packed:
        """Return the sums as bytes, to be kept beside a partition's version."""
        return _PACKED.pack(*astuple(self))

    @classmethod
    def of_packed(cls, packed: Packed) -> PartitionSums:
        """Return the sums that ``packed`` returned."""
        return cls(*_PACKED.unpack(packed))

    @classmethod
    def total(cls, parts: Iterable[Packed]) -> PartitionSums:
        """Return the sum of packed sums."""
        columns = zip(*map(_PACKED.unpack, parts), strict=True)
        return cls(*map(sum, columns))


def partition_sums(s: Snapshot, v: PartitionVersion) -> PartitionSums:
    """Return the sums of one partition.

    Raises:
        StoreError: The files can't be read back.
        UnreadArchiveError: Only the archive shows which files are visible.
    """
    counts: Counter[str] = Counter(partitions=1)
    # Sizes of some files may be unknown, and rows don't tell which.
    if v.has_ghosts:
        _add_queried(s, v, counts)
    else:
        shown = _Shown(s)
        is_touched = bool(s.replaced.get(v.partition) or s.pending_compaction)
        for groups in v.read():
            rows = None if is_touched else _single_rows(groups)
            if rows is None or not _add_single(rows, counts, shown):
                _add(s, v.partition, groups, counts, shown)
    return PartitionSums(**counts)


_Head = tuple[int, int]
"""Flags and instant of a row."""


class _Shown(dict[_Head, bool | None]):
    """Head of a row → whether readers see a slice with only its base file.

    ``None``: only the query tells.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._snapshot = snapshot

    def __missing__(self, head: _Head) -> bool | None:
        flags, time = head
        instant, s = time_text(time, flags), self._snapshot
        self[head] = s.is_visible(instant) and (s.are_files_visible(instant) or None)
        return self[head]


def _single_rows(groups: Groups) -> Iterator[tuple[int, int, int]] | None:
    """Return the rows of groups that are all plain and of one row each, as after bulk inserts.

    ``None`` if they aren't. Their packed groups have one length, so they are read in one step.
    """
    data, bounds = groups
    if not bounds:
        return None
    start, end = bounds[0]
    length, head = end - start, id_end(data, start) - start
    starts = range(start, start + length * len(bounds), length)
    if length != head + BASE_BYTES or data[start] == TEXT or bounds[-1][1] != starts.stop:
        return None
    whole = data[start : starts.stop]
    if whole[::length] != whole[:1] * len(bounds) or [at for at, _ in bounds] != [*starts]:
        return None
    if whole[head::length].translate(None, PLAIN_FLAGS):
        return None
    return iter_unpack(f">{head}x{_ROW}", whole)


def _add_single(rows: Iterator[tuple[int, int, int]], counts: Counter[str], shown: _Shown) -> bool:
    """Add the sums of groups of one row each; return false, and add nothing, if a query must."""
    flags, times, columns = zip(*rows, strict=True)
    sizes: Sequence[int] = columns
    heads = [*zip(flags, times, strict=True)]
    by_head = {head: shown[head] for head in set(heads)}
    if None in by_head.values():
        return False
    if not all(by_head.values()):
        sizes = [size for head, size in zip(heads, sizes, strict=True) if by_head[head]]
    counts["files"] += len(heads)
    for name in ("file_groups", "base_files", "slices"):
        counts[name] += len(sizes)
    counts["bytes"] += sum(sizes)
    return True


def _add(s: Snapshot, partition: str, groups: Groups, counts: Counter[str], shown: _Shown) -> None:
    """Add the sums of some packed groups."""
    data, bounds = groups
    replaced, pending = s.replaced.get(partition), s.pending_compaction
    row = Struct(f">{_ROW}")
    found = slices = files = size = 0
    for start, end in bounds:
        first = id_end(data, start)
        heads: list[int] = []
        sizes: list[int] = []
        is_queried = not is_plain(data, start, first, end)
        if replaced or pending:
            file_id, _ = unpack_id(data, start)
            if replaced and file_id in replaced:
                continue
            is_queried = is_queried or (partition, file_id) in pending
        if not is_queried:
            for flags, time, row_bytes in row.iter_unpack(data[first:end]):
                is_shown = shown[flags, time]
                heads.append(time)
                if is_shown:
                    sizes.append(row_bytes)
                elif is_shown is None:
                    is_queried = True
            # Of two base files of one instant (a task that was tried twice) the last counts.
            is_queried = is_queried or len(set(heads)) < len(heads)
        if is_queried:
            _add_queried(s, PartitionVersion.of_group(partition, data[start:end]), counts)
            continue
        files += len(heads)
        if sizes:
            found += 1
            slices += len(sizes)
            size += sizes[-1]  # rows are in the order of their instants
    counts["file_groups"] += found
    counts["base_files"] += found
    counts["bytes"] += size
    counts["slices"] += slices
    counts["files"] += files


def _add_queried(s: Snapshot, v: PartitionVersion, counts: Counter[str]) -> None:
    """Add the sums of a version by the queries."""
    newest = latest_file_slices_before_or_on(s, v, NEWEST, include_pending_compaction=True)
    counts["file_groups"] += len(newest)
    counts["base_files"] += sum(found.base_file is not None for found in newest)
    counts["log_files"] += sum(len(found.log_files) for found in newest)
    counts["bytes"] += sum(map(slice_bytes, newest))
    counts["slices"] += len(all_file_slices(s, v))
    counts["files"] += sum(
        len(found.sizes) for group in all_file_groups(s, v) for found in group.slices
    )


def slice_bytes(found: FileSlice) -> int:
    """Return the size of a slice's files, as far as it is known."""
    return sum(size for size in found.sizes.values() if size != UNKNOWN_SIZE)

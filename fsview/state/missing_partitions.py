"""Which paths of a table are known to be no partitions.

A writer asks for a partition that it is about to make, so a path without files is held like any
partition, and not listed for every task that asks. But a caller may ask for any path, so the
number and the size of these are limited: the oldest are forgotten, and listed again when they are
asked for again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from fsview.files.partition import PartitionVersion

MOST_MISSING: Final = 8192
"""How many are remembered at most."""
MOST_MISSING_BYTES: Final = 16 << 20
"""What all of them may take together."""
_ENTRY_BYTES: Final = 1024
"""What one takes beside its path: an empty version, and its entries in mappings."""


@dataclass(frozen=True, slots=True)
class MissingPartitions:
    """Paths that callers asked for and that are no partitions of a table, in an LRU.

    Attributes:
        by_age: Path → bytes that it takes, oldest first; never changed.
        size_bytes: Sum of these.
    """

    by_age: Mapping[str, int] = field(default_factory=dict)
    size_bytes: int = 0

    def __contains__(self, partition: object) -> bool:
        return partition in self.by_age

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_age)

    def among(self, paths: Iterable[str], files: Mapping[str, PartitionVersion]) -> set[str]:
        """Return those of some paths that are missing, and still have no files.

        Args:
            paths: The paths.
            files: All versions held, by path.
        """
        return {p for p in paths if p in self.by_age and p in files and files[p].is_empty}

    def updated(
        self,
        listed: Iterable[PartitionVersion],
        missing: Collection[str],
        files: Mapping[str, PartitionVersion],
    ) -> tuple[MissingPartitions, list[str]]:
        """Return a copy with what was listed, without the oldest beyond the limits.

        Args:
            listed: What was listed.
            missing: The paths among it that are no partitions.
            files: All versions held, by path.

        Returns:
            The copy, and the paths forgotten that are held and still have no files.
        """
        # A copy: if the change can't be recorded, the caller keeps the old one.
        by_age, size_bytes = dict(self.by_age), self.size_bytes
        for version in listed:
            path = version.partition
            size_bytes -= by_age.pop(path, 0)
            if path in missing:
                by_age[path] = getsizeof(path) + _ENTRY_BYTES
                size_bytes += by_age[path]
        oldest: list[str] = []
        for path, size in by_age.items():
            if len(by_age) - len(oldest) <= MOST_MISSING and size_bytes <= MOST_MISSING_BYTES:
                break
            oldest.append(path)
            size_bytes -= size
        for path in oldest:
            del by_age[path]
        forgotten = [path for path in oldest if path in files and files[path].is_empty]
        return MissingPartitions(by_age, size_bytes), forgotten

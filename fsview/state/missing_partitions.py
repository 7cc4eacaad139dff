"""``MissingPartitions``: paths that callers asked for and that are no partitions, in an LRU.

A writer asks for a partition that it is about to make, so a path without files is held like any
partition, and not listed for every task that asks. But a caller may ask for any path, so the
number and the size of these are limited: the oldest are forgotten, and listed again when they are
asked for again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from sys import getsizeof
from typing import Final

from fsview.files.partition import PartitionVersion

MOST_MISSING: Final = 8192
"""How many are remembered at most."""
MOST_MISSING_BYTES: Final = 16 << 20
"""What all of them may take together."""
_ENTRY_BYTES: Final = 1024
"""What one takes beside its path: an empty version, and its entries in mappings."""


class MissingPartitions:
    """The missing partitions of one table, oldest first, with their sizes; not thread-safe."""

    def __init__(self) -> None:
        self._by_age: dict[str, int] = {}
        self._bytes = 0

    def __contains__(self, partition: object) -> bool:
        return partition in self._by_age

    def update(
        self,
        listed: Iterable[PartitionVersion],
        missing: Collection[str],
        files: Mapping[str, PartitionVersion],
    ) -> list[str]:
        """Note what was listed, and forget the oldest beyond the limits.

        Args:
            listed: What was listed.
            missing: The paths among it that are no partitions.
            files: All versions held, by path.

        Returns:
            Those forgotten that are held and still have no files.
        """
        for version in listed:
            path = version.partition
            self._bytes -= self._by_age.pop(path, 0)
            if path in missing:
                size = self._by_age[path] = getsizeof(path) + _ENTRY_BYTES
                self._bytes += size
        oldest = []
        for path, size in tuple(self._by_age.items()):
            if len(self._by_age) <= MOST_MISSING and self._bytes <= MOST_MISSING_BYTES:
                break
            oldest.append(path)
            del self._by_age[path]
            self._bytes -= size
        return [path for path in oldest if path in files and files[path].is_empty]

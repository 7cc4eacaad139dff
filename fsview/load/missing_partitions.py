"""``Strays``: paths that callers asked for and that are no partitions, remembered within limits.

A writer asks for a partition that it is about to make, so a path without files is remembered like
any partition, and not listed for every task that asks. But a caller may ask for any path: of those
that turned out to be nothing the oldest are forgotten, and listed again when they are asked for
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from sys import getsizeof
from typing import Final

from fsview.files.partition import PartitionVersion
from timeline.storage.base import checked_path

STRAYS: Final = 8192
"""How many are remembered at most."""
STRAY_BYTES: Final = 16 << 20
"""What those may take that are remembered."""
_ENTRY_BYTES: Final = 1024
"""What one takes beside its path: an empty version, and its places in mappings."""

PATH_CHARACTERS: Final = 4096
"""Longest path that is looked for; no file system has longer ones."""


class Strays:
    """The strays of one table, by age, with their sizes; its owner calls it under one lock."""

    def __init__(self) -> None:
        self._by_age: dict[str, int] = {}
        self._bytes = 0

    def __contains__(self, partition: object) -> bool:
        return partition in self._by_age

    def without(self, partitions: Iterable[str]) -> set[str]:
        """Return those that are no strays."""
        return {partition for partition in partitions if partition not in self._by_age}

    def heed(self, listed: Iterable[str], nothing: Collection[str]) -> None:
        """Take in what a listing found: which paths, and which of these are no partitions."""
        for partition in listed:
            self._bytes -= self._by_age.pop(partition, 0)
            if partition in nothing:
                size = self._by_age[partition] = getsizeof(partition) + _ENTRY_BYTES
                self._bytes += size

    def forget_oldest(self, files: Mapping[str, PartitionVersion]) -> list[str]:
        """Forget the oldest that are too many.

        Args:
            files: What is held of each path.

        Returns:
            Those that are held and have no files to this day.
        """
        oldest = []
        for partition, size in tuple(self._by_age.items()):
            if len(self._by_age) <= STRAYS and self._bytes <= STRAY_BYTES:
                break
            oldest.append(partition)
            del self._by_age[partition]
            self._bytes -= size
        return [p for p in oldest if p in files and files[p].is_empty]


def may_be_path(partition: str) -> bool:
    """Whether a storage can have something at a partition's path; else it has no files."""
    try:
        checked_path(partition)
    except ValueError:
        return False
    return len(partition) <= PATH_CHARACTERS

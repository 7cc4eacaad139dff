"""``Strays``: paths that callers asked for and that are no partitions, remembered within limits.

A writer asks for a partition that it is about to make, so a path without files is remembered like
any partition, and not listed for every task that asks. But a caller may ask for any path: of those
that turned out to be nothing the oldest are forgotten, and listed again when they are asked for
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from fsview.packed import PartitionVersion
from timeline.storage.base import checked_path

STRAYS: Final = 8192
"""How many are remembered."""

PATH_CHARACTERS: Final = 4096
"""Longest path that is looked for; no file system has longer ones."""


class Strays:
    """The strays of one table, by age; its owner calls it under one lock."""

    def __init__(self) -> None:
        self._by_age: dict[str, None] = {}

    def __contains__(self, partition: object) -> bool:
        return partition in self._by_age

    def without(self, partitions: Iterable[str]) -> set[str]:
        """Return those that are no strays."""
        return {partition for partition in partitions if partition not in self._by_age}

    def heed(self, listed: Iterable[str], nothing: Collection[str]) -> None:
        """Take in what a listing found: which paths, and which of these are no partitions."""
        for partition in listed:
            self._by_age.pop(partition, None)
            if partition in nothing:
                self._by_age[partition] = None

    def forget_oldest(self, files: Mapping[str, PartitionVersion]) -> list[str]:
        """Forget the oldest that are too many.

        Args:
            files: What is held of each path.

        Returns:
            Those that are held and have no files to this day.
        """
        oldest = list(islice(self._by_age, max(len(self._by_age) - STRAYS, 0)))
        for partition in oldest:
            del self._by_age[partition]
        return [p for p in oldest if p in files and files[p].is_empty]


def may_be_path(partition: str) -> bool:
    """Whether a storage can have something at a partition's path; else it has no files."""
    try:
        checked_path(partition)
    except ValueError:
        return False
    return len(partition) <= PATH_CHARACTERS

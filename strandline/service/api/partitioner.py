"""The remote partitioner: which Spark partition each bucket of a table's partition is written by.

The writers of a bucket index ask where the buckets of a partition path begin, and place bucket
``i`` at ``(beginning + i) mod partitions of the job``. Beginnings follow one another, so that the
buckets of several paths spread over all partitions of the job instead of all beginning at 0.

What counts is that all tasks of a job hear the same. So a beginning is never given up once it was
told; past ``MOST_BYTES`` it is computed from the path alone, and nothing is kept.

No table is named in a request, so two tables with the same paths share their beginnings, which
hurts nobody. Hudi's server keeps one beginning for a path whatever the two numbers are; here a path
has one for each pair, and jobs of different width don't disturb each other's spread.

Source: Hudi 1.2.0 ``RemotePartitionerHandler``, ``RemotePartitionHelper``.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from dataclasses import dataclass
from sys import getsizeof
from typing import Final
from zlib import crc32

from timeline.errors import InputError

MOST_BYTES: Final = 24 << 20
"""What the beginnings that are remembered may take: fifty thousand of paths of usual length."""
_ENTRY_BYTES: Final = 384
"""What one takes beside its path: objects and a dictionary slot."""

_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BucketRange:
    """The buckets of one partition path in a job of one width.

    Attributes:
        path: The partition path.
        buckets: How many it has.
        partitions: How many partitions the job has.
    """

    path: str
    buckets: int
    partitions: int


class RemotePartitioner:
    """Where buckets begin; ``_lock`` guards what was told, and what comes next for each width."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._told: dict[BucketRange, int] = {}
        self._next: dict[int, int] = defaultdict(int)

    def index(self, asked: BucketRange) -> int:
        """Return the partition of the job at which a path's buckets begin."""
        with self._lock:
            told = self._told.get(asked)
            if told is not None:
                return told
            size = getsizeof(asked.path) + _ENTRY_BYTES
            if self._bytes + size > self._most_bytes:
                return crc32(asked.path.encode()) % asked.partitions
            self._bytes += size
            first = self._next[asked.partitions]
            self._told[asked] = first
            self._next[asked.partitions] = (first + asked.buckets) % asked.partitions
            return first


def count_of(text: str, name: str) -> int:
    """Return a number of buckets or partitions.

    Raises:
        InputError: It isn't one.
    """
    if not _NUMBER.fullmatch(text) or not 0 < int(text) <= _LARGEST:
        raise InputError(f"{name} is {text[:100]!r}; allowed: a whole number from 1 to {_LARGEST}")
    return int(text)

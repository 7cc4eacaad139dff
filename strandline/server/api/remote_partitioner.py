"""``RemotePartitioner``: which Spark partition writes each bucket of a table's partition.

The writers of a bucket index ask for the start of a partition path, and write its bucket ``i`` in
Spark partition ``(start + i) mod n``. Starts are assigned one after another, so that the buckets of
several paths are spread over all ``n`` Spark partitions.

All tasks of a job must get the same start, so an assigned start is never dropped. Once they take
``MOST_BYTES``, further starts are hashes of the path, which need no memory.

Requests name no table, so tables with the same paths share starts, which is harmless. Hudi's server
has one start for a path; here a path has one for each pair of numbers, so that jobs of different
width don't disturb each other's spread.

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
"""Memory for starts: about fifty thousand paths of usual length."""
_ENTRY_BYTES: Final = 384
"""Memory of one start beyond its path: objects and a dictionary slot."""

_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BucketRange:
    """The buckets of one partition path in a job of one width.

    Attributes:
        path: The partition path.
        buckets: Number of its buckets.
        partitions: Number of Spark partitions of the job.
    """

    path: str
    buckets: int
    partitions: int


class RemotePartitioner:
    """Assigns starts; ``_lock`` guards the assigned ones, and the next one for each width."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._assigned: dict[BucketRange, int] = {}
        self._next: dict[int, int] = defaultdict(int)

    def index(self, asked: BucketRange) -> int:
        """Return the Spark partition of a path's first bucket."""
        with self._lock:
            assigned = self._assigned.get(asked)
            if assigned is not None:
                return assigned
            size = getsizeof(asked.path) + _ENTRY_BYTES
            if self._bytes + size > self._most_bytes:
                # Not ``hash``, which differs after a restart: a job's tasks need the same start.
                return crc32(asked.path.encode()) % asked.partitions
            self._bytes += size
            first = self._next[asked.partitions]
            self._assigned[asked] = first
            self._next[asked.partitions] = (first + asked.buckets) % asked.partitions
            return first


def count_of(text: str, name: str) -> int:
    """Parse a number of buckets or partitions.

    Raises:
        InputError: It is no number, or out of range.
    """
    if not _NUMBER.fullmatch(text) or not 0 < int(text) <= _LARGEST:
        raise InputError(f"{name} is {text[:100]!r}; allowed: a whole number from 1 to {_LARGEST}")
    return int(text)

"""A spillable store under load: ``python -m benchmarks.servers.resident FOLDER LIMIT_BYTES``.

The process fills a store with ten times its budget, in blobs of the size of packed chunks. Then it
reads and replaces random blobs; a hot tenth gets half of the reads. It prints one line of JSON: the
bytes that the budget counts and the growth of resident memory, at each of several moments.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from fsview.store.base import Blob, StoredChunk
from fsview.store.budget import Budget
from fsview.store.spill.area import SpillableStore, SpillArea
from timeline.malloc_trim import share_heap

TIMES = 10
SIZES = (4096, 8192)
BLOBS_A_COMMIT = 64
MOMENTS = 8
"""Number of measurements under load; one more is taken before it."""

PART = 4
"""A ``PART``-th of the blobs is replaced before each measurement, and as many are read."""


def grown(folder: Path, limit_bytes: int) -> tuple[list[int], list[int]]:
    """Return counted and resident bytes at each moment, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.servers.resident", str(folder), str(limit_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counted, resident = json.loads(done.stdout)
    return counted, resident


def main() -> None:
    """Measure as the command line says and print the figures."""
    folder, limit = Path(sys.argv[1]), int(sys.argv[2])
    share_heap()
    choice = random.Random(limit)
    warm = SpillArea(folder, Budget(1 << 20).account("records"), Budget(1 << 20))
    _load(SpillableStore(warm), [], choice, 100)  # imports count as memory from before
    before = _resident_bytes()
    budget = Budget(limit)
    store = SpillableStore(SpillArea(folder, budget.account("records"), budget))
    chunks: list[StoredChunk] = []
    held = 0
    while held < TIMES * limit:
        added = store.commit(_blobs(choice))
        held += sum(chunk.size for chunk in added)
        chunks += added
    counted, resident = [budget.used], [_resident_bytes() - before]
    for _ in range(MOMENTS):
        _load(store, chunks, choice, len(chunks) // BLOBS_A_COMMIT // PART)
        counted.append(budget.used)
        resident.append(_resident_bytes() - before)
    print(json.dumps((counted, resident)))


def _load(
    store: SpillableStore, chunks: list[StoredChunk], choice: random.Random, commits: int
) -> None:
    """Replace the blobs of some commits, and read as many in between."""
    for _ in range(commits):
        new = store.commit(_blobs(choice))
        if not chunks:
            chunks += new
        for chunk in new:
            chunks[choice.randrange(len(chunks))] = chunk
            hot = choice.random() < 0.5
            chunks[choice.randrange(len(chunks) // 10 + 1 if hot else len(chunks))].read()


def _blobs(choice: random.Random) -> list[Blob]:
    return [Blob(choice.randbytes(_size(choice)), "") for _ in range(BLOBS_A_COMMIT)]


def _size(choice: random.Random) -> int:
    return choice.randrange(*SIZES)


def _resident_bytes() -> int:
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Rss:"))


if __name__ == "__main__":
    main()

"""``ChunkCounts``: how many chunks a store has made of each handle."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from fsview.store.base import Handle


class ChunkCounts:
    """Counts chunks by handle; a blob is forgotten with its last chunk. Not thread-safe."""

    def __init__(self, forgotten: deque[Handle]) -> None:
        """Count none.

        Args:
            forgotten: Handles whose chunks have ended; other threads append to it at any time.
        """
        self._forgotten = forgotten
        self._counts: Counter[Handle] = Counter()

    def add(self, handles: Collection[Handle]) -> None:
        """Count another chunk of each handle."""
        self._counts.update(handles)

    def held(self, handles: Collection[Handle]) -> set[Handle]:
        """Return those that have a chunk, or had one at the last commit."""
        return {handle for handle in handles if handle in self._counts}

    @contextmanager
    def taken(self, most: int) -> Iterator[list[Handle]]:
        """Yield handles without chunks, which are forgotten still if the body raises.

        Args:
            most: Ends of chunks that are counted, the oldest first.
        """
        taken = []
        # Other threads append meanwhile: what they add waits for the next commit.
        for _ in range(min(len(self._forgotten), most)):
            handle = self._forgotten.popleft()
            self._counts[handle] -= 1
            if self._counts[handle] <= 0:
                del self._counts[handle]
                taken.append(handle)
        try:
            yield taken
        except BaseException:
            self.give_back(taken)
            raise

    def give_back(self, handles: Collection[Handle]) -> None:
        """Count a chunk of each handle that is forgotten: another may be made of it."""
        self._counts.update(handles)
        self._forgotten.extend(handles)

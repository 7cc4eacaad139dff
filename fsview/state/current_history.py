"""``CurrentHistory``: the history that requests are answered from, and which snapshots are in use.

A load brings forward what it listed from the snapshot at which it began; a client that is behind is
answered from its own, from which partitions may still have to be derived. A snapshot is in use for
as long as the ``Use`` is held.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from fsview.snapshot.history import MAX_LINKS_IN_USE, History
from fsview.snapshot.history_link import Link
from fsview.snapshot.snapshot import Snapshot
from fsview.store.budget import Share

SPARED: Final = 8
"""How many snapshots of each table stay however short memory is.

A client that is a few commits behind is answered without a read, and dropping them would free
little where packed files take the memory.
"""


class Use:
    """The use of a snapshot; it ends when this object is freed.

    Attributes:
        snapshot: The snapshot.
        has_ended: Whether it ended before that, as where a traceback still holds this object.
    """

    __slots__ = ("__weakref__", "has_ended", "snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.has_ended = False


class CurrentHistory:
    """The current history and the uses of its snapshots.

    ``_lock`` guards both. It is a lock apart from that of ``TableState``, as a request must not
    wait while a sync is published. ``show``, ``drop_oldest`` and ``count_filled`` are called under
    the lock of ``TableState``.

    Attributes:
        value: The history; ``None`` before the table was read.
    """

    def __init__(self, retained: int, share: Share) -> None:
        """Begin without a history; keep ``retained`` links and branches, beside those in use."""
        self.value: History | None = None
        self._lock = threading.Lock()
        self._uses: list[weakref.ref[Use]] = []
        self._retained = retained
        self._share = share

    @property
    def most_links(self) -> int:
        """How many links may be kept: a load may come to use the oldest of them."""
        return max(self._retained, MAX_LINKS_IN_USE)

    def show(self, history: History) -> History:
        """Replace the history by another, less its oldest links and branches; return that."""
        return self._show(history, self._retained, self._retained)

    def _show(self, history: History, links: int, branches: int) -> History:
        with self._lock:
            uses = (use() for use in self._uses)
            in_use = [use.snapshot for use in uses if use is not None and not use.has_ended]
            # Indexed before it is shown: the event loop looks snapshots up, and must not hash.
            kept = self.value = history.keeping(links, branches, in_use).indexed()
        self._share.hold(kept.retained_bytes)
        return kept

    def drop_oldest(self, *, in_memory: bool) -> int | None:
        """Drop what is kept for the client that is the furthest behind.

        That is the oldest snapshot; branches come after the snapshots, which lead to the newest.
        The last branch stays, and so do ``SPARED`` snapshots and what is in use.

        Args:
            in_memory: Whether the chunks that only it has are in memory, and so count.

        Returns:
            How many bytes that frees; ``None`` when nothing can be dropped.
        """
        history = self.value
        if history is None:
            return None
        links, branches, held = len(history.links), len(history.branches), self._share.held
        if links > SPARED:
            kept = self._show(history, links - 1, self._retained)
            # The oldest may be in use, and then stays.
            if len(kept.links) < links:
                chunks = _superseded(*history.links[:2]) if in_memory else 0
                return chunks + held - self._share.held
        if branches > 1:
            kept = self._show(history, links, branches - 1)
            if len(kept.branches) < branches:
                return held - self._share.held
        return None

    def count_filled(self, snapshot: Snapshot, size: int) -> None:
        """Count bytes that were filled in at a snapshot that isn't the newest any more."""
        if self.value is not None and snapshot.files is not self.value.newest.files:
            snapshot.files.filled_bytes += size
            self._share.hold(self._share.held + size)

    def use(self, find: Callable[[History], Snapshot | None]) -> Use | None:
        """Return a use of the snapshot that ``find`` returns, ``None`` if it finds none."""
        with self._lock:
            # Under one lock, so a snapshot that is found is in use before it can be dropped.
            found = None if self.value is None else find(self.value)
            return None if found is None else self._begin(found)

    def use_of(self, snapshot: Snapshot) -> Use:
        """Return a use of a snapshot, kept or not."""
        with self._lock:
            return self._begin(snapshot)

    @contextmanager
    def using(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """Have a snapshot in use within a block."""
        use = self.use_of(snapshot)
        try:
            yield snapshot
        finally:
            use.has_ended = True  # one store, which no interrupt can split

    def _begin(self, snapshot: Snapshot) -> Use:
        use = Use(snapshot)
        self._uses = [known for known in self._uses if known() is not None]
        # A weak reference: a thread that is interrupted, wherever that is, leaves nothing behind.
        self._uses.append(weakref.ref(use))
        return use


def _superseded(link: Link, following: Link) -> int:
    """Return how many bytes of chunks a snapshot holds that the following one doesn't."""
    first, second = link.snapshot.files.versions, following.snapshot.files.versions
    touched = () if following.step is None else following.step.touched
    kept = {id(c) for p in touched if p in second for c in second[p].parts}
    held = {id(c): c.size for p in touched if p in first for c in first[p].parts}
    return sum(size for key, size in held.items() if key not in kept)

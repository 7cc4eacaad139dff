"""``SnapshotsInUse``: which snapshots somebody works from, so that the way from there is kept.

A load brings forward what it listed from the snapshot at which it began; a client that is behind is
answered from its own, from which partitions may still have to be derived. A snapshot is in use for
as long as somebody holds the ``Use``, and no list of them keeps that alive: whoever is interrupted,
wherever that is, leaves nothing behind.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from fsview.snapshot.snapshot import Snapshot


class Use:
    """Somebody's work from a snapshot; over when nobody holds this any more.

    Attributes:
        snapshot: The snapshot.
        has_ended: Whether the work is over though somebody holds this, as a traceback may.
    """

    __slots__ = ("__weakref__", "has_ended", "snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.has_ended = False


class SnapshotsInUse:
    """The uses of one table's snapshots.

    ``lock`` guards them, and is held while another history is shown: what is found under it is in
    use before anybody can drop it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._uses: list[weakref.ref[Use]] = []

    def begin(self, snapshot: Snapshot) -> Use:
        """Return a new use; with the lock held."""
        use = Use(snapshot)
        self._uses = [known for known in self._uses if known() is not None]
        self._uses.append(weakref.ref(use))
        return use

    @property
    def snapshots(self) -> list[Snapshot]:
        """The snapshots in use; with the lock held."""
        uses = (known() for known in self._uses)
        return [use.snapshot for use in uses if use is not None and not use.has_ended]

    @contextmanager
    def using(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """Have a snapshot in use within a block."""
        with self.lock:
            use = self.begin(snapshot)
        try:
            yield snapshot
        finally:
            use.has_ended = True  # one store, which no interrupt can split

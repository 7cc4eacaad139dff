"""``Compactions``: manual compaction of a database in the background, when its files have grown.

Deleted keys stay in RocksDB's files until these are merged, and a store with few changes never has
so many files that RocksDB would merge them by itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from fsview.store.rocksdb.database import RocksDatabase
from fsview.store.rocksdb.error import RocksError

logger = logging.getLogger(__name__)

_GARBAGE_FACTOR: Final = 2
_GARBAGE_BYTES: Final = 32 << 20
"""A compaction is due when files have grown by twice their size after the last one, and by these
bytes."""


class Compactions:
    """The compactions of one database, at most one at a time, each in a thread of its own.

    The lock guards the figures of the last compaction, and whether one runs.

    Attributes:
        left_bytes: Size of the files after the last compaction that succeeded.
    """

    def __init__(
        self,
        database: RocksDatabase,
        name: str,
        left_bytes: int,
        failed: Callable[[RocksError], object],
    ) -> None:
        """Start no compaction yet.

        Args:
            database: The database.
            name: Name of the store, for its threads.
            left_bytes: Size of the files after the last compaction, of an earlier process perhaps.
            failed: Called with an error, unless it is that the database was closed.
        """
        self.left_bytes = left_bytes
        self._database = database
        self._name = name
        self._failed = failed
        self._lock = threading.Lock()
        self._runs = False
        self._failed_bytes = 0  # size of the files at the last failure, if none succeeded since

    def start_if_due(self) -> None:
        """Start a compaction if files have grown a lot since the last."""
        size = self._disk_bytes()
        with self._lock:
            # After a failure files must grow further: each attempt may rewrite all of them.
            grown = max(self.left_bytes * (1 + _GARBAGE_FACTOR), self._failed_bytes)
            if self._runs or size <= grown + _GARBAGE_BYTES:
                return
            self._runs = True
        name = f"compaction of {self._name}"
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as exc:  # the process may have no more threads
            # Given back, or no later commit would start a compaction.
            self._ended(None)
            self._failed(RocksError(str(exc)))

    def _run(self) -> None:
        left: int | None = None
        try:
            self._database.compact()
            left = self._database.disk_bytes()
        except RocksError as exc:
            # Closing stops a compaction on purpose.
            if not self._database.closed:
                self._failed(exc)
        finally:
            self._ended(left)

    def _ended(self, left: int | None) -> None:
        """Note the size of the files after a compaction, ``None`` after a failure."""
        size = self._disk_bytes()
        with self._lock:
            self._runs = False
            if left is None:
                self._failed_bytes = size
            else:
                self.left_bytes, self._failed_bytes = left, 0

    def _disk_bytes(self) -> int:
        """Return the size of the files, 0 once the database is closed."""
        try:
            return self._database.disk_bytes()
        except RocksError as exc:
            logger.debug("%s has no figures: %s", self._name, exc)
            return 0

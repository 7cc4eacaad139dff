"""``StorePlace``: the directory of a table's store, and setting aside one that can't be used.

::

    <directory>/sales-orders-0f3c…            the store
    <directory>/sales-orders-0f3c….lock       locked while opening; has the pid of the last opener
    <directory>/sales-orders-0f3c….aside-2    a store that couldn't be used; the last two are kept

A store is only replaced as a whole, while the lock file is held.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from timeline.errors import StoreError, StoreFullError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

KEPT_ASIDE: Final = 2

_DOUBT: Final = "DOUBT"
_SPARE_BYTES: Final = 1 << 20
_ASIDE: Final = ".aside-"
_HASH_DIGITS: Final = 16
_READABLE: Final = 40


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The directory of one table's store.

    Attributes:
        directory: Parent directory of all stores.
        name: Name of this store's directory.
    """

    directory: Path
    name: str

    @classmethod
    def of(cls, directory: Path, table_id: TableId) -> StorePlace:
        """Return the place of a table, named by its last folders and a hash of its id."""
        readable = re.sub("[^A-Za-z0-9_]+", "-", "-".join(table_id.path.split("/")[-2:]))
        digits = sha256(str(table_id).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
        return cls(directory, f"{readable.strip('-')[-_READABLE:]}-{digits}".lstrip("-"))

    @property
    def path(self) -> Path:
        """Path of the store."""
        return self.directory / self.name

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Lock out other processes that open this store or set it aside.

        Raises:
            StoreError: The directory can't be made or written to.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise _failed(f"the directory of stores {self.directory} can't be used", exc) from exc
        try:
            # RocksDB's own lock isn't enough: it lies inside the store and is renamed with it.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            # A process forked meanwhile shares the descriptor: closing it here wouldn't unlock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def make(self) -> bool:
        """Make the store's directory if need be; return whether it is empty.

        Raises:
            StoreError: It can't be made.
        """
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            # RocksDB must not make a database beside files of another one, whose logs it would
            # read.
            return not any(self.path.iterdir())
        except OSError as exc:
            raise _failed(f"the store {self.path} can't be made", exc) from exc

    def has_room(self) -> bool:
        """Whether its disk has room to open the store, which writes its logs into files."""
        try:
            place = os.statvfs(self.directory)
            logs = sum(log.stat().st_size for log in self.path.glob("*.log"))
        except OSError as exc:
            logger.debug("the free space at %s is unknown: %s", self.path, exc)
            return False
        return place.f_bavail * place.f_frsize >= logs + _SPARE_BYTES

    def hold(self) -> None:
        """Record that this process has the store open, for messages only.

        Raises:
            StoreError: It can't be recorded.
        """
        try:
            self._lock_file.write_text(f"{os.getpid()}\n")
        except OSError as exc:
            raise _failed(f"{self._lock_file} can't be written", exc) from exc

    def holder(self) -> str:
        """Return the process that opened the store last, as ``process 4711``."""
        try:
            pid = self._lock_file.read_text().strip()
        except OSError as exc:
            return f"a process ({exc})"
        return f"process {pid}" if pid.isdecimal() else "another process"

    def doubt(self, reason: str) -> None:
        """Have the store set aside when it is next opened."""
        # The store is open and can't be renamed now, so a file makes the next opening do it.
        try:
            (self.path / _DOUBT).write_text(reason)
        except OSError as exc:
            logger.warning("the store %s is damaged, but can't be marked so: %s", self.path, exc)

    def doubts(self) -> str | None:
        """Return the reason why the store must be set aside, ``None`` if there is none.

        Raises:
            StoreError: It can't be read.
        """
        try:
            # Empty if the process died, or the disk was full, before the reason was written.
            return (self.path / _DOUBT).read_text(errors="replace") or "it was found damaged"
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _failed(f"the store {self.path} can't be read", exc) from exc

    def set_aside(self, reason: str) -> None:
        """Rename the store, and delete all but the newest of those renamed before.

        Raises:
            StoreError: It can't be renamed.
        """
        earlier = sorted(self._aside())
        number = earlier[-1] + 1 if earlier else 1
        target = self.directory / f"{self.name}{_ASIDE}{number}"
        try:
            # Renamed before older ones are deleted: a crash in between leaves one too many.
            self.path.rename(target)
        except OSError as exc:
            what = f"the store {self.path} can't be served ({reason}) nor set aside"
            raise _failed(what, exc) from exc
        logger.warning("the store %s is set aside as %s: %s", self.path, target.name, reason)
        for old in earlier[: max(0, len(earlier) + 1 - KEPT_ASIDE)]:
            try:
                shutil.rmtree(self.directory / f"{self.name}{_ASIDE}{old}")
            except OSError as exc:
                logger.info("a store that was set aside can't be deleted: %s", exc)

    def _aside(self) -> Iterator[int]:
        """Yield the numbers of the stores set aside."""
        start = self.name + _ASIDE
        for entry in os.scandir(self.directory):
            number = entry.name.removeprefix(start)
            if number != entry.name and number.isdecimal():
                yield int(number)

    @property
    def _lock_file(self) -> Path:
        return self.directory / f"{self.name}.lock"


def _failed(what: str, exc: OSError) -> StoreError:
    full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
    return (StoreFullError if full else StoreError)(f"{what}: {exc}")

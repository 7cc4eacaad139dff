"""``FilePlace``: the path of a file of SQLite, which its servers lock, and setting it aside.

::

    views.db            the file; -wal and -shm beside it are SQLite's
    views.db.lock       locked by each server that has the file open; says which file that is, what
                        was found damaged in it, and of which version its tables are
    views.db.aside-2    a file that was damaged; the last two are kept

SQLite's own locks end with each transaction, so they don't show whether a server has a file open.
The lock isn't on the file itself: closing any descriptor of that would end SQLite's locks on it.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from fsview.store.sql.database import SCHEMA_VERSION
from fsview.store.sql.sqlite.session import APPLICATION_ID, SCHEMA
from timeline.errors import StoreError
from timeline.storage.local_files import identity_of

logger = logging.getLogger(__name__)

KEPT_ASIDE: Final = 2
_ASIDE: Final = ".aside-"
_SIDE_FILES: Final = ("-wal", "-shm", "-journal", "")
"""The file last: otherwise the others could be mistaken for those of the next file."""
_APPLICATION: Final = slice(68, 72)
_FORMATS: Final = slice(18, 20)
_SCHEMA_FORMAT: Final = slice(44, 48)
_SCHEMA_FORMATS: Final = range(5)
_HEAD_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
_SCHEMA_BYTES: Final = 1 << 16
_PAGE: Final = 4096
_VERSIONS: Final = range(1, 1_000_000)
_LOOKS: Final = 200
_LOOK_S: Final = 0.01


class FilePlace:
    """The path of a file; not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_file = path.with_name(f"{path.name}.lock")
        self._descriptor: int | None = None

    # Locks.

    def lock(self) -> bool:
        """Lock the file; return whether no other server has it open.

        Where it can't be locked, it counts as open elsewhere.
        """
        self.unlock()
        try:
            self._descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
            with suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            with suppress(BlockingIOError):  # another server starts: ``share`` waits for it
                fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as exc:
            logger.debug("%s can't be locked: %s", self._lock_file, exc)
            self.unlock()
        return False

    def is_locked(self) -> bool:
        """Whether this server has the lock, shared or not."""
        return self._descriptor is not None

    def share(self, wait: Callable[[float], object]) -> None:
        """Let others have the file open, too, but not set it aside.

        Waits, with ``wait``, for one that starts at this moment, but not for long: it may be
        stopped. Without the lock a file that is set aside meanwhile isn't used any more.
        """
        if self._descriptor is None:
            return
        for _ in range(_LOOKS):
            with suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            wait(_LOOK_S)
        logger.info("%s isn't locked, as another process keeps it", self._lock_file)

    def unlock(self) -> None:
        """End the lock; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # A process forked meanwhile shares the descriptor: closing it here wouldn't unlock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    # Damage.

    def is_ours(self) -> bool:
        """Whether the file is one of Strandline's by its content, though perhaps damaged.

        Only to be called without connections to it, whose locks that would end.
        """
        start = self._start()
        has_id = int.from_bytes(start[_APPLICATION], "big") == APPLICATION_ID
        return has_id or all(statement.encode() in start for statement in SCHEMA[:2])

    def is_known(self) -> bool:
        """Whether a server has opened this very file before, and no other program wrote it since.

        It is pages still, or nothing, or the beginning of a database; as of ``is_ours``.
        """
        if self.path.is_dir():
            return self._is_empty_directory()
        if self._noted()[0] != self._identity():
            return False
        start = self._start()
        is_cut = len(start) < _HEAD_BYTES and start.startswith(_MAGIC[: len(start)])
        return self.path.stat().st_size % _PAGE == 0 or is_cut or not any(start)

    def _start(self) -> bytes:
        """Return the beginning of the file; empty: it is none, or can't be read."""
        try:
            if not self.path.is_file():  # opening a pipe would wait
                return b""
            with self.path.open("rb") as file:
                return file.read(_SCHEMA_BYTES)
        except OSError:
            return b""

    def _is_empty_directory(self) -> bool:
        """Whether there is an empty directory where a server once had its file."""
        try:
            return bool(self._noted()[0]) and not os.listdir(self.path)
        except OSError:
            return False

    def damage(self) -> str:
        """Return what is damaged by the look of it, if it is ours or known; empty: nothing.

        SQLite takes what is noted as unreadable, or as of a program to come, as of ``is_ours``.
        """
        if noted := self.doubt():
            return noted
        if self.path.is_dir():
            return "it is an empty directory" if self._is_empty_directory() else ""
        if not self.is_ours():
            return ""
        start = self._start()
        if start[_FORMATS] not in (b"\1\1", b"\2\2", b""):
            return "its head names a format that isn't known"
        if int.from_bytes(start[_SCHEMA_FORMAT], "big") not in _SCHEMA_FORMATS:
            return "its head names a format of schemas that isn't known"
        for side in _SIDE_FILES[:-1]:
            beside = Path(f"{self.path}{side}")
            if beside.exists() and not beside.is_file():
                return f"{beside.name} beside it is no file"
        return ""

    def is_odd_version(self, version: int) -> bool:
        """Whether tables of another version are damage: there is none, or it was ours before."""
        identity, _, before = self._noted()
        is_changed = identity == self._identity() and before == str(SCHEMA_VERSION)
        return is_changed or version not in _VERSIONS

    def note(self, doubt: str = "") -> None:
        """Note that this file was opened, and what was found damaged in it."""
        if self._descriptor is None:
            return
        text = f"{self._identity()}\n{' '.join(doubt.split())}\n{SCHEMA_VERSION}\n"
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text.encode(errors="replace"), 0)
        except OSError as exc:  # then only its content shows it
            logger.debug("%s can't be written: %s", self._lock_file, exc)

    def doubt(self) -> str:
        """Return what was found damaged in this file; empty: nothing."""
        identity, doubt, _ = self._noted()
        return doubt if identity == self._identity() else ""

    def _noted(self) -> tuple[str, str, str]:
        """Return what was noted last: a file's identity, its damage, its version."""
        try:
            lines = self._lock_file.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        identity, doubt, version = [*lines, "", "", ""][:3]
        return identity, doubt, version

    def _identity(self) -> str:
        return repr(identity_of(str(self.path)))

    def set_aside(self, reason: str) -> None:
        """Rename the file, and delete all but the newest of those renamed before.

        Only while ``lock`` has returned true, and without connections.

        Raises:
            StoreError: It can't be renamed.
        """
        earlier = sorted(self._aside())
        target = f"{self.path}{_ASIDE}{earlier[-1] + 1 if earlier else 1}"
        try:
            for side in _SIDE_FILES:
                with suppress(FileNotFoundError):
                    os.rename(f"{self.path}{side}", f"{target}{side}")
        except OSError as exc:
            raise StoreError(f"{self.path} is damaged ({reason}), and stays: {exc}") from exc
        logger.warning("%s is set aside as %s: %s", self.path, Path(target).name, reason)
        for old in earlier[: max(0, len(earlier) + 1 - KEPT_ASIDE)]:
            for side in _SIDE_FILES:
                with suppress(OSError):
                    _delete(Path(f"{self.path}{_ASIDE}{old}{side}"))

    def _aside(self) -> Iterator[int]:
        """Yield the numbers of the files set aside."""
        start = f"{self.path.name}{_ASIDE}"
        for entry in os.scandir(self.path.parent):
            number = entry.name.removeprefix(start)
            if number != entry.name and number.isdecimal():
                yield int(number)


def _delete(path: Path) -> None:
    """Delete a file, or an empty directory that was in its place."""
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()

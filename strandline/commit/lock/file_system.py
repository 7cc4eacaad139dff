"""``FileSystemLock``: a lock file on a local or mounted file system, created exclusively.

The file ``lock`` is in ``.hoodie`` or the configured folder. It exists while the lock is held; its
text describes the holder, in the form of Hudi's ``LockInfo``, and is unique to an acquisition, so
that only the holder deletes it. Hudi itself leaves the file empty, and deletes any lock file when a
writer gives up waiting. A holder therefore reads it again before it relies on the lock.

Without an expiry, a killed holder's file stays until it is deleted by hand. With an expiry, any
writer may delete a file whose modification time is older. Among Strandline's writers an advisory
lock on the folder (``flock``) makes check and delete atomic; Hudi's writers don't take it.

Source: Hudi 1.2.0 ``FileSystemBasedLockProvider``, ``LockInfo``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import ClassVar, Final

from strandline.commit.lock.base import PollingProvider, Wait, poll
from timeline.clock import Clock
from timeline.errors import AlreadyExistsError, LockError, PathNotFoundError, StorageError
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

logger = logging.getLogger(__name__)

LOCK_FILE: Final = "lock"
_RELEASE_S: Final = 5.0
"""How long a release waits for other writers that are checking for an expired lock."""
_RELEASE_POLL_S: Final = 0.01


class FileSystemLock(PollingProvider):
    """A lock by one file.

    Args:
        folder: Local path of the folder of the lock file.
        expire_s: Age in seconds at which a lock file counts as abandoned; 0: never.
        interval_s: Seconds between two polls of the lock.
        clock: Measures time-outs and ages.
        wait: Waits between two polls.
        storage: The folder's storage, or that of a table in which the folder is.
        within: The folder's path in ``storage``; ``""`` if that is the folder's own storage.
    """

    name: ClassVar[str] = "FileSystemBasedLockProvider"

    def __init__(
        self,
        folder: str,
        expire_s: float = 0.0,
        interval_s: float = 1.0,
        clock: Clock | None = None,
        wait: Wait = time.sleep,
        storage: Storage | None = None,
        within: str = "",
    ) -> None:
        super().__init__(interval_s, clock, wait)
        self._folder = folder
        self._within = within
        self._path = f"{within}/{LOCK_FILE}" if within else LOCK_FILE
        self._expire_s = expire_s
        self._storage = (storage or LocalStorage(folder)).for_cause("lock")
        # Content of the file that this instance created, or may have created if a response was
        # lost.
        self._content: bytes | None = None
        self._held = False
        self._held_since = 0.0
        self._other = b""

    def _attempt(self) -> bool:
        if self._held:
            return True
        if self._expire_s:
            # Otherwise two writers could find the same expired file, and the second could delete
            # the file that the first has just created.
            with self._turn() as is_ours:
                return is_ours and self._look_and_create()
        return self._look_and_create()

    def _look_and_create(self) -> bool:
        found = self._read()
        if found is not None and found == self._content:
            # The create of an earlier attempt succeeded, but its response was lost.
            self._held = True
            return True
        if found is not None:
            self._other = found
            if not self._has_expired():
                return False
            self._storage.delete(self._path)
            logger.warning("deleted the expired lock file %s of %s", self.describe(), self.holder())
        self._held_since = self._clock.monotonic()
        self._content = _lock_info(self._clock)
        # If this raises, the file may exist nevertheless; the next attempt or `unlock` finds it.
        try:
            self._storage.create(self._path, self._content)
        except AlreadyExistsError:
            # NFS's client repeats a request whose response was lost, and then finds its own file.
            if self._read() != self._content:
                self._content = None
                return False
        self._held = True
        # Java checks before it creates a local file, and would overwrite one created in between.
        self._held = self.is_held()
        return self._held

    def unlock(self) -> None:
        """Delete the lock file if this instance created it."""
        if self._content is None:
            return
        if not self._expire_s:
            self._delete_own()
            return
        done = poll(self._delete_own_in_turn, _RELEASE_S, _RELEASE_POLL_S, self._clock, self._wait)
        if not done:
            raise LockError(f"the folder of {self.describe()} is locked by another process")

    def _delete_own_in_turn(self) -> bool:
        with self._turn() as is_ours:
            if is_ours:
                self._delete_own()
            return is_ours

    def _delete_own(self) -> None:
        was_held, self._held = self._held, False
        if self._read() != self._content:
            self._content = None
            if was_held:
                raise LockError(f"{self.describe()} was deleted or replaced while it was held")
            return
        try:
            self._storage.delete(self._path)
        except StorageError:
            # The response may have been lost after the deletion.
            if self._read() == self._content:
                raise
        self._content = None

    def is_held(self) -> bool:
        """Return whether the lock file is still the one created here, by reading it."""
        if not self._held:
            return False
        if self._expire_s and self._clock.monotonic() - self._held_since >= self._expire_s:
            return False
        try:
            return self._read() == self._content
        except StorageError:
            return False

    def describe(self) -> str:
        """Return the path of the lock file."""
        return f"{self._folder}/{LOCK_FILE}"

    def holder(self) -> str:
        """Return the thread named in another holder's file, and the file's modification time."""
        try:
            info = json.loads(self._other)
            return f"{info['lockThreadName']} since {info['lockCreateTime']}"
        except (ValueError, TypeError, KeyError, RecursionError):  # such as JSON nested too deeply
            return self._unnamed_holder()

    def _unnamed_holder(self) -> str:
        """Describe the holder of a file without content, as Hudi's is, by its modification time."""
        try:
            info = self._storage.stat(self._path)
        except StorageError:
            info = None
        if info is None:
            return ""
        return f"a writer that the file doesn't name, since {_local_time(info.mtime_ms)}"

    def advice(self) -> str:
        """Return how to remove the file of a killed writer."""
        setting = "hoodie.write.lock.filesystem.expire"
        if self._expire_s:
            return f"writers delete a file older than {setting}, {self._expire_s / 60:g} min"
        return (
            f"a killed writer leaves this file: delete it if no writer of the table is running, or"
            f" set {setting} in all of them"
        )

    def _read(self) -> bytes | None:
        try:
            return self._storage.read(self._path)
        except PathNotFoundError:
            return None

    def _has_expired(self) -> bool:
        info = self._storage.stat(self._path) if self._expire_s else None
        return info is not None and self._clock.now_ms() - info.mtime_ms > self._expire_s * 1000

    @contextmanager
    def _turn(self) -> Iterator[bool]:
        """Try to take the advisory lock on the folder; yield whether it is held. Never waits."""
        self._storage.make_dir(self._within)
        try:
            handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:  # such as EMFILE, or ESTALE of NFS
            raise LockError(f"{self._folder} can't be opened: {error.strerror}") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:
                    raise LockError(
                        f"{self._folder} can't be locked: {error.strerror}",
                        hint="set hoodie.write.lock.filesystem.expire to 0",
                    ) from error
                yield False
                return
            yield True
        finally:
            os.close(handle)  # which also unlocks it


def _lock_info(clock: Clock) -> bytes:
    """Return the content of a new lock file, in the form of Hudi's ``LockInfo``."""
    thread = threading.current_thread().name
    info = {
        "lockCreateTime": _local_time(clock.now_ms()),
        "lockThreadName": f"{thread} of {socket.gethostname()}:{os.getpid()} ({uuid.uuid4()})",
        "lockStacksInfo": [],
    }
    return json.dumps(info, indent=2, separators=(",", " : ")).encode()


def _local_time(epoch_ms: int) -> str:
    """Return a time in the form and the time zone of Hudi's ``LockInfo``."""
    return datetime.fromtimestamp(epoch_ms / 1000).isoformat(" ", "milliseconds")

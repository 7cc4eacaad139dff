"""``RocksError``: RocksDB's errors, classified by what callers can do about them.

rocksdict raises a bare ``Exception`` with RocksDB's text: the kind, the place and, if a system call
failed, the system's message.
"""

from __future__ import annotations

import errno
import os
from typing import Final

STALLED: Final = "Result incomplete"
"""Start of the message of a write that would have to wait."""

STOPPED: Final = "Shutdown in progress"
"""Start of messages after background work was stopped."""

_FULL: Final = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))
_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK, errno.EAGAIN, errno.EFBIG)
_OF_THE_SYSTEM: Final = tuple(map(os.strerror, (*_DENIED, *_SCARCE, errno.EIO)))
_LOCKED_HERE: Final = "lock hold by current process"
_LOCKED: Final = "While lock file"
_PASSING: Final = (STALLED, STOPPED, "Resource busy", "Operation")


class RocksError(Exception):
    """An error of RocksDB.

    Attributes:
        full: The disk is full.
        locked: The database is open elsewhere.
        corrupt: The directory doesn't hold a complete database, as far as RocksDB can tell.
    """

    def __init__(
        self, message: str, *, full: bool = False, locked: bool = False, corrupt: bool = False
    ) -> None:
        super().__init__(message)
        self.full = full
        self.locked = locked
        self.corrupt = corrupt

    @classmethod
    def of(cls, exc: Exception) -> RocksError:
        """Classify one of rocksdict's exceptions."""
        text = " ".join(str(exc).split())
        # Readers get a ``RuntimeError`` while another thread closes the database.
        if isinstance(exc, RuntimeError) or type(exc).__name__ == "DbClosedError":
            return cls("it is closed")
        # Within one process RocksDB reports its lock with the message of ENOLCK: test this first.
        if _LOCKED_HERE in text or (_LOCKED in text and os.strerror(errno.EAGAIN) in text):
            return cls(text, locked=True)
        if any(full in text for full in _FULL):
            return cls(text, full=True)
        of_the_system = text.startswith("IO error") and any(e in text for e in _OF_THE_SYSTEM)
        passes = of_the_system or text.startswith(_PASSING)
        return cls(text, corrupt=type(exc) is Exception and not passes)  # subclasses are Python's

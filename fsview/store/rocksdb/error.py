"""``RocksError``: what RocksDB reports, sorted by what can be done about it.

rocksdict raises a bare ``Exception`` with RocksDB's text: the kind, the place and, where the system
failed, the system's own words.
"""

from __future__ import annotations

import errno
import os
from typing import Final

STALLED: Final = "Result incomplete"
"""Begins what a write reports that would have to wait."""

STOPPED: Final = "Shutdown in progress"
"""Begins what is reported once background work was stopped."""

_FULL: Final = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))
_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK, errno.EAGAIN, errno.EFBIG)
_OF_THE_SYSTEM: Final = tuple(map(os.strerror, (*_DENIED, *_SCARCE, errno.EIO)))
_LOCKED_HERE: Final = "lock hold by current process"
_LOCKED: Final = "While lock file"
_PASSING: Final = (STALLED, STOPPED, "Resource busy", "Operation")


class RocksError(Exception):
    """What RocksDB reported.

    Attributes:
        full: The disk is full.
        locked: Another has the database open.
        corrupt: What lies there isn't a whole database, as far as RocksDB can tell.
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
        """Sort one of rocksdict's exceptions."""
        text = " ".join(str(exc).split())
        if isinstance(exc, RuntimeError) or type(exc).__name__ == "DbClosedError":
            return cls("it is closed")
        # RocksDB gives the words of ENOLCK to its own process, so this comes first.
        if _LOCKED_HERE in text or (_LOCKED in text and os.strerror(errno.EAGAIN) in text):
            return cls(text, locked=True)
        if any(full in text for full in _FULL):
            return cls(text, full=True)
        of_the_system = text.startswith("IO error") and any(e in text for e in _OF_THE_SYSTEM)
        passes = of_the_system or text.startswith(_PASSING)
        return cls(text, corrupt=type(exc) is Exception and not passes)  # others are Python's own

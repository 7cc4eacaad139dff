"""Which file a path names: one that is deleted or replaced while it is open is another one.

Nothing but SQLite may open a file of SQLite that a process has open: when any descriptor of a file
is closed, all locks that the process has on it end.
"""

from __future__ import annotations

import os
from pathlib import Path

Identity = tuple[int, int]
"""Device and inode."""


def identity_of(path: Path) -> Identity | None:
    """Return which file a path names; ``None`` if there is none, or that can't be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

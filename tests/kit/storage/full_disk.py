"""A file system without a free byte."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def fill(folder: Path) -> Path:
    """Take all space of a folder's small file system; return the file that takes it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    return filler

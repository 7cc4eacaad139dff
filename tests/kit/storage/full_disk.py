"""Full disks: a file system without a free byte, and writes that fail without one."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def fill(folder: Path) -> Path:
    """Take all space of a folder's small file system; return the file that takes it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    return filler


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let this process write no more than so many bytes to a file within the block."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

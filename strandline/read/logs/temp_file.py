"""``TempFile``: a temporary file without a name, written once, then mapped into memory.

The kernel can drop mapped pages and read them again, so they take no memory that others need.
``drop_pages`` also removes them from the process's resident memory, whose size may get a container
killed.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from timeline.errors import StorageError

BUDGET_BYTES: Final = 128 << 20
"""Memory limit for the logs of a slice, encoded, and the same again for their decoded records."""


@dataclass(frozen=True, slots=True)
class LogBudget:
    """The memory limit for a slice's logs.

    Attributes:
        size: Bytes of the logs, and the same again for their decoded records; the excess of either
            goes to temporary files.
        folder: Folder of these files; ``None``: the system's folder for temporary files.
    """

    size: int = BUDGET_BYTES
    folder: str | None = None


class TempFile:
    """A file that disappears when it is closed, or with the process; a context manager.

    Args:
        budget: Gives the folder, and the limit for messages.

    Attributes:
        end: Number of bytes written.

    Raises:
        StorageError: The file can't be made; also raised by the methods if the disk is full or
            fails.
    """

    def __init__(self, budget: LogBudget) -> None:
        self._budget = budget
        with self._errors():
            # Unnamed if the platform allows it, otherwise removed when it is closed; unbuffered, as
            # a buffer would be written again after an error.
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - closed by ``close``
                buffering=0, prefix="strandline-", dir=budget.folder
            )
        self.end = 0

    def __enter__(self) -> TempFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed; pyarrow asks files that it writes to."""
        return self._file.closed

    def write(self, data: bytes | pa.Buffer) -> int:
        """Write bytes at the end; return their number."""
        left = memoryview(data)
        with self._errors():
            while left:  # On a nearly full disk a part is written; the next call raises the reason.
                written = self._file.write(left)
                self.end += written
                left = left[written:]
        return len(memoryview(data))

    def mapped(self) -> mmap.mmap:
        """Map the content, which must not be empty; it stays until its last reference ends."""
        with self._errors():
            return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            folder = self._budget.folder or tempfile.tempdir or "the system's temporary folder"
            raise StorageError(
                f"a temporary file in {folder} can't be written: {exc}; it is needed for a file"
                f" slice whose logs take more than {self._budget.size} bytes of memory. Free space"
                " there, or set TMPDIR to another folder"
            ) from exc


def drop_pages(data: object) -> None:
    """Release pages of a file from resident memory; they are read again on demand.

    Args:
        data: A mapped file, or a view into it; other bytes are ignored.
    """
    mapped = data.obj if isinstance(data, memoryview) else data
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # Not on Windows.
        mapped.madvise(mmap.MADV_DONTNEED)

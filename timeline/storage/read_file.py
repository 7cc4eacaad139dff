"""``ReadFile``: an open file of fsspec whose errors are Strandline's, for ``pyarrow.PythonFile``.

Pyarrow passes errors of Python on as they are, and has an ``OSError`` of its own for content that
isn't valid: without this a file that is deleted while it is read can't be told from a damaged one.
"""

from __future__ import annotations

import io
from typing import Any

from timeline.storage.base import mapped_client_errors


class ReadFile(io.RawIOBase):
    """A file that is read at any position.

    Reading raises:
        PathNotFoundError: The file is gone.
        StorageUnavailableError: The file system can't be reached, or refuses.
    """

    def __init__(self, file: Any, full: str) -> None:
        """Wrap a file.

        Args:
            file: The file, which is closed with this one.
            full: Its path in the file system, for messages.
        """
        self._file = file
        self._full = full

    @property
    def size(self) -> int:
        """Its bytes; of files of object stores."""
        return int(self._file.size)

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position; return it."""
        with mapped_client_errors(self._full):
            return int(self._file.seek(offset, whence))

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; fewer only at the end of the file."""
        with mapped_client_errors(self._full):
            data: bytes = self._file.read(size)
            return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

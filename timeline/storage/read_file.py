"""``ReadFile``: an open file of fsspec whose errors are Strandline's, for ``pyarrow.PythonFile``.

pyarrow passes Python's errors on unchanged, but also raises ``OSError`` for invalid content.
Without this class a file deleted while it is read would be indistinguishable from a damaged one.
"""

from __future__ import annotations

import io
from typing import Any

from timeline.storage.client_error import mapped_client_errors


class ReadFile(io.RawIOBase):
    """A file with random access.

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
        """Its size in bytes; only for files of object stores."""
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

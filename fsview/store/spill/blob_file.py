"""``SpillFile``: an unlinked temporary file for blobs that memory has no room for."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from timeline.errors import StoreError

_NAME: Final = "blobs"


class SpillFile:
    """A file that several threads read and write at any offset.

    Attributes:
        path: Its path in messages.
    """

    def __init__(
        self, directory: Path | None = None, remove: Callable[[str], bool] | None = None
    ) -> None:
        """Make the file.

        Args:
            directory: Parent directory, made if need be; ``None`` is the system's for temporary
                files.
            remove: Removes the directory with the file in it, and returns whether it could.

        Raises:
            StoreError: The file can't be made.
        """
        remove = remove or _remove
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            own = tempfile.mkdtemp(prefix="strandline-spill-", dir=directory)  # mode 0700
            self.path = os.path.join(own, _NAME)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as exc:
            place = directory or tempfile.gettempdir()
            raise StoreError(f"no file to spill to can be made in {place}: {exc}") from exc
        # Without a name it disappears with the process, however that ends. NFS keeps an open file
        # under another name; there it is removed when it is closed.
        left = None if remove(own) else own
        # Closed when its last reference ends, so never while a thread reads.
        weakref.finalize(self, _close, self._descriptor, left, remove, os.getpid())

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, fewer if the file ends before.

        Raises:
            OSError: The disk failed.
        """
        blob = os.pread(self._descriptor, size, offset)
        while len(blob) < size:
            more = os.pread(self._descriptor, size - len(blob), offset + len(blob))
            if not more:
                break
            blob += more
        return blob

    def write(self, offset: int, blob: bytes) -> None:
        """Write all of a blob.

        Raises:
            OSError: The disk failed or is full; part of the blob may have been written.
        """
        written = os.pwrite(self._descriptor, blob, offset)
        while written < len(blob):
            # A nearly full disk writes a part; the next call raises the reason.
            written += os.pwrite(self._descriptor, memoryview(blob)[written:], offset + written)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes.

        Raises:
            OSError: The disk failed.
        """
        os.ftruncate(self._descriptor, size)


def _remove(own: str) -> bool:
    """Remove the file's name and directory; return whether both are gone."""
    try:
        os.unlink(os.path.join(own, _NAME))
        os.rmdir(own)
    except OSError:
        return not os.path.lexists(own)
    return True


def _close(descriptor: int, left: str | None, remove: Callable[[str], bool], pid: int) -> None:
    """Close the file; in the process that made it, remove what is left of it."""
    os.close(descriptor)
    # A fork closes only its copy of the descriptor: the file is still its parent's.
    if left is not None and os.getpid() == pid:
        remove(left)

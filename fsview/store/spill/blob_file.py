"""``SpillFile``: a file without a name, for blobs that memory has no room for.

It dies with the process: the name is taken away as soon as the file is open. File systems that
can't do so (NFS keeps such a file under another name in its directory) lose it when it is closed.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from timeline.errors import StoreError

_NAME: Final = "blobs"


class BlobFile(Protocol):
    """A file that is read and written anywhere, by several threads at a time.

    Attributes:
        path: What messages call it.
    """

    path: str

    def read(self, offset: int, size: int) -> bytes:
        """Return so many bytes from there on, fewer if the file ends before.

        Raises:
            OSError: The disk failed.
        """

    def write(self, offset: int, blob: bytes) -> None:
        """Write all of a blob.

        Raises:
            OSError: The disk failed or is full; part of the blob may have been written.
        """

    def truncate(self, size: int) -> None:
        """Cut off what lies behind so many bytes.

        Raises:
            OSError: The disk failed.
        """


class SpillFile:
    """A file in a directory of its own; see ``BlobFile``.

    It is closed when nobody refers to it any more, so never under a thread that reads.
    """

    def __init__(
        self, directory: Path | None = None, remove: Callable[[str], bool] | None = None
    ) -> None:
        """Make the file.

        Args:
            directory: Where; made if it isn't there. ``None``: where the system has such files.
            remove: What takes away the directory with the file in it, and returns whether it could.

        Raises:
            StoreError: It can't be made.
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
        left = None if remove(own) else own
        weakref.finalize(self, _close, self._descriptor, left, remove, os.getpid())

    def read(self, offset: int, size: int) -> bytes:
        """See ``BlobFile``."""
        blob = os.pread(self._descriptor, size, offset)
        while len(blob) < size:
            more = os.pread(self._descriptor, size - len(blob), offset + len(blob))
            if not more:
                break
            blob += more
        return blob

    def write(self, offset: int, blob: bytes) -> None:
        """See ``BlobFile``."""
        written = os.pwrite(self._descriptor, blob, offset)
        while written < len(blob):
            # A disk about to be full takes a part; the next call says why it takes no more.
            written += os.pwrite(self._descriptor, memoryview(blob)[written:], offset + written)

    def truncate(self, size: int) -> None:
        """See ``BlobFile``."""
        os.ftruncate(self._descriptor, size)


def _remove(own: str) -> bool:
    """Take away the file's name and directory; return whether both are gone."""
    try:
        os.unlink(os.path.join(own, _NAME))
        os.rmdir(own)
    except OSError:
        return not os.path.lexists(own)
    return True


def _close(descriptor: int, left: str | None, remove: Callable[[str], bool], pid: int) -> None:
    """Close the file; the process that made it removes what is left of it."""
    os.close(descriptor)
    if left is not None and os.getpid() == pid:
        remove(left)

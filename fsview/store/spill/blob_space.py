"""``BlobSpace``: blobs in one file, each with a checksum, in space that is reused.

A blob's *place* is one integer: offset, size and CRC-32. As three integers it would take three
times the memory, for every blob that has been spilled.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any, Final, NewType
from zlib import crc32

from fsview.store.spill.blob_file import SpillFile
from fsview.store.spill.free_space import Extents
from timeline.errors import StoreError

logger = logging.getLogger(__name__)

Place = NewType("Place", int)

_CRC_BITS: Final = 32
_SIZE_BITS: Final = 40


def _place(offset: int, blob: bytes) -> Place:
    return Place((offset << _SIZE_BITS | len(blob)) << _CRC_BITS | crc32(blob))


def _extent(place: Place) -> tuple[int, int]:
    """Return offset and size of a blob."""
    return place >> _CRC_BITS + _SIZE_BITS, size_of(place)


def size_of(place: Place) -> int:
    """Return the size of a blob."""
    return place >> _CRC_BITS & (1 << _SIZE_BITS) - 1


class BlobSpace:
    """The file and its used extents; thread-safe.

    ``_io`` is held while the file is written or cut, so that no cut removes what is being written.
    ``_lock`` guards the extents, and is taken second. Reads take neither.
    """

    def __init__(self, file: SpillFile) -> None:
        self._file = file
        self._extents = Extents()
        self._length = 0  # upper bound of the file's
        self._io = threading.Lock()
        self._lock = threading.Lock()

    def write(self, blob: bytes) -> Place:
        """Write a blob where there is room.

        Raises:
            OSError: It can't be written; the space is free again.
        """
        with self._io:
            with self._lock:
                offset = self._extents.allocate(len(blob))
            # Before the write, which may lengthen the file and then fail.
            self._length = max(self._length, offset + len(blob))
            try:
                self._file.write(offset, blob)
            except OSError:
                with self._lock:
                    self._extents.free([(offset, len(blob))])
                # A part may have been written: cutting gives its space back to a full disk.
                self._cut()
                raise
        return _place(offset, blob)

    def read(self, place: Place) -> bytes:
        """Return the blob of a place.

        Raises:
            StoreError: It can't be read or its checksum differs; names file and offset.
        """
        offset, size = _extent(place)
        where = f"{size} bytes at offset {offset} of {self._file.path}"
        try:
            # No lock: the extent of a blob that may be read isn't given to another.
            blob = self._file.read(offset, size)
        except OSError as exc:
            raise StoreError(f"can't read {where}: {exc}") from exc
        if len(blob) < size:
            raise StoreError(f"can't read {where}: the file ends after {len(blob)} of them")
        # Also so if the blob was forgotten since and its extent written again.
        if _place(offset, blob) != place:
            raise StoreError(f"{where} are damaged: the checksum differs")
        return blob

    def free(self, places: Iterable[Place]) -> None:
        """Free the space of blobs."""
        with self._lock:
            self._extents.free(map(_extent, places))

    def shrink(self) -> None:
        """Cut the file behind its last blob."""
        # Without a lock, as mostly nothing is to be cut; ``_cut`` looks again with it.
        if self._length > self._extents.end:
            with self._io:
                self._cut()

    def status(self) -> dict[str, Any]:
        """Return JSON values."""
        with self._lock:
            return {"file_bytes": self._length, "free_bytes": self._extents.free_bytes}

    def _cut(self) -> None:
        """Cut the file behind its last blob, with ``_io`` held."""
        with self._lock:
            # ``_io`` is held: nothing is allocated behind ``end`` before the file is cut.
            end = self._extents.end
        if self._length <= end:
            return
        try:
            self._file.truncate(end)
        except OSError as exc:
            logger.warning("%s can't be cut to %d bytes: %s", self._file.path, end, exc)
        self._length = end

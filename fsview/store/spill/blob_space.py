"""``BlobSpace``: blobs in one file, each with a checksum, in space that is reused.

A blob's *place* is one integer: offset, size and CRC-32. As three integers it would take three
times the memory, for every blob that has been spilled. The file (``SpillFile``) is temporary and
unlinked.

``Extents`` knows which parts of the file are used, without I/O. An extent is a start and a length
in bytes. Lengths are rounded up to whole units, so that freed extents fit blobs of about the same
size. Free space between extents are *holes*; no two holes touch, and none touches the end, so the
file needs to be no longer than ``end``. An allocation takes the smallest hole that fits, the first
such in the file; the file grows only if none fits.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import weakref
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NewType
from zlib import crc32

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


logger = logging.getLogger(__name__)

Place = NewType("Place", int)

_CRC_BITS: Final = 32
_SIZE_BITS: Final = 40

UNIT_BYTES: Final = 64
_FEW: Final = 16  # most extents that are freed one by one: each shifts three lists


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


def _rounded(size: int) -> int:
    return -(-size // UNIT_BYTES) * UNIT_BYTES


class Extents:
    """The used and free parts of one file; not thread-safe.

    Attributes:
        end: End of the last extent.
        free_bytes: Bytes of all holes.
    """

    def __init__(self) -> None:
        self.end = 0
        self.free_bytes = 0
        self._starts: list[int] = []  # of the holes, sorted
        self._sizes: list[int] = []  # of the same holes
        self._by_size: list[tuple[int, int]] = []  # (size, start) of the holes, sorted

    def allocate(self, size: int) -> int:
        """Allocate an extent of ``size`` bytes and return its start; 0 bytes allocate nothing.

        Cost: two bisections, and a shift of three lists with an entry for each hole.
        """
        size = _rounded(size)
        if not size:
            return 0
        fit = bisect_left(self._by_size, (size, 0))
        if fit == len(self._by_size):
            start = self.end
            self.end += size
            return start
        hole, start = self._by_size.pop(fit)
        at = bisect_left(self._starts, start)
        if hole == size:
            del self._starts[at], self._sizes[at]
        else:
            self._starts[at], self._sizes[at] = start + size, hole - size
            insort(self._by_size, (hole - size, start + size))
        self.free_bytes -= size
        return start

    def free(self, extents: Iterable[tuple[int, int]]) -> None:
        """Free extents, given as (start, the size that was allocated).

        Cost: as ``allocate`` for each if they are few, else proportional to the number of holes.
        """
        freed = [(start, _rounded(size)) for start, size in extents if size]
        if len(freed) <= _FEW:
            for start, size in freed:
                self._add(start, size)
        else:
            self._merge(freed)
        self._cut()

    def holes(self) -> Iterator[tuple[int, int]]:
        """Yield (start, size) of each hole, in file order."""
        return zip(self._starts, self._sizes, strict=True)

    def _add(self, start: int, size: int) -> None:
        """Add a hole, merged with its neighbours."""
        self.free_bytes += size
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and start + size == self._starts[at]:
            size += self._remove(at)
        if at and self._starts[at - 1] + self._sizes[at - 1] == start:
            at -= 1
            start = self._starts[at]
            size += self._remove(at)
        self._starts.insert(at, start)
        self._sizes.insert(at, size)
        insort(self._by_size, (size, start))

    def _remove(self, at: int) -> int:
        """Remove a hole; return its size."""
        start, size = self._starts.pop(at), self._sizes.pop(at)
        del self._by_size[bisect_left(self._by_size, (size, start))]
        return size

    def _merge(self, freed: list[tuple[int, int]]) -> None:
        """Add many holes at once by rebuilding all lists."""
        self._starts, self._sizes, holes = [], [], sorted([*self.holes(), *freed])
        for start, size in holes:
            if self._starts and self._starts[-1] + self._sizes[-1] == start:
                self._sizes[-1] += size
            else:
                self._starts.append(start)
                self._sizes.append(size)
        self._by_size = sorted(zip(self._sizes, self._starts, strict=True))
        self.free_bytes += sum(size for _, size in freed)

    def _cut(self) -> None:
        """Move the end before a hole that touches it; there is one at most, as holes are merged."""
        if self._starts and self._starts[-1] + self._sizes[-1] == self.end:
            self.end = self._starts[-1]
            self.free_bytes -= self._remove(len(self._starts) - 1)

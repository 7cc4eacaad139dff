"""A spill file in memory that fails or blocks on demand."""

from __future__ import annotations

import errno
import threading

from fsview.store.spill.blob_space import SpillFile
from tests.kit.concurrency.patience import PATIENCE_S


class FaultyFile(SpillFile):
    """A file in memory.

    Attributes:
        capacity: Size at which the disk is full; the part of a blob that fits is written.
        read_error: Raised by reads.
        write_error: Raised by writes, after half of a blob.
        cut_error: Raised by cuts.
        reading, writing: While cleared, they block reads or writes.
        waiting: Set while a thread is blocked.
    """

    path = "spilled/blobs"

    def __init__(self) -> None:
        self.content = bytearray()
        self.capacity = 1 << 40
        self.read_error: OSError | None = None
        self.write_error: OSError | None = None
        self.cut_error: OSError | None = None
        self.reading, self.writing, self.waiting = (threading.Event() for _ in range(3))
        self.reading.set()
        self.writing.set()
        self.reads: list[int] = []
        self.writes: list[int] = []
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> bytes:
        self._pass(self.reading)
        if self.read_error is not None:
            raise _anew(self.read_error)
        with self._lock:
            self.reads.append(offset)
            return bytes(self.content[offset : offset + size])

    def write(self, offset: int, blob: bytes) -> None:
        self._pass(self.writing)
        if self.write_error is not None:
            self._put(offset, blob[: len(blob) // 2])
            raise _anew(self.write_error)
        room = max(0, self.capacity - offset)
        self._put(offset, blob[:room])
        if len(blob) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.writes.append(offset)

    def truncate(self, size: int) -> None:
        if self.cut_error is not None:
            raise _anew(self.cut_error)
        with self._lock:
            del self.content[size:]

    def _put(self, offset: int, blob: bytes) -> None:
        with self._lock:
            self.content.extend(bytes(max(0, offset - len(self.content))))
            self.content[offset : offset + len(blob)] = blob

    def _pass(self, gate: threading.Event) -> None:
        if not gate.is_set():
            self.waiting.set()
            assert gate.wait(PATIENCE_S), "held up for too long"
            self.waiting.clear()


def _anew(error: OSError) -> OSError:
    """Return a copy: an exception that was raised keeps its callers' frames alive."""
    return OSError(*error.args)

"""``RocksDatabase``: an open RocksDB database, with workarounds for its binding.

The behaviour of rocksdict 0.3.29 that is worked around stands at the lines that do so. Every error
is a bare ``Exception`` with RocksDB's text: the kind, the place and, if a system call failed, the
system's message. ``RocksError`` classifies it by what callers can do about it.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

STALLED: Final = "Result incomplete"
"""Start of the message of a write that would have to wait."""

STOPPED: Final = "Shutdown in progress"
"""Start of messages after background work was stopped."""

_FULL: Final = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))
_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK, errno.EAGAIN, errno.EFBIG)
_OF_THE_SYSTEM: Final = tuple(map(os.strerror, (*_DENIED, *_SCARCE, errno.EIO)))
_LOCKED_HERE: Final = "lock hold by current process"
_LOCKED: Final = "While lock file"
_PASSING: Final = (STALLED, STOPPED, "Resource busy", "Operation")


class RocksError(Exception):
    """An error of RocksDB.

    Attributes:
        full: The disk is full.
        locked: The database is open elsewhere.
        corrupt: The directory doesn't hold a complete database, as far as RocksDB detects.
    """

    def __init__(
        self, message: str, *, full: bool = False, locked: bool = False, corrupt: bool = False
    ) -> None:
        super().__init__(message)
        self.full = full
        self.locked = locked
        self.corrupt = corrupt

    @classmethod
    def of(cls, exc: Exception) -> RocksError:
        """Classify one of rocksdict's exceptions."""
        text = " ".join(str(exc).split())
        # Readers get a ``RuntimeError`` while another thread closes the database.
        if isinstance(exc, RuntimeError) or type(exc).__name__ == "DbClosedError":
            return cls("it is closed")
        # Within one process RocksDB reports its lock with the message of ENOLCK: test this first.
        if _LOCKED_HERE in text or (_LOCKED in text and os.strerror(errno.EAGAIN) in text):
            return cls(text, locked=True)
        if any(full in text for full in _FULL):
            return cls(text, full=True)
        of_the_system = text.startswith("IO error") and any(e in text for e in _OF_THE_SYSTEM)
        passes = of_the_system or text.startswith(_PASSING)
        return cls(text, corrupt=type(exc) is Exception and not passes)  # subclasses are Python's


logger = logging.getLogger(__name__)

_WAIT_S: Final = 0.005
_STALLS: Final = 6000  # 30 s
_BORROWED: Final = 2000  # 10 s
_SPARE_BYTES: Final = 8 << 20  # with less free space, a failed flush is taken for a full disk

KeyWrites = Iterable[tuple[bytes, bytes | None]]
"""(key, content) in the order in which they are applied; ``None`` deletes the key."""


class RocksDatabase:
    """One open database; thread-safe, but not usable after a fork."""

    def __init__(self, library: Any, rdict: Any, written: Callable[[], None]) -> None:
        self.closed = False
        self._library = library
        self._written = written
        self._rdict = rdict
        # The finalizer flushes, which in a forked child hangs forever or writes into the parent's
        # files: this reference, leaked until ``close``, keeps it from running there.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(rdict))
        self._no_wait = library.WriteOptions()
        self._no_wait.no_slowdown = True
        self._failures = 0  # background errors up to the last write
        self._waiting = threading.Event()  # never set: its wait is an interruptible sleep

    def get(self, key: bytes) -> bytes | None:
        """Return the content of a key, ``None`` if it doesn't exist.

        Raises:
            RocksError: It can't be read.
        """
        try:
            content: bytes | None = self._rdict.get(key)
        except Exception as exc:
            raise RocksError.of(exc) from exc
        return content

    def items(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """Return (key, content) of the half-open key range [first, end), in order.

        Raises:
            RocksError: Some can't be read.
        """
        found: list[tuple[bytes, bytes]] = self._all(self._rdict.items, first, end)
        self._check_end(found[-1][0] if found else None, first, end)
        return found

    def keys(self, first: bytes, end: bytes) -> list[bytes]:
        """Return the keys of the half-open range [first, end), in order.

        Raises:
            RocksError: Some can't be read.
        """
        found: list[bytes] = self._all(self._rdict.keys, first, end)
        self._check_end(found[-1] if found else None, first, end)
        return found

    def _all(self, walk: Callable[..., Iterable[Any]], first: bytes, end: bytes) -> list[Any]:
        try:
            return list(walk(from_key=first, read_opt=self._up_to(end)))
        except Exception as exc:
            raise RocksError.of(exc) from exc

    def _check_end(self, last: bytes | None, first: bytes, end: bytes) -> None:
        """Check that no key follows the last one."""
        try:
            # A walk ends at a damaged block as at the last key, so the end is looked up by itself.
            rows = self._rdict.iter(self._up_to(end))
            rows.seek(first if last is None else last)
            if last is not None and rows.valid():
                rows.next()
            ended = not rows.valid()
            rows.status()
        except Exception as exc:
            rows = None  # else the exception's frame keeps it, and with it the database, open
            raise RocksError.of(exc) from exc
        if not ended:
            raise RocksError(f"reading ended before {end!r}")

    def _up_to(self, end: bytes) -> Any:
        options = self._library.ReadOptions()
        options.set_iterate_upper_bound(end)
        return options

    def write(self, changes: KeyWrites, cleared: tuple[bytes, bytes] | None = None) -> None:
        """Apply all changes atomically; they are in the log when this returns.

        Args:
            changes: The changes; iterated again after each wait.
            cleared: Half-open key range to be deleted before.

        Raises:
            RocksError: No change was made.
        """
        for _ in range(_STALLS):
            try:
                # While flushes fail because the disk is full, a write that may wait waits forever.
                self._rdict.write(self._batch(changes, cleared), self._no_wait)
            except Exception as exc:
                error = RocksError.of(exc)
                # A stalled write changed nothing, so it can be repeated.
                if not str(error).startswith(STALLED):
                    raise error from exc
            else:
                self._failures = self._number("rocksdb.background-errors")
                self._written()
                return
            # A flush has failed since the last write: the stall won't end by waiting.
            if self._number("rocksdb.background-errors") > self._failures:
                break
            self._waiting.wait(_WAIT_S)
        full = self._free_bytes() < _SPARE_BYTES
        why = "the disk is full" if full else "see its file LOG"
        raise RocksError(
            f"writes are stalled, as its buffers can't be flushed to files: {why}", full=full
        )

    def _batch(self, changes: KeyWrites, cleared: tuple[bytes, bytes] | None) -> Any:
        batch = self._library.WriteBatch(raw_mode=True)
        if cleared is not None:
            batch.delete_range(*cleared)
        for key, content in changes:
            if content is None:
                batch.delete(key)
            else:
                batch.put(key, content)
        return batch

    def flush(self) -> None:
        """Start to flush the write buffer.

        Raises:
            RocksError: It is closed.
        """
        try:
            self._rdict.flush(False)
        except Exception as exc:
            raise RocksError.of(exc) from exc

    def buffered_bytes(self) -> int:
        """Return the bytes of the write buffer that aren't being flushed yet.

        Raises:
            RocksError: It is closed.
        """
        return self._number("rocksdb.cur-size-active-mem-table")

    def compact(self) -> None:
        """Compact all files, freeing the space of deleted keys; slow, and stopped by ``close``.

        Raises:
            RocksError: It is closed.
        """
        options = self._library.CompactOptions()
        options.set_exclusive_manual_compaction(False)
        try:
            self._rdict.compact_range(None, None, options)
        except Exception as exc:
            raise RocksError.of(exc) from exc

    def disk_bytes(self) -> int:
        """Return the size of the files in bytes, without the log.

        Raises:
            RocksError: It is closed.
        """
        return self._number("rocksdb.live-sst-files-size")

    def resident_bytes(self) -> int:
        """Return the bytes of write buffers and of open files' tables, without cached blocks.

        Raises:
            RocksError: It is closed.
        """
        buffers = self._number("rocksdb.cur-size-all-mem-tables")
        return buffers + self._number("rocksdb.estimate-table-readers-mem")

    def close(self) -> None:
        """Close the database, waiting for readers in other threads."""
        # Set first: a compaction that this stops must see that its failure is none.
        self.closed = True
        rdict = self._rdict
        try:
            # Before closing, which flushes: on a full disk it would wait forever.
            rdict.cancel_all_background(True)
        except Exception as exc:  # noqa: BLE001 - rocksdict raises nothing narrower
            logger.warning("RocksDB's background work can't be stopped: %s", exc)
        for _ in range(_BORROWED):
            try:
                # Fails while another thread reads; a reader gets a ``RuntimeError`` meanwhile.
                rdict.close()
            except RuntimeError:  # another thread reads
                self._waiting.wait(_WAIT_S)
                continue
            except Exception as exc:  # noqa: BLE001 - rocksdict raises nothing narrower
                # Closing flushes, which has just been stopped: the log has everything.
                if STOPPED not in str(exc):
                    logger.warning("RocksDB closed with an error: %s", exc)
            # The finalizer has nothing left to flush, so the leaked reference may end.
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(rdict))
            return
        logger.warning("a database of RocksDB stays open: a thread still reads it")

    def _number(self, name: str) -> int:
        try:
            return int(self._rdict.property_int_value(name) or 0)
        except Exception as exc:
            raise RocksError.of(exc) from exc

    def _free_bytes(self) -> int:
        try:
            place = os.statvfs(self._rdict.path())
        except OSError as exc:
            raise RocksError(f"the free space of its disk is unknown: {exc}") from exc
        return place.f_bavail * place.f_frsize

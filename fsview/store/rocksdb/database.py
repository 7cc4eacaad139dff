"""``RocksDatabase``: an open RocksDB, as far as a store needs one.

What it stands between, found by running rocksdict 0.3.29:

* whatever RocksDB reports is a bare ``Exception`` with its text: see
  ``fsview.store.rocksdb.error``;
* ``items()`` and ``keys()`` end at a damaged block as if nothing more came: so that is asked;
* while a flush fails, as the disk is full, a write waits for ever: ``write`` only waits for a flush
  that doesn't fail, and closing stops the background work first;
* ``close`` refuses while another thread reads, and readers meet a ``RuntimeError`` meanwhile;
* an object that goes out of use flushes, which in a forked child hangs for ever or writes into the
  parent's files: one reference is left over on purpose, so that it never goes out of use there.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from fsview.store.rocksdb.error import STALLED, STOPPED, RocksError

logger = logging.getLogger(__name__)

_WAIT_S: Final = 0.005
_STALLS: Final = 6000  # 30 s
_BORROWED: Final = 2000  # 10 s
_SPARE_BYTES: Final = 8 << 20  # a disk that has less is what writing to files failed for

Changes = Iterable[tuple[bytes, bytes | None]]
"""Key → content in the order in which they are made; ``None`` takes the key away."""


class RocksDatabase:
    """One open database; its methods may be called from several threads, but not after a fork."""

    def __init__(self, library: Any, rdict: Any, written: Callable[[], None]) -> None:
        self.closed = False
        self._library = library
        self._written = written
        self._rdict = rdict
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(rdict))  # see the module; given back by close
        self._no_wait = library.WriteOptions()
        self._no_wait.no_slowdown = True
        self._failures = 0  # of background work, as of the last write
        self._waiting = threading.Event()  # nobody sets it

    def get(self, key: bytes) -> bytes | None:
        """Return what a key has, ``None`` when it isn't there.

        Raises:
            RocksError: It can't be read.
        """
        try:
            content: bytes | None = self._rdict.get(key)
        except Exception as exc:
            raise RocksError.of(exc) from exc
        return content

    def items(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """Return keys in order, each with its content.

        Args:
            first: The least key that is wanted.
            end: The least that isn't any more.

        Raises:
            RocksError: Some can't be read.
        """
        found: list[tuple[bytes, bytes]] = self._all(self._rdict.items, first, end)
        self._check_end(found[-1][0] if found else None, first, end)
        return found

    def keys(self, first: bytes, end: bytes) -> list[bytes]:
        """Return keys in order; see ``items``.

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
        """See that nothing comes behind the last key; a walk ends at what it can't read, too."""
        try:
            rows = self._rdict.iter(self._up_to(end))
            rows.seek(first if last is None else last)
            if last is not None and rows.valid():
                rows.next()
            ended = not rows.valid()
            rows.status()
        except Exception as exc:
            rows = None  # or the exception's frame keeps it, and it the database
            raise RocksError.of(exc) from exc
        if not ended:
            raise RocksError(f"reading ended before {end!r}")

    def _up_to(self, end: bytes) -> Any:
        options = self._library.ReadOptions()
        options.set_iterate_upper_bound(end)
        return options

    def write(self, changes: Changes, cleared: tuple[bytes, bytes] | None = None) -> None:
        """Make all changes in one step that is in the log when this returns.

        Args:
            changes: See there; asked for again after a wait.
            cleared: Before them all keys are taken away from the first on, up to the second.

        Raises:
            RocksError: No change was made.
        """
        for _ in range(_STALLS):
            try:
                self._rdict.write(self._batch(changes, cleared), self._no_wait)
            except Exception as exc:
                error = RocksError.of(exc)
                if not str(error).startswith(STALLED):
                    raise error from exc
            else:
                self._failures = self._number("rocksdb.background-errors")
                self._written()
                return
            if self._number("rocksdb.background-errors") > self._failures:
                break
            self._waiting.wait(_WAIT_S)
        full = self._free_bytes() < _SPARE_BYTES
        why = "the disk is full" if full else "see its file LOG"
        raise RocksError(
            f"it takes no more, as what it has can't be written to files: {why}", full=full
        )

    def _batch(self, changes: Changes, cleared: tuple[bytes, bytes] | None) -> Any:
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
        """Begin to write to files what isn't there yet.

        Raises:
            RocksError: It is closed.
        """
        try:
            self._rdict.flush(False)
        except Exception as exc:
            raise RocksError.of(exc) from exc

    def buffered_bytes(self) -> int:
        """Return what isn't in files yet nor on its way there.

        Raises:
            RocksError: It is closed.
        """
        return self._number("rocksdb.cur-size-active-mem-table")

    def compact(self) -> None:
        """Give back all space of what was taken away; takes its time, stopped by ``close``.

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
        """Return the size of the files, without the log.

        Raises:
            RocksError: It is closed.
        """
        return self._number("rocksdb.live-sst-files-size")

    def resident_bytes(self) -> int:
        """Return what isn't in files yet and what is kept of open files, without cached blocks.

        Raises:
            RocksError: It is closed.
        """
        buffers = self._number("rocksdb.cur-size-all-mem-tables")
        return buffers + self._number("rocksdb.estimate-table-readers-mem")

    def close(self) -> None:
        """Stop and give back all; readers in other threads are waited for."""
        self.closed = True
        rdict = self._rdict
        try:
            rdict.cancel_all_background(True)
        except Exception as exc:  # noqa: BLE001 - rocksdict raises nothing narrower
            logger.warning("RocksDB's background work can't be stopped: %s", exc)
        for _ in range(_BORROWED):
            try:
                rdict.close()
            except RuntimeError:  # a reader is in it
                self._waiting.wait(_WAIT_S)
                continue
            except Exception as exc:  # noqa: BLE001 - rocksdict raises nothing narrower
                # It flushes, which has just been stopped: the log has all of it.
                if STOPPED not in str(exc):
                    logger.warning("RocksDB closed with an error: %s", exc)
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(rdict))
            return
        logger.warning("a database of RocksDB stays open: somebody reads it")

    def _number(self, name: str) -> int:
        try:
            return int(self._rdict.property_int_value(name) or 0)
        except Exception as exc:
            raise RocksError.of(exc) from exc

    def _free_bytes(self) -> int:
        try:
            place = os.statvfs(self._rdict.path())
        except OSError as exc:
            raise RocksError(f"its directory can't be asked: {exc}") from exc
        return place.f_bavail * place.f_frsize

"""RocksDB by ``rocksdict``: ``RocksDatabase``, and the memory that a service's databases share.

The behaviour of rocksdict 0.3.29 that is worked around stands at the lines that do so. Every error
is a bare ``Exception`` with RocksDB's text: the kind, the place and, if a system call failed, the
system's message. ``RocksError`` classifies it by what callers can do about it.

Deleted keys stay in RocksDB's files until these are merged, and a store with few changes never has
enough files for RocksDB to merge them by itself. So ``Compactions`` merges them in the background
when a database's files have grown.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from timeline.errors import ConfigError

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


MIN_CACHE_BYTES: Final = 1 << 20
_BUFFER_SHARE: Final = 4  # write buffers get a quarter of the cache
_BUFFER_BYTES: Final = 4 << 20  # largest write buffer of one database
_FILE_BYTES: Final = 8 << 20
_LEVEL_BYTES: Final = 16 << 20
_ARENA_BYTES: Final = 64 << 10  # write buffer of a database with few changes
_LOG_BYTES: Final = 1 << 20
_OPEN_FILES: Final = 128
_BLOOM_BITS: Final = 10
_GARBAGE_FACTOR: Final = 2
_GARBAGE_BYTES: Final = 32 << 20
"""A compaction is due when files have grown by twice their size after the last one, and by these
bytes."""


class RocksEngine:
    """The block cache and write buffers that the databases of a service share.

    Write buffers count as part of the cache. When they are full, RocksDB flushes only the database
    that is being written to, so ``relieve`` flushes the one with the largest buffer. The lock
    guards the list of open databases.

    Attributes:
        cache: The block cache, a ``rocksdict.Cache``.
    """

    def __init__(self, cache_bytes: int) -> None:
        """Load RocksDB.

        Raises:
            ConfigError: rocksdict isn't installed, or the size is too small.
        """
        try:
            self.library: Any = import_module("rocksdict")
        except ImportError as exc:
            raise ConfigError(
                f"stores in RocksDB need rocksdict, which can't be imported: {exc}",
                hint="pip install 'strandline[rocksdb]'",
            ) from exc
        if cache_bytes < MIN_CACHE_BYTES:
            raise ConfigError(
                f"RocksDB's cache has {cache_bytes} bytes; the minimum is {MIN_CACHE_BYTES}"
            )
        self._buffer_bytes = cache_bytes // _BUFFER_SHARE
        self.cache = self.library.Cache(cache_bytes)
        self._buffers = self.library.WriteBufferManager.new_write_buffer_manager_with_cache(
            self._buffer_bytes, False, self.cache
        )
        self._lock = threading.Lock()
        self._open: list[RocksDatabase] = []

    def open(self, path: Path, *, create: bool) -> RocksDatabase:
        """Open the database in an existing directory, or ``create`` one there.

        Raises:
            RocksError: It can't be opened.
        """
        options = self._options()
        options.create_if_missing(create)
        try:
            # Without column families rocksdict reads options, and a cache of its own, from a file.
            rdict = self.library.Rdict(str(path), options, column_families={"default": options})
        except Exception as exc:
            raise RocksError.of(exc) from exc
        database = RocksDatabase(self.library, rdict, self.relieve)
        with self._lock:
            self._open = [other for other in self._open if not other.closed] + [database]
        return database

    def relieve(self) -> None:
        """Start to flush the database with the largest buffer if all buffers are too large."""
        if self._buffers.get_usage() <= self._buffer_bytes:
            return
        with self._lock:
            databases = [database for database in self._open if not database.closed]
        # Outside the lock, so that opening a store needn't wait; a database closed meanwhile
        # raises.
        try:
            fullest = max(databases, key=RocksDatabase.buffered_bytes, default=None)
            if fullest is not None and fullest.buffered_bytes() > _ARENA_BYTES:
                fullest.flush()
        except RocksError as exc:
            logger.debug("a write buffer can't be flushed: %s", exc)  # closed, or the disk is full

    def close(self) -> None:
        """Free the cached blocks; databases that are still open continue without a cache."""
        self.cache.set_capacity(0)

    def _options(self) -> Any:
        library = self.library
        table = library.BlockBasedOptions()
        table.set_block_cache(self.cache)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_bloom_filter(_BLOOM_BITS, False)
        options = library.Options(raw_mode=True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(min(_BUFFER_BYTES, self._buffer_bytes))
        options.set_arena_block_size(_ARENA_BYTES)
        # Packed chunks are ids and times: lz4 and zlib save a fifth at best, and cost more time.
        options.set_compression_type(library.DBCompressionType.none())
        options.set_target_file_size_base(_FILE_BYTES)
        options.set_max_bytes_for_level_base(_LEVEL_BYTES)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_max_total_wal_size(2 * _BUFFER_BYTES)
        # After a crash the log ends at its last complete write: the state of an earlier commit.
        options.set_wal_recovery_mode(library.DBRecoveryMode.point_in_time())
        options.set_max_open_files(_OPEN_FILES)
        options.set_skip_stats_update_on_db_open(True)
        options.set_manifest_preallocation_size(_ARENA_BYTES)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(_LOG_BYTES)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        return options


class Compactions:
    """The compactions of one database, at most one at a time, each in a thread of its own.

    The lock guards the figures of the last compaction, and whether one runs.

    Attributes:
        left_bytes: Size of the files after the last compaction that succeeded.
    """

    def __init__(
        self,
        database: RocksDatabase,
        name: str,
        left_bytes: int,
        failed: Callable[[RocksError], object],
    ) -> None:
        """Start no compaction yet.

        Args:
            database: The database.
            name: Name of the store, for its threads.
            left_bytes: Size of the files after the last compaction, of an earlier process perhaps.
            failed: Called with an error, unless it is that the database was closed.
        """
        self.left_bytes = left_bytes
        self._database = database
        self._name = name
        self._failed = failed
        self._lock = threading.Lock()
        self._runs = False
        self._failed_bytes = 0  # size of the files at the last failure, if none succeeded since

    def start_if_due(self) -> None:
        """Start a compaction if files have grown a lot since the last."""
        size = self._disk_bytes()
        with self._lock:
            # After a failure files must grow further: each attempt may rewrite all of them.
            grown = max(self.left_bytes * (1 + _GARBAGE_FACTOR), self._failed_bytes)
            if self._runs or size <= grown + _GARBAGE_BYTES:
                return
            self._runs = True
        name = f"compaction of {self._name}"
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as exc:  # the process may have no more threads
            # Given back, or no later commit would start a compaction.
            self._ended(None)
            self._failed(RocksError(str(exc)))

    def _run(self) -> None:
        left: int | None = None
        try:
            self._database.compact()
            left = self._database.disk_bytes()
        except RocksError as exc:
            # Closing stops a compaction on purpose.
            if not self._database.closed:
                self._failed(exc)
        finally:
            self._ended(left)

    def _ended(self, left: int | None) -> None:
        """Note the size of the files after a compaction, ``None`` after a failure."""
        size = self._disk_bytes()
        with self._lock:
            self._runs = False
            if left is None:
                self._failed_bytes = size
            else:
                self.left_bytes, self._failed_bytes = left, 0

    def _disk_bytes(self) -> int:
        """Return the size of the files, 0 once the database is closed."""
        try:
            return self._database.disk_bytes()
        except RocksError as exc:
            logger.debug("%s has no figures: %s", self._name, exc)
            return 0

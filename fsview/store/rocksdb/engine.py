"""``RocksEngine``: the memory that a service's databases share, and the options of each.

Deleted keys stay in RocksDB's files until these are merged, and a store with few changes never has
enough files for RocksDB to merge them by itself. So ``Compactions`` merges them in the background
when a database's files have grown.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from fsview.store.rocksdb.database import RocksDatabase, RocksError
from timeline.errors import ConfigError

logger = logging.getLogger(__name__)

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

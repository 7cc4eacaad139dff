"""``SqliteState``: the state store of servers on one machine, in an SQLite file.

The file allows one writing transaction at a time. A thread that polls the keys finds the
changes of other processes within ``POLL_S``, and those of this one at once.

A row has a key, its value and version. A lease's row also has the holder's random bytes, the time
to live and the time of renewal, in milliseconds of the machine's monotonic clock. The version is a
counter in the file that grows with each write. Transactions are flushed when they are committed
(``synchronous=FULL``): otherwise a power failure could undo some, and their versions would be used
again.

Leases expire by the machine's monotonic clock, which all its processes share. So setting the wall
clock has no effect, and while the machine is suspended neither leases nor their holders age. A
restart sets the clock to zero: a lease whose renewal is in the future is from before it, and has
expired; one may also seem alive by chance, but not for longer than its time to live. Processes in
other time namespaces, and other machines, have other clocks: they must not share a file.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsview.store.sql.sqlite.pool import WRITE, OwnTables, SqlitePool
from strandline.fleet.state.base import Versioned
from strandline.fleet.state.sql import (
    PURPOSE,
    Holding,
    Looking,
    SqlState,
    StateRows,
    StoredKey,
    mapped,
)
from strandline.fleet.state.watches import Poller, Watches
from timeline.clock import Clock, SystemClock
from timeline.errors import StoreLockedError

POLL_S: Final = 0.1
BUSY_S: Final = 5.0
SCHEMA: Final = 1

_TABLES: Final = OwnTables(
    0x5374466C,  # "StFl"
    SCHEMA,
    frozenset({"last_version", "state"}),
    (
        "CREATE TABLE last_version (version INTEGER NOT NULL)",
        "INSERT INTO last_version VALUES (0)",
        "CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL,"
        " holder BLOB, renewed_ms INTEGER, ttl_ms INTEGER)",
    ),
)
_COLUMNS: Final = "SELECT key, version, holder, renewed_ms, ttl_ms FROM state"

NowMs = Callable[[], int]


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key as it was read.

    Attributes:
        version: Its version.
        holder: The random bytes of the lease; ``None`` if it isn't one; then the next two are 0.
        renewed_ms: When the lease was renewed.
        ttl_ms: Its time to live.
        value: Its value, if that was selected.
    """

    version: int
    holder: bytes | None
    renewed_ms: int | None
    ttl_ms: int | None
    value: bytes = b""

    def is_there(self, now_ms: int) -> bool:
        """Return whether the key exists: it isn't an expired lease.

        ``now_ms`` must be read after the row: a renewal in between would be in the future.
        """
        if self.renewed_ms is None or self.ttl_ms is None:
            return True
        return 0 <= now_ms - self.renewed_ms < self.ttl_ms


class SqliteRows(StateRows):
    """See ``StateRows``.

    Args:
        connection: The transaction's.
        now_ms: The machine's monotonic clock.
    """

    def __init__(self, connection: sqlite3.Connection, now_ms: NowMs) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def get(self, key: str) -> Versioned | None:
        """See ``StateRows``."""
        row = self._row(key)
        return None if row is None else Versioned(row.value, row.version)

    def find(self, *keys: str) -> dict[str, StoredKey]:
        """See ``StateRows``."""
        found = ((key, self._row(key)) for key in keys)
        return {key: StoredKey(row.version, row.holder) for key, row in found if row is not None}

    def all(self) -> dict[str, Versioned]:
        """See ``StateRows``."""
        asked = "SELECT key, version, holder, renewed_ms, ttl_ms, value FROM state"
        found = self._connection.execute(asked).fetchall()
        rows, now_ms = {key: KeyRow(*columns) for key, *columns in found}, self._now_ms()
        return {
            key: Versioned(row.value, row.version)
            for key, row in rows.items()
            if row.is_there(now_ms)
        }

    def next_version(self) -> int:
        """See ``StateRows``."""
        self._connection.execute("UPDATE last_version SET version = version + 1")
        found = self._connection.execute("SELECT version FROM last_version").fetchone()
        if found is None:
            raise sqlite3.DatabaseError("its table last_version is empty, so it is damaged")
        return int(found[0])

    def insert(self, key: str, value: bytes, version: int, holding: Holding | None = None) -> None:
        """See ``StateRows``."""
        row: tuple[object, ...] = (key, value, version, None, None, None)
        if holding is not None:
            row = (key, value, version, holding[0], self._now_ms(), round(holding[1] * 1000))
        self._connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?)", row)

    def update(self, key: str, value: bytes, version: int) -> None:
        """See ``StateRows``."""
        changed = "UPDATE state SET value = ?, version = ? WHERE key = ?"
        self._connection.execute(changed, (value, version, key))

    def renew(self, key: str, holder: bytes) -> int | None:
        """See ``StateRows``."""
        row = self._row(key)
        if row is None or row.holder != holder:
            return None
        renewed = "UPDATE state SET renewed_ms = ? WHERE key = ?"
        self._connection.execute(renewed, (self._now_ms(), key))
        return row.version

    def delete(self, key: str) -> None:
        """See ``StateRows``."""
        self._connection.execute("DELETE FROM state WHERE key = ?", (key,))

    def delete_ended(self) -> None:
        """See ``StateRows``."""
        self._connection.execute(
            "DELETE FROM state WHERE holder IS NOT NULL"
            " AND (:now < renewed_ms OR :now >= renewed_ms + ttl_ms)",
            {"now": self._now_ms()},
        )

    def _row(self, key: str) -> KeyRow | None:
        asked = "SELECT version, holder, renewed_ms, ttl_ms, value FROM state WHERE key = ?"
        found = self._connection.execute(asked, (key,)).fetchone()
        row = None if found is None else KeyRow(*found)
        return row if row is not None and row.is_there(self._now_ms()) else None


class FileLooks:
    """The versions of all keys, read again only when the file has changed.

    It has a connection of its own: ``data_version`` shows the changes of other connections. Used by
    one thread at a time.
    """

    def __init__(self, pool: SqlitePool, now_ms: NowMs) -> None:
        self._pool = pool
        self._now_ms = now_ms
        with mapped(), pool.mapped():
            self._connection = pool.connect()
        self._data_version = -1
        self._rows: dict[str, KeyRow] = {}

    def look(self) -> Mapping[str, int]:
        """Return key → version of the existing keys."""
        with mapped(), self._pool.mapped():
            (data_version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if data_version != self._data_version:
                found = self._connection.execute(_COLUMNS).fetchall()
                self._rows = {key: KeyRow(*columns) for key, *columns in found}
                # After the rows: if they can't be read, the next poll tries again.
                self._data_version = data_version
        now_ms = self._now_ms()
        return {key: row.version for key, row in self._rows.items() if row.is_there(now_ms)}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class SqliteState(SqlState):
    """A client; ``_transacting`` is held during a transaction, so one connection is in use.

    Args:
        path: The file, created if it doesn't exist; one for each fleet.
        clock: Its monotonic time must be that of all processes of the machine.
        poll_s: Seconds between two polls for changes of other processes.
        busy_s: How long a transaction waits for those of others.
        make: Whether a missing state store is created.

    Raises:
        ConfigError: The file can't be opened, isn't a state store, or has another schema.
        StateUnavailableError: Other processes keep it locked.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock | None = None,
        poll_s: float = POLL_S,
        busy_s: float = BUSY_S,
        *,
        make: bool = True,
    ) -> None:
        self._clock = clock or SystemClock()
        self._poll_s = poll_s
        self._pool = SqlitePool(path, _TABLES, timeout_s=busy_s, synchronous="FULL", make=make)
        self._transacting = threading.Lock()
        with mapped(lambda error: not isinstance(error, StoreLockedError)):
            self._pool.open()
        super().__init__(f"{PURPOSE} {path}")

    def _reading(self) -> AbstractContextManager[SqliteRows]:
        return self._transaction("BEGIN")

    def _writing(self) -> AbstractContextManager[SqliteRows]:
        return self._transaction(WRITE)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[SqliteRows]:
        with self._transacting, mapped(), self._pool.transaction(begin) as connection:
            yield SqliteRows(connection, self._now_ms)

    def _close(self) -> None:
        with self._transacting:
            self._pool.close()

    def _look_for(self, watches: Watches) -> Looking:
        with ExitStack() as unless_begun:
            looks = FileLooks(self._pool, self._now_ms)
            unless_begun.callback(looks.close)
            poller = Poller(looks.look, watches, self._poll_s, self._place)
            unless_begun.callback(poller.stop)
            return Looking(poller, unless_begun.pop_all().close)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

"""``SqliteState``: the state store of servers on one machine, in an SQLite file.

Each method is one transaction, of which ``StateFile`` lets one write at a time. A thread that
compares keys finds the changes of other processes within ``POLL_S``, and those of this one at once.

Leases end by the machine's monotonic clock, which all its processes share. So setting the wall
clock moves nothing, and while the machine is suspended neither leases nor their holders get older.
A restart sets it to zero: a lease whose renewal lies ahead is of an earlier run, and has ended; one
may also look alive by chance, but not for longer than its time to live. Processes in time
namespaces of their own, and other machines, have other clocks: they must not share a file.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from strandline.fleet.state.base import (
    ABSENT,
    Cancel,
    Delete,
    Lease,
    Op,
    Put,
    StateStore,
    Versioned,
    conflict,
)
from strandline.fleet.state.checks import (
    check_key,
    check_ops,
    check_prefix,
    check_ttl,
    check_value,
)
from strandline.fleet.state.sqlite_file import FileLooks, StateFile
from strandline.fleet.state.watches import Poller, Watches
from timeline.clock import Clock, SystemClock
from timeline.errors import StateUnavailableError

POLL_S: Final = 0.1
BUSY_S: Final = 5.0

logger = logging.getLogger(__name__)


class SqliteState(StateStore):
    """A client; ``_lock`` guards leases and what watches need, and is held while these begin.

    Args:
        path: The file, made if it isn't there; one for each fleet.
        clock: Its monotonic time must be that of all processes of the machine.
        poll_s: Seconds between two looks for changes of other processes.
        busy_s: How long a transaction waits for those of others.
        make: Whether a state store is made where there is none.

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
        self._path = path
        self._clock = clock or SystemClock()
        self._poll_s = poll_s
        self._busy_s = busy_s
        self._file = StateFile(path, self._now_ms, busy_s, make=make)
        self._lock = threading.Lock()
        self._leases: list[SqliteLease] = []
        self._watches = Watches()
        self._looks: FileLooks | None = None
        self._poller: Poller | None = None

    def get(self, key: str) -> Versioned | None:
        """Return a key's value and version; ``None`` if it isn't there."""
        check_key(key)
        with self._file.reading() as rows:
            row = rows.find(key)
        return None if row is None else Versioned(row.value, row.version)

    def children(self, key: str) -> tuple[str, ...]:
        """Return the names that follow a key in longer ones."""
        start = f"{check_key(key)}/" if check_prefix(key) else ""
        with self._file.reading() as rows:
            keys = rows.beginning_with(start)
        return tuple(sorted({longer[len(start) :].partition("/")[0] for longer in keys}))

    def write(self, *ops: Op) -> int:
        """Change keys, all or none; return the version that they have now."""
        check_ops(ops)
        with self._file.writing() as rows:
            for op in ops:
                row = rows.find(op.key)
                found = ABSENT if row is None else row.version
                if found != op.version:
                    raise conflict(op.key, found, op.version)
            version = rows.next_version()
            for op in ops:
                if isinstance(op, Delete):
                    rows.delete(op.key)
                elif isinstance(op, Put) and op.version == ABSENT:
                    rows.insert(op.key, op.value, version)
                elif isinstance(op, Put):
                    rows.update(op.key, op.value, version)
        self._changed()
        return version

    def hold(self, key: str, value: bytes, ttl_s: float) -> Lease:
        """Make a key that ends with this process."""
        check_value(check_key(key), value)
        ttl_ms = round(check_ttl(ttl_s) * 1000)
        holder = secrets.token_bytes(16)
        with self._file.writing() as rows:
            row = rows.find(key)
            if row is not None:
                raise conflict(key, row.version, ABSENT)
            rows.delete_ended()
            version = rows.next_version()
            rows.insert(key, value, version, holder, ttl_ms)
        lease = SqliteLease(self, key, version, holder)
        with self._lock:
            self._leases.append(lease)
        self._changed()
        return lease

    def watch(self, prefix: str, call: Callable[[], object]) -> Cancel:
        """Have a function called after each change of a key or of one below it."""
        check_prefix(prefix)
        with self._lock:
            self._file.check_open()
            if self._poller is None:
                looks = FileLooks(self._path, self._now_ms, self._busy_s)
                try:
                    self._poller = Poller(looks.look, self._watches, self._poll_s, str(self._path))
                except BaseException:
                    looks.close()
                    raise
                self._looks = looks
            return self._watches.add(prefix, call)

    def close(self) -> None:
        """End the watches, release the leases and close the file; may be repeated."""
        with self._lock:
            poller, self._poller = self._poller, None
            looks, self._looks = self._looks, None
            leases, self._leases = self._leases, []
        self._watches.clear()
        if poller is not None:
            poller.stop()
        if looks is not None:
            looks.close()
        try:
            for lease in leases:
                lease.release()
        except StateUnavailableError as error:
            logger.warning("leases end by themselves, they weren't released: %s", error)
        finally:
            self._file.close()

    def renew(self, lease: SqliteLease, value: bytes | None) -> int | None:
        """Renew a lease; return the key's version, ``None`` if it isn't held any more."""
        if value is not None:
            check_value(lease.key, value)
        if self._file.is_closed:
            return None
        with self._file.writing() as rows:
            row = rows.find(lease.key)
            if row is None or row.holder != lease.holder:
                self._forget(lease)
                return None
            version = row.version
            if value is not None:
                version = rows.next_version()
                rows.update(lease.key, value, version)
            rows.renew(lease.key)
        if value is not None:
            self._changed()
        return version

    def release(self, lease: SqliteLease) -> None:
        """Delete a lease if it is still held."""
        if self._file.is_closed:
            return
        with self._file.writing() as rows:
            row = rows.find(lease.key)
            if row is not None and row.holder == lease.holder:
                rows.delete(lease.key)
        self._forget(lease)
        self._changed()

    def _forget(self, lease: SqliteLease) -> None:
        with self._lock:
            self._leases = [each for each in self._leases if each is not lease]

    def _changed(self) -> None:
        poller = self._poller
        if poller is not None:
            poller.hurry()

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)


class SqliteLease(Lease):
    """A row with random bytes that only this lease has.

    Attributes:
        holder: The random bytes.
    """

    def __init__(self, state: SqliteState, key: str, version: int, holder: bytes) -> None:
        self._state = state
        self.key = key
        self.version = version
        self.holder = holder

    def renew(self, value: bytes | None = None) -> bool:
        """Keep the lease for another time to live; return whether it is held."""
        version = self._state.renew(self, value)
        if version is not None and value is not None:
            self.version = version
        return version is not None

    def release(self) -> None:
        """Delete the key if it is still held; otherwise do nothing."""
        self._state.release(self)

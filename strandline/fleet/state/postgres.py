"""``PostgresState``: the state store of servers on several machines, in PostgreSQL.

Each method is one transaction. ``NOTIFY`` tells of changes at once; a thread that compares keys
finds them within ``LOOK_S`` without it, and leases that have ended.

Leases end by the database's clock, so servers' clocks don't count. If it is set forward, they end
early, and their holders join again. If it is set back, by more than a lease's time to live, they
end as well. A database that was restarted has the leases that it had; those not renewed in their
time to live have ended.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
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
from strandline.fleet.state.postgres_database import StateDatabase
from strandline.fleet.state.postgres_listener import Listener
from strandline.fleet.state.watches import Poller, Watches
from timeline.errors import StateUnavailableError

ANSWER_S: Final = 5.0
LOOK_S: Final = 1.0

logger = logging.getLogger(__name__)


class PostgresState(StateStore):
    """A client; ``_lock`` guards leases and what watches need, and is held while these begin.

    Args:
        url: As for libpq: ``postgresql://user@host,host/database``. Of several hosts, the one that
            isn't a standby counts.
        fleet: The fleet's name, which is allowed if it is a key.
        look_s: Seconds between two looks for changes.
        answer_s: How long the database may take for a statement, or wait for other writers.
        make: Whether tables are made where there are none.

    Raises:
        ConfigError: psycopg isn't installed, the URL isn't one of PostgreSQL, or the schema is
            another program's or another release's.
        InputError: The fleet's name isn't allowed.
        StateUnavailableError: The database can't be reached.
    """

    def __init__(
        self,
        url: str,
        fleet: str,
        look_s: float = LOOK_S,
        answer_s: float = ANSWER_S,
        *,
        make: bool = True,
    ) -> None:
        self._fleet = check_key(fleet)
        self._look_s = look_s
        self._database = StateDatabase(url, fleet, answer_s, make=make)
        self._lock = threading.Lock()
        self._leases: list[PostgresLease] = []
        self._watches = Watches()
        self._poller: Poller | None = None
        self._listener: Listener | None = None

    def get(self, key: str) -> Versioned | None:
        """Return a key's value and version; ``None`` if it isn't there."""
        check_key(key)
        with self._database.reading() as rows:
            found = rows.get(key)
        return None if found is None else Versioned(*found)

    def children(self, key: str) -> tuple[str, ...]:
        """Return the names that follow a key in longer ones."""
        start = f"{check_key(key)}/" if check_prefix(key) else ""
        with self._database.reading() as rows:
            keys = rows.beginning_with(start)
        return tuple(sorted({longer[len(start) :].partition("/")[0] for longer in keys}))

    def write(self, *ops: Op) -> int:
        """Change keys, all or none; return the version that they have now."""
        check_ops(ops)
        with self._database.writing() as rows:
            # Before anything is read: others wait from here on.
            version = rows.next_version()
            found = rows.find(*(op.key for op in ops))
            for op in ops:
                row = found.get(op.key)
                if op.version != (ABSENT if row is None else row.version):
                    raise conflict(op.key, ABSENT if row is None else row.version, op.version)
            for op in ops:
                if isinstance(op, Delete):
                    rows.delete(op.key)
                elif isinstance(op, Put) and op.version == ABSENT:
                    rows.insert(op.key, op.value, version)
                elif isinstance(op, Put):
                    rows.update(op.key, op.value, version)
            rows.notify()
        return version

    def hold(self, key: str, value: bytes, ttl_s: float) -> Lease:
        """Make a key that ends with this process."""
        check_value(check_key(key), value)
        ttl_s = check_ttl(ttl_s)
        holder = secrets.token_bytes(16)
        with self._database.writing() as rows:
            version = rows.next_version()
            row = rows.find(key).get(key)
            if row is not None:
                raise conflict(key, row.version, ABSENT)
            rows.delete_ended()
            rows.insert(key, value, version, holder, ttl_s)
            rows.notify()
        lease = PostgresLease(self, key, version, holder)
        with self._lock:
            self._leases.append(lease)
        return lease

    def watch(self, prefix: str, call: Callable[[], object]) -> Cancel:
        """Have a function called after each change of a key or of one below it."""
        check_prefix(prefix)
        with self._lock:
            self._database.check_open()
            if self._poller is None:
                poller = Poller(self._look, self._watches, self._look_s, self._database.place)
                self._poller = poller
                self._listener = Listener(self._database, self._fleet, poller.hurry)
            return self._watches.add(prefix, call)

    def close(self) -> None:
        """End the watches, release the leases and close the connections; may be repeated."""
        with self._lock:
            poller, self._poller = self._poller, None
            listener, self._listener = self._listener, None
            leases, self._leases = self._leases, []
        self._watches.clear()
        if listener is not None:
            listener.stop()
        if poller is not None:
            poller.stop()
        try:
            for lease in leases:
                lease.release()
        except StateUnavailableError as error:
            logger.warning("leases end by themselves, they weren't released: %s", error)
        finally:
            self._database.close()

    def renew(self, lease: PostgresLease, value: bytes | None) -> int | None:
        """Renew a lease; return the key's version, ``None`` if it isn't held any more."""
        if value is not None:
            check_value(lease.key, value)
        if self._database.is_closed:
            return None
        version = self._renewed(lease, value)
        if version is None:
            self._forget(lease)
        return version

    def _renewed(self, lease: PostgresLease, value: bytes | None) -> int | None:
        if value is None:
            with self._database.reading() as rows:
                return rows.renew(lease.key, lease.holder)
        with self._database.writing() as rows:
            version = rows.next_version()
            if rows.renew(lease.key, lease.holder) is None:
                return None
            rows.update(lease.key, value, version)
            rows.notify()
        return version

    def release(self, lease: PostgresLease) -> None:
        """Delete a lease if it is still held."""
        if self._database.is_closed:
            return
        with self._database.writing() as rows:
            rows.next_version()
            row = rows.find(lease.key).get(lease.key)
            if row is not None and row.holder == lease.holder:
                rows.delete(lease.key)
                rows.notify()
        self._forget(lease)

    def _look(self) -> dict[str, int]:
        with self._database.reading() as rows:
            return rows.versions()

    def _forget(self, lease: PostgresLease) -> None:
        with self._lock:
            self._leases = [each for each in self._leases if each is not lease]


class PostgresLease(Lease):
    """A row with random bytes that only this lease has.

    Attributes:
        holder: The random bytes.
    """

    def __init__(self, state: PostgresState, key: str, version: int, holder: bytes) -> None:
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

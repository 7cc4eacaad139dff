"""``PostgresRows``: the statements of a state store in PostgreSQL, and its tables.

A row has a fleet's name, a key, its value and version. A lease's row also has the holder's random
bytes, the time to live, and the time of renewal by the database's clock.

Each writing transaction first increments the fleet's last version, and keeps that row locked. So
writes are serialised, and a reader that sees a version also sees all earlier ones. A version is the
time in microseconds, or one more than the last: versions that were lost when a standby without the
newest commits took over aren't used again.
"""

from __future__ import annotations

from typing import Any, Final

from fsview.store.sql.postgres.connector import OwnSchema
from strandline.fleet.state.base import Versioned
from strandline.fleet.state.rows import StateRows, StoredKey

SCHEMA: Final = 1
NAMESPACE: Final = "strandline_fleet"
"""The schema, in PostgreSQL's sense, that has the tables; also the channel of ``NOTIFY``."""

_STATEMENTS: Final = (
    f"CREATE SCHEMA {NAMESPACE}",
    f"CREATE TABLE schema_version AS SELECT {SCHEMA} AS version",
    "CREATE TABLE last_version (fleet text PRIMARY KEY, version bigint NOT NULL)",
    # Collation "C": keys are in the order of their characters, whatever the database's language.
    'CREATE TABLE state (fleet text, key text COLLATE "C", value bytea NOT NULL,'
    " version bigint NOT NULL, holder bytea, ttl_s double precision, renewed timestamptz,"
    " PRIMARY KEY (fleet, key))",
    # A clock that is set back by more than the time to live also ends a lease: a dead holder must
    # not keep it until the clock has caught up.
    "CREATE VIEW ended AS SELECT * FROM state WHERE holder IS NOT NULL"
    " AND abs(extract(epoch FROM clock_timestamp() - renewed)) >= ttl_s",
    "CREATE VIEW there AS SELECT * FROM state WHERE holder IS NULL"
    " OR abs(extract(epoch FROM clock_timestamp() - renewed)) < ttl_s",
    "CREATE FUNCTION now_us() RETURNS bigint LANGUAGE sql VOLATILE"
    " AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint'",
)
TABLES: Final = OwnSchema(NAMESPACE, SCHEMA, making=0x5374466C, statements=lambda: _STATEMENTS)


class PostgresRows(StateRows):
    """See ``StateRows``.

    Args:
        cursor: The transaction's.
        fleet: The fleet's name.
    """

    def __init__(self, cursor: Any, fleet: str) -> None:
        self._cursor = cursor
        self._fleet = fleet

    def get(self, key: str) -> Versioned | None:
        """See ``StateRows``."""
        wanted = "SELECT value, version FROM there WHERE fleet = %s AND key = %s"
        found = self._all(wanted, self._fleet, key)
        return Versioned(bytes(found[0][0]), int(found[0][1])) if found else None

    def beginning_with(self, start: str) -> list[str]:
        """See ``StateRows``."""
        # "0" follows "/" in the order of characters.
        end = f"{start[:-1]}0" if start else "\x7f"
        wanted = "SELECT key FROM there WHERE fleet = %s AND key >= %s AND key < %s"
        return [str(key) for (key,) in self._all(wanted, self._fleet, start, end)]

    def versions(self) -> dict[str, int]:
        """Return key → version of all existing keys."""
        wanted = "SELECT key, version FROM there WHERE fleet = %s"
        return {str(key): int(version) for key, version in self._all(wanted, self._fleet)}

    def next_version(self) -> int:
        """See ``StateRows``."""
        moved = (
            "INSERT INTO last_version AS last VALUES (%s, now_us()) ON CONFLICT (fleet)"
            " DO UPDATE SET version = greatest(last.version + 1, now_us()) RETURNING version"
        )
        return int(self._all(moved, self._fleet)[0][0])

    def find(self, *keys: str) -> dict[str, StoredKey]:
        """See ``StateRows``; also blocks renewals of these keys."""
        wanted = (
            "SELECT key, version, holder FROM there WHERE fleet = %s AND key = ANY(%s) FOR UPDATE"
        )
        found = self._all(wanted, self._fleet, list(keys))
        return {
            str(key): StoredKey(int(version), None if holder is None else bytes(holder))
            for key, version, holder in found
        }

    def insert(
        self,
        key: str,
        value: bytes,
        version: int,
        holder: bytes | None = None,
        ttl_s: float | None = None,
    ) -> None:
        """See ``StateRows``."""
        self._cursor.execute(
            "INSERT INTO state VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp())"
            " ON CONFLICT (fleet, key) DO UPDATE SET value = excluded.value,"
            " version = excluded.version, holder = excluded.holder, ttl_s = excluded.ttl_s,"
            " renewed = excluded.renewed",
            (self._fleet, key, value, version, holder, ttl_s),
        )

    def update(self, key: str, value: bytes, version: int) -> None:
        """See ``StateRows``."""
        changed = "UPDATE state SET value = %s, version = %s WHERE fleet = %s AND key = %s"
        self._cursor.execute(changed, (value, version, self._fleet, key))

    def renew(self, key: str, holder: bytes) -> int | None:
        """See ``StateRows``."""
        renewed = (
            "UPDATE there SET renewed = clock_timestamp()"
            " WHERE fleet = %s AND key = %s AND holder = %s RETURNING version"
        )
        found = self._all(renewed, self._fleet, key, holder)
        return int(found[0][0]) if found else None

    def delete(self, key: str) -> None:
        """See ``StateRows``."""
        self._cursor.execute("DELETE FROM state WHERE fleet = %s AND key = %s", (self._fleet, key))

    def delete_ended(self) -> None:
        """See ``StateRows``."""
        gone = "DELETE FROM ended WHERE fleet = %s"
        self._cursor.execute(gone, (self._fleet,))

    def notify(self) -> None:
        """Notify the listeners once the transaction is committed."""
        self._cursor.execute("SELECT pg_notify(%s, %s)", (NAMESPACE, self._fleet))

    def _all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._cursor.execute(sql, values).fetchall()
        return found

"""``Databases``: the databases of a service, of which each has its tables."""

from __future__ import annotations

from contextlib import ExitStack

from fsview.store.sql.database import Database
from fsview.store.sql.database_ring import DatabaseRing
from fsview.store.sql.url import open_database
from timeline.storage.table_id import TableId


class Databases:
    """The databases of a ring, opened; one of PostgreSQL that is away is connected to when used.

    Args:
        ring: The ring.

    Raises:
        ConfigError: A driver isn't installed.
        StoreError: One can't be used, or others spread tables over other databases.
    """

    def __init__(self, ring: DatabaseRing) -> None:
        self._ring = ring
        self._opened: dict[str, Database] = {}
        with ExitStack() as unless_all:
            for name, url in ring.urls.items():
                database = open_database(url, ring=ring.text, is_needed=False)
                unless_all.callback(database.close)
                self._opened[name] = database
            self._closing = unless_all.pop_all()

    def of(self, table_id: TableId) -> Database:
        """Return the database of a table."""
        return self._opened[self._ring.name_of(table_id)]

    def all(self) -> list[Database]:
        """Return the databases."""
        return list(self._opened.values())

    def names(self) -> list[str]:
        """Return the databases' names, without passwords."""
        return [database.name for database in self._opened.values()]

    def close(self) -> None:
        """Close all of them; a second call does nothing."""
        self._closing.close()

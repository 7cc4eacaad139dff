"""``DatabaseRing``: which of several databases has a table, pure; and ``Databases``, these opened.

Each table has one database, so a commit is a transaction of one. Which one depends on the names of
the databases alone (``database_name``), not on passwords or on the order of the URLs. A further
database gets its share of the tables, which are reloaded or adopted there; no other table moves.

Source: Niazi et al., *HopsFS*, section 5: a transaction begins at the shard that has its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from fsview.hash_ring import HashRing
from fsview.store.sql.database import Database
from fsview.store.sql.url import ALLOWED, check_url, database_name, open_database
from timeline.errors import ConfigError
from timeline.storage.table_id import TableId

_TOKENS: Final = 100
"""Points of a database: the fullest of ten has 1.2 times the mean."""


class DatabaseRing:
    """Some databases by their URLs.

    Attributes:
        urls: Name → URL, by name.
        text: What servers must agree on: the names, a line each. Empty for one database, which
            servers may reach by different names.

    Raises:
        ConfigError: There is no URL, one is none of a database, or two name the same one.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ConfigError(f"no URL of a database is given; {ALLOWED}")
        named: dict[str, str] = {}
        for url in urls:
            check_url(url)
            name = database_name(url)
            if name in named:
                raise ConfigError(
                    f"the store's URLs name {name} twice; each database is given once"
                )
            named[name] = url
        self.urls = dict(sorted(named.items()))
        self.text = "\n".join(self.urls) if len(self.urls) > 1 else ""
        self._ring = HashRing({f"database {name}": name for name in self.urls}, _TOKENS)

    def name_of(self, table_id: TableId) -> str:
        """Return the name of the database that has a table."""
        (name,) = self._ring.first(str(table_id))
        return name

    def url_of(self, table_id: TableId) -> str:
        """Return the URL of the database that has a table."""
        return self.urls[self.name_of(table_id)]


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

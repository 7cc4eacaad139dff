"""URLs of databases: ``sqlite:///directory/file`` and ``postgresql://host/database``.

A URL may have a password, so no message shows one, nor what libpq says of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fsview.store.sql.database import Database
from fsview.store.sql.postgres import PostgresDatabase
from fsview.store.sql.sqlite import SqliteDatabase
from timeline.errors import ConfigError

ALLOWED: Final = (
    "allowed: sqlite:///PATH, the whole path of a file, or"
    " postgresql://[USER[:PASSWORD]@]HOST[:PORT][,...]/DATABASE"
)

_SQLITE: Final = "sqlite"
_HOST: Final = r"(\[[0-9A-Fa-f:.%]+\]|[^\s,:/?#@\[\]]*)(:[0-9]{1,5})?"
_POSTGRES: Final = re.compile(rf"postgres(ql)?://([^\s/?#@]*@)?{_HOST}(,{_HOST})*(/[^\s/@]*)?")
"""A password with an unescaped ``/`` or ``@`` would be taken for a host or a database."""


def check_url(url: str) -> None:
    """Refuse what is no URL of a database; opens nothing.

    Raises:
        ConfigError: It is none; the message doesn't show it.
    """
    scheme, given, rest = url.partition("://")
    if scheme == _SQLITE:
        if not rest.startswith("/") or not rest.strip("/") or rest.endswith("/"):
            raise ConfigError(f"a store's URL of {_SQLITE} without the whole path; {ALLOWED}")
    elif scheme in ("postgresql", "postgres"):
        if not is_postgres(url):
            raise ConfigError(
                f"a store's URL of {scheme} can't be read; {ALLOWED}",
                hint="in user and password write %40 for '@', %3A for ':', %2F for '/'",
            )
    else:
        is_scheme = given and re.fullmatch(r"[a-z0-9+]{1,20}", scheme)
        named = f"begins with {scheme!r}" if is_scheme else "is ***"
        raise ConfigError(f"a store's URL {named}; {ALLOWED}")


def is_postgres(url: str) -> bool:
    """Whether this is a URL of a database of PostgreSQL, without parameters."""
    return _POSTGRES.fullmatch(url) is not None


def open_database(url: str, *, make: bool = True) -> Database:
    """Return the database at a URL, connected.

    Args:
        url: The URL.
        make: Whether its tables are made if there are none, and with them the file of SQLite.

    Raises:
        ConfigError: The URL is none of a database, or the database's driver isn't installed.
        StoreError: The database can't be used, or it has no tables and none are to be made.
    """
    check_url(url)
    if url.startswith(_SQLITE):
        return SqliteDatabase(Path("/" + url.partition("://")[2].lstrip("/")), make=make)
    return PostgresDatabase(url, make=make)

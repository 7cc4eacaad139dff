"""URLs of databases: ``sqlite:///directory/file`` and ``postgresql://host/database``.

A URL may have a password, so no message shows one, nor what libpq says of it.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from fsview.store.sql.database import Database
from fsview.store.sql.postgres.database import PostgresDatabase
from fsview.store.sql.sqlite.database import SqliteDatabase
from timeline.errors import ConfigError

ALLOWED: Final = (
    "allowed: sqlite:///PATH, the whole path of a file, or"
    " postgresql://[USER[:PASSWORD]@]HOST[:PORT][,...]/DATABASE"
)

_SQLITE: Final = "sqlite"
_SEPARATOR: Final = re.compile(r",\s*(?=(?:sqlite|postgres|postgresql)://)")
"""Also hosts are separated by commas; no host, database or password has ``://``."""
_PORT: Final = "5432"
_HOST: Final = r"(\[[0-9A-Fa-f:.%]+\]|[^\s,:/?#@\[\]]*)(:[0-9]{1,5})?"
_POSTGRES: Final = re.compile(rf"postgres(ql)?://([^\s/?#@]*@)?{_HOST}(,{_HOST})*(/[^\s/@]*)?")
"""A password with an unescaped ``/`` or ``@`` would be taken for a host or a database."""


def split_urls(text: str) -> tuple[str, ...]:
    """Return the URLs of a list, separated by commas; a comma before no scheme is part of a URL."""
    return tuple(part.strip() for part in _SEPARATOR.split(text)) if text.strip() else ()


def check_url(url: str) -> None:
    """Refuse what is no URL of a database; opens nothing.

    Raises:
        ConfigError: It is none; the message doesn't show it.
    """
    scheme, given, rest = url.partition("://")
    if scheme == _SQLITE:
        is_path = rest.startswith("/") and rest.strip("/") and not rest.endswith("/")
        if not is_path or "://" in rest:
            raise ConfigError(f"a store's URL of {_SQLITE} without the whole path; {ALLOWED}")
        # More likely a list with a typo, parameters, or SQLite's name of no file.
        if re.search(r"[,?#\0]|^\s|\s$|/:memory:$", rest):
            raise ConfigError(
                f"a store's URL of {_SQLITE} has a path with ',', '?', '#', a space at its end, or"
                f" :memory:; {ALLOWED}"
            )
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


def database_name(url: str) -> str:
    """Return the name of a database, whatever the user and the order of the hosts in its URL.

    Args:
        url: An allowed one. Of its parameters only those count that say where the database is.
    """
    rest = url.partition("://")[2]
    if url.startswith(_SQLITE):
        return f"{_SQLITE}://{os.path.normpath(_path(url))}"
    authority, _, rest = rest.partition("/")
    database, _, query = rest.partition("?")
    given = dict(parse_qsl(query))
    places = [_place(host) for host in authority.rpartition("@")[2].split(",")]
    if "host" in given:
        places = [(host, _PORT) for host in given["host"].split(",")]
    if "port" in given:
        ports = given["port"].split(",")
        ports = ports * len(places) if len(ports) == 1 else ports
        places = [(host, port) for (host, _), port in zip(places, ports, strict=False)]
    hosts = ",".join(sorted(f"{host}:{port}" for host, port in places))
    return f"postgresql://{hosts}/{given.get('dbname', unquote(database))}"


def _place(host: str) -> tuple[str, str]:
    """Return host and port."""
    found = re.fullmatch(_HOST, host)
    assert found is not None, "checked before"
    name, port = found.groups()
    return unquote(name).lower() or "localhost", (port or "").lstrip(":") or _PORT


def _path(url: str) -> Path:
    return Path("/" + url.partition("://")[2].lstrip("/"))


def open_database(
    url: str, *, make: bool = True, ring: str | None = None, is_needed: bool = True
) -> Database:
    """Return the database at a URL, connected.

    Args:
        url: The URL.
        make: Whether its tables are made if there are none, and with them the file of SQLite.
        ring: The databases over which tables are spread, as ``DatabaseRing.text``; ``None``: it
            isn't checked that others have the same.
        is_needed: Whether it must be usable now. Otherwise it is logged if PostgreSQL can't be
            reached, or a file is full, locked, or damaged while others have it open, and each use
            tries again; a damaged file is set aside.

    Raises:
        ConfigError: The URL is none of a database, or the database's driver isn't installed.
        StoreUnavailableError: The database can't be reached.
        StoreError: The database can't be used, or it has no tables and none are to be made, or
            others spread tables over other databases.
    """
    check_url(url)
    if url.startswith(_SQLITE):
        return SqliteDatabase(_path(url), make=make, ring=ring, is_needed=is_needed)
    return PostgresDatabase(url, make=make, ring=ring, is_needed=is_needed)

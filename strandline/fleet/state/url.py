"""URLs of state stores, each with the name of a fleet; ``open_state`` opens them.

| URL | servers of the fleet |
| --- | --- |
| ``zk://HOST:PORT[,HOST:PORT]/FLEET`` | on several machines |
| ``postgresql://[USER[:PASSWORD]@]HOST[:PORT][,...]/DATABASE?fleet=NAME`` | on several machines |
| ``sqlite:///PATH[?fleet=NAME]`` | on one machine; a file has one fleet |

A URL of PostgreSQL may have further parameters of libpq, such as ``&sslmode=verify-full``. It may
contain a password, which no message shows.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsview.store.sql.url import is_postgres
from strandline.fleet.state.base import Put, StateStore
from strandline.fleet.state.checks import is_key
from strandline.fleet.state.postgres import PostgresState
from strandline.fleet.state.sqlite import SqliteState
from strandline.fleet.state.zookeeper import SESSION_S, ZookeeperState
from timeline.errors import ConfigError, StateConflictError

ALLOWED: Final = (
    "allowed: zk://HOST:PORT[,HOST:PORT]/FLEET,"
    " postgresql://[USER[:PASSWORD]@]HOST[:PORT][,...]/DATABASE?fleet=FLEET"
    " or sqlite:///PATH[?fleet=FLEET]"
)
ALLOWED_NAME: Final = "allowed: letters, digits, '.', '_' and '-', at most 100 of them"
NAME_KEY: Final = "fleet"
"""Key in a file with the name of its fleet."""

_ZOOKEEPER, _POSTGRES, _SQLITE = "zk", "postgresql", "sqlite"
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s,:/?#@\[\]]+):([0-9]{1,5})")
_MAX_NAME: Final = 100
_MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class StateUrl:
    """A parsed URL.

    Attributes:
        scheme: ``zk``, ``postgresql`` or ``sqlite``.
        place: Servers of ZooKeeper, the URL for libpq, or the path of the file.
        fleet: The fleet's name; ``""``: whichever fleet the file has.
    """

    scheme: str
    place: str
    fleet: str

    @classmethod
    def of(cls, text: str) -> StateUrl:
        """Parse a URL; opens nothing.

        Raises:
            ConfigError: It can't be parsed; the message shows no password.
        """
        scheme, given, rest = text.partition("://")
        if given and scheme == _ZOOKEEPER:
            return _of_zookeeper(text, rest)
        if given and scheme in (_POSTGRES, "postgres"):
            return _of_postgres(text)
        if given and scheme == _SQLITE:
            return _of_sqlite(text, rest)
        raise _refused(text)

    def __str__(self) -> str:
        """Return the URL without user, password and parameters."""
        if self.scheme == _ZOOKEEPER:
            return f"zk://{self.place}/{self.fleet}"
        name = f"?fleet={self.fleet}" if self.fleet else ""
        if self.scheme == _SQLITE:
            return f"sqlite://{self.place}{name}"
        place = self.place.partition("://")[2].partition("?")[0].rpartition("@")[2]
        return f"postgresql://{place}{name}"


def open_state(url: str, session_s: float = SESSION_S, *, make: bool = True) -> StateStore:
    """Return the state store at a URL, connected.

    Args:
        url: The URL.
        session_s: Seconds of silence after which ZooKeeper ends the client's session, and its
            leases with it.
        make: Whether missing tables, and the name of a file's fleet, are created. Otherwise opening
            writes nothing.

    Raises:
        ConfigError: The URL can't be parsed, the store's driver isn't installed, or the database
            isn't a state store of this release, or belongs to another fleet.
        StateUnavailableError: The store can't be reached.
    """
    read = StateUrl.of(url)
    if read.scheme == _ZOOKEEPER:
        return ZookeeperState(read.place, read.fleet, session_s)
    if read.scheme == _POSTGRES:
        return PostgresState(read.place, read.fleet, make=make)
    if not make and not Path(read.place).exists():
        raise ConfigError(f"there is no fleet at {read}: no such file")
    state = SqliteState(Path(read.place), make=make)
    try:
        if read.fleet:
            _check_name(state, read, make=make)
    except BaseException:
        state.close()
        raise
    return state


def _of_zookeeper(text: str, rest: str) -> StateUrl:
    hosts, _, name = rest.partition("/")
    servers = [_SERVER.fullmatch(server) for server in hosts.split(",")]
    if not all(server and 0 < int(server[2]) <= _MAX_PORT for server in servers):
        raise _refused(text)
    return StateUrl(_ZOOKEEPER, hosts, _name(text, name))


def _of_postgres(text: str) -> StateUrl:
    url, _, query = text.partition("?")
    parameters = query.split("&") if query else []
    names = [each[6:] for each in parameters if each.startswith("fleet=")]
    others = [each for each in parameters if not each.startswith("fleet=")]
    if is_postgres(url) and not names:
        raise ConfigError(f"the fleet's URL {_shown(text)} lacks ?fleet=FLEET; {ALLOWED}")
    if not is_postgres(url) or len(names) != 1 or not all(map(_is_parameter, others)):
        raise _refused(text)
    place = "?".join(part for part in (url, "&".join(others)) if part)
    return StateUrl(_POSTGRES, place, _name(text, names[0]))


def _of_sqlite(text: str, rest: str) -> StateUrl:
    path, has_query, query = rest.partition("?")
    is_file = path.startswith("/") and path.strip("/") and not path.endswith("/")
    is_named = not has_query or re.fullmatch("fleet=[^&=]*", query)
    if not is_file or "\0" in path or path.endswith("/:memory:") or not is_named:
        raise _refused(text)
    name = _name(text, query[6:]) if has_query else ""
    return StateUrl(_SQLITE, "/" + path.lstrip("/"), name)


def _is_parameter(text: str) -> bool:
    return re.fullmatch(r"[a-z_]+=[^\s=]*", text) is not None


def _name(text: str, name: str) -> str:
    if not is_key(name) or "/" in name or len(name) > _MAX_NAME:
        raise ConfigError(f"the fleet's URL {_shown(text)} names no fleet; {ALLOWED_NAME}")
    return name


def _refused(text: str) -> ConfigError:
    return ConfigError(f"the fleet's URL {_shown(text)} can't be read; {ALLOWED}")


def _shown(text: str) -> str:
    """Return a URL for a message, or only its scheme if it may have a password."""
    scheme, given, rest = text.partition("://")
    if scheme in (_ZOOKEEPER, _SQLITE) and given and "@" not in rest and "&" not in rest:
        return repr(text)
    if not text:
        return "'' (empty)"
    return f"'{scheme}://***'" if given and re.fullmatch("[a-z0-9+]{1,20}", scheme) else "'***'"


def _check_name(state: StateStore, url: StateUrl, *, make: bool) -> None:
    """Check the fleet's name in a file; if ``make``, the first fleet that opens it sets it."""
    if make:
        # A file that has a name keeps it.
        with suppress(StateConflictError):
            state.write(Put(NAME_KEY, url.fleet.encode()))
    found = state.get(NAME_KEY)
    name = "" if found is None else found.value.decode(errors="replace")
    if name != url.fleet:
        raise ConfigError(
            f"{url.place} has the fleet {name!r}, but the URL names {url.fleet!r};"
            " allowed: the same name, or none"
        )

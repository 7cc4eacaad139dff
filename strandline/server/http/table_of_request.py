"""Which table a request is about, from the text of its path and query alone.

It is determined before any access to storage, which may hang. So base paths that differ only in
spelling are one table here, while a symbolic link and its target are two.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from fsview.load.listing import PATH_CHARACTERS
from fsview.wire.lookup_form import LOOKUP_PATH
from fsview.wire.marker_form import MARKER_DIRECTORY, MARKERS
from fsview.wire.param import BASE_PATH
from fsview.wire.routes import PREFIX
from strandline.fleet.neighbours import RECORD
from strandline.server.http.query import REMEMBERED_BYTES, unquoted
from strandline.server.table_threads import NO_TABLE
from timeline.storage.table_id import canonical_base_path
from timeline.table.config import META_FOLDER

INSTANT_STATES: Final = "/v1/hoodie/instantstate"
STATES_DIRECTORY: Final = "instantstatedirpath"

_NAMED_BY: Final[Mapping[str, str]] = {
    f"{PREFIX}/": BASE_PATH,
    LOOKUP_PATH: BASE_PATH,
    f"{MARKERS}/": MARKER_DIRECTORY,
    f"{INSTANT_STATES}/": STATES_DIRECTORY,
    RECORD: BASE_PATH,
}
"""Prefix of a path → the parameter with the table's base path, or with a directory below it."""

_ESCAPE_BYTES: Final = 3
"""Bytes of one escaped byte, such as ``%2F``."""
_CHARACTER_BYTES: Final = 4 * _ESCAPE_BYTES
"""Most bytes of one escaped character."""
_BELOW_CHARACTERS: Final = 64
"""Most characters of a directory's path after its table's."""
_VALUE_BYTES: Final = _CHARACTER_BYTES * (PATH_CHARACTERS + _BELOW_CHARACTERS)
"""Longer values are all refused later, so they aren't decoded on the loop."""


def asked_table(path: str, query: bytes) -> str:
    """Return the base path in a request, in canonical spelling; never waits, never fails.

    Args:
        path: The request's path, without escapes.
        query: Its query string.

    Returns:
        ``NO_TABLE`` if the request names no table, or is refused before storage is accessed.

    Cost: bounded by ``PATH_CHARACTERS``, apart from one copy of the query, as it runs on the loop.
    """
    wanted = next((name for start, name in _NAMED_BY.items() if path.startswith(start)), None)
    if wanted is None:
        return NO_TABLE
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if len(name) <= _ESCAPE_BYTES * len(wanted) and unquoted(name) == wanted:
            return _base_path(wanted, value)
    return NO_TABLE


def _base_path(parameter: str, value: bytes) -> str:
    """Return the base path in the value of a parameter."""
    if len(value) > _VALUE_BYTES:
        return NO_TABLE
    base_path = unquoted(value)
    if parameter != BASE_PATH:
        # The meta folder itself is a valid directory, too.
        below = f"{base_path.rstrip('/')}/"
        base_path = below.rpartition(f"/{META_FOLDER}/")[0]
    if len(base_path) > PATH_CHARACTERS:
        return NO_TABLE
    cached = _canonical_again if len(base_path) <= REMEMBERED_BYTES else canonical_base_path
    return cached(base_path)


_canonical_again = lru_cache(maxsize=256)(canonical_base_path)
"""``canonical_base_path`` with an LRU cache: a service is asked for few tables."""

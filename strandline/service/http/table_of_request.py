"""Which table a request is about, as far as its path and query say: a spelling, unchecked.

It is read before anything looks at storage, as a look may hang. So spellings that differ in their
text alone are one table here, and those that a link tells apart are two.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from fsview.load.listing import PATH_CHARACTERS
from fsview.wire.param import BASE_PATH
from fsview.wire.routes import PREFIX
from strandline.service.http.authorization import MARKERS
from strandline.service.http.query import REMEMBERED_BYTES, unquoted
from strandline.service.table_threads import NO_TABLE
from timeline.storage.table_id import canonical_base_path
from timeline.table.config import META_FOLDER

MARKER_DIRECTORY: Final = "markerdirpath"
INSTANT_STATES: Final = "/v1/hoodie/instantstate"
STATES_DIRECTORY: Final = "instantstatedirpath"

_NAMED_BY: Final[Mapping[str, str]] = {
    f"{PREFIX}/": BASE_PATH,
    f"{MARKERS}/": MARKER_DIRECTORY,
    f"{INSTANT_STATES}/": STATES_DIRECTORY,
}
"""The beginning of a path → the parameter that names the table, or a directory below it."""

_ESCAPE_BYTES: Final = 3
"""Of one byte, such as ``%2F``."""
_CHARACTER_BYTES: Final = 4 * _ESCAPE_BYTES
"""Of one character, each of its bytes in UTF-8 escaped."""
_BELOW_CHARACTERS: Final = 64
"""What a directory's path may have more than its table's."""
_VALUE_BYTES: Final = _CHARACTER_BYTES * (PATH_CHARACTERS + _BELOW_CHARACTERS)
"""Longer values aren't read on the loop: every one of them is refused."""


def asked_table(path: str, query: bytes) -> str:
    """Return the base path that a request names, in its canonical spelling; never waits, no error.

    Args:
        path: The request's path, without escapes.
        query: Its query string.

    Returns:
        ``NO_TABLE`` for a request of no table, and for what is refused before storage is looked at.

    Cost: in proportion to ``PATH_CHARACTERS``, but for one copy of the query: it runs on the loop.
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
    """Return the base path that the value of a parameter says."""
    if len(value) > _VALUE_BYTES:
        return NO_TABLE
    base_path = unquoted(value)
    if parameter != BASE_PATH:
        # The meta folder itself is such a directory, too.
        below = f"{base_path.rstrip('/')}/"
        base_path = below.rpartition(f"/{META_FOLDER}/")[0]
    if len(base_path) > PATH_CHARACTERS:
        return NO_TABLE
    again = _canonical_again if len(base_path) <= REMEMBERED_BYTES else canonical_base_path
    return again(base_path)


_canonical_again = lru_cache(maxsize=256)(canonical_base_path)
"""``canonical_base_path`` with a memory: a service is asked for few tables, again and again."""

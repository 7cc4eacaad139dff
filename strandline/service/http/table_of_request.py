"""Which table a request is about, as far as its path and query say: a spelling, unchecked.

It is read before anything looks at storage, as a look may hang: two spellings of one table are two
tables here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_plus

from fsview.load.missing_partitions import PATH_CHARACTERS
from fsview.wire.routes import BASE_PATH, PREFIX
from strandline.service.http.paths import (
    INSTANT_STATES,
    MARKER_DIRECTORY,
    MARKERS,
    STATES_DIRECTORY,
)
from strandline.service.http.request_threads import NO_TABLE
from timeline.table.config import META_FOLDER

_NAMED_BY: Final[Mapping[str, str]] = {
    f"{PREFIX}/": BASE_PATH,
    f"{MARKERS}/": MARKER_DIRECTORY,
    f"{INSTANT_STATES}/": STATES_DIRECTORY,
}
"""The beginning of a path → the parameter that names the table, or a directory below it."""


def asked_table(path: str, query: bytes) -> str:
    """Return the base path that a request names, as the client spells it; never waits, no error.

    Args:
        path: The request's path, without escapes.
        query: Its query string.

    Returns:
        ``NO_TABLE`` for a request of no table, and for what is refused before storage is looked at.
    """
    wanted = next((name for start, name in _NAMED_BY.items() if path.startswith(start)), None)
    if wanted is None:
        return NO_TABLE
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if unquote_plus(name.decode("latin-1")) == wanted:
            said = unquote_plus(value.decode("latin-1"))
            if wanted != BASE_PATH:
                said = said.rpartition(f"/{META_FOLDER}/")[0]
            return (said.rstrip("/") or said) if len(said) <= PATH_CHARACTERS else NO_TABLE
    return NO_TABLE

"""The parameters in a query string: their names, and how their values are read and written.

Source: Hudi 1.2.0 ``RemoteHoodieTableFileSystemView``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from timeline.errors import InputError

BASE_PATH: Final = "basepath"
LAST_INSTANT: Final = "lastinstantts"
TIMELINE_HASH: Final = "timelinehash"
REFRESH_OFF: Final = "refreshoff"
PRETTY: Final = "pretty"
"""The parameter that asks for an indented body, whatever its value."""
NO_INSTANT: Final = "0"
"""Value of ``lastinstantts`` where a caller with an empty timeline leaves it out."""

WAIT_HEADER: Final = "Strandline-Wait"
"""Header with the seconds after which a client wants 503 and ``Retry-After`` in place of a longer
wait. Hudi's clients don't send it: they would go to listing for good at a 503."""

REQUEST_ID_HEADER: Final = "X-Request-Id"
"""Header with what names a request in logs and errors; every answer has it. A service takes the
client's if it is 1 to 128 of ASCII's letters, digits and ``._~:/+=@-``, and else makes one."""

FALLBACKS_HEADER: Final = "Strandline-Fallbacks"
"""Header in which a client reports since its last one how many views gave the service up, by cause:
``late=2,behind=1``."""
FALLBACK_CAUSES: Final = ("unreachable", "late", "refused", "behind", "wrong-answer")

V2: Final = "/v2"
"""Where the routes for people and tools begin."""
WATCH_PATH: Final = f"{V2}/watch"
"""Of the route that answers when a table changes."""
OWNED_PATHS: Final = tuple(
    f"{V2}/{name}"
    for name in ("timeline", "partitions", "slices", "files", "group", "pending", "leases", "clean")
)
"""Of the routes that a table's owner answers. Its watchers at a server share one watch there; other
routes are every server's."""
TABLE: Final = "table"
"""Parameter of these routes with a table's base path."""

MOST_PARTITIONS: Final = 100_000
"""Most partitions of one ``loadpartitions/``; each may cost a listing."""

_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs, which JSON can escape and no path can hold."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter in the query string.

    Attributes:
        name: Name in the query string.
        argument: Name as an argument of the view's method.
        required: Whether it must be present; an empty value is present.
        read: Converts its text to the argument.
        write: Converts the argument to its text.
    """

    name: str
    argument: str
    required: bool = True
    read: Callable[[str], Any] = str
    write: Callable[[Any], str] = str


def _read_boolean(text: str) -> bool:
    # As in Java, all but ``true`` is false, whatever its case.
    return text.lower() == "true"


def _read_words(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _read_json_words(text: str) -> tuple[str, ...]:
    try:
        # Converting a long number to an integer takes time quadratic in its digits.
        words = json.loads(text, parse_int=float)
    except (ValueError, RecursionError) as exc:  # not JSON, or nested too deep
        raise InputError(f"partitions={text[:200]!r} is not a JSON list of strings: {exc}") from exc
    if (
        not isinstance(words, list)
        or not all(isinstance(word, str) for word in words)
        or any(_HALF_PAIR.search(word) for word in words)
    ):
        raise InputError(f"partitions={text[:200]!r} is not a JSON list of strings")
    if len(words) > MOST_PARTITIONS:
        raise InputError(
            f"partitions={text[:100]!r}... names {len(words)} partitions; allowed: at most"
            f" {MOST_PARTITIONS}",
            hint="loadallpartitions/ loads all of a table",
        )
    return tuple(words)


PARTITION: Final = Param("partition", "partition", required=False)
FILE_ID: Final = Param("fileid", "file_id")
MAX_INSTANT: Final = Param("maxinstant", "max_instant")
MAX_INSTANT_OPTIONAL: Final = Param("maxinstant", "max_instant", required=False)
MIN_INSTANT_OPTIONAL: Final = Param("mininstant", "min_instant", required=False)
INSTANT: Final = Param("instant", "instant")
CURRENT_INSTANT: Final = Param("currentinstant", "current_instant")
INSTANTS: Final = Param("instants", "instants", read=_read_words, write=",".join)
PENDING_COMPACTION: Final = Param(
    "includependingcompaction",
    "include_pending_compaction",
    read=_read_boolean,
    write=lambda value: str(value).lower(),
)
PARTITIONS: Final = Param(
    "partitions",
    "partitions",
    read=_read_json_words,
    write=lambda words: json.dumps(list(words), ensure_ascii=False),
)

"""The forms of requests about markers: paths, parameters, batches of names, answers.

Hudi's clients create one marker a request. Strandline's own create many: ``create-all`` takes names
separated by line feeds, which no name holds, and answers a list of what ``create`` would answer.

Source: Hudi 1.2.0 ``MarkerOperation``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote_plus

from timeline.errors import BadAnswerError

MARKERS: Final = "/v1/hoodie/marker"
"""Prefix of all paths."""
CREATE_MARKER: Final = f"{MARKERS}/create"
CREATE_MARKERS: Final = f"{MARKERS}/create-all"
DIRECTORY_EXISTS: Final = f"{MARKERS}/dir/exists"
DELETE_DIRECTORY: Final = f"{MARKERS}/dir/delete"
MARKER_DIRECTORY: Final = "markerdirpath"
MARKER_NAME: Final = "markername"
MARKER_NAMES: Final = "markernames"
EARLY_CONFLICTS: Final = "basepath"
"""The parameter of writers that want early conflicts detected; the value isn't needed."""

QUERY_BYTES: Final = 32 * 1024
"""Longest query that is parsed; the longest directory and marker take less, escaped."""
_BATCH_BYTES: Final = QUERY_BYTES // 2
"""Escaped length from which a batch takes no further name."""
_SEPARATOR: Final = "\n"


def join_names(names: Iterable[str]) -> str:
    """Return the value of ``MARKER_NAMES``."""
    return _SEPARATOR.join(names)


def split_names(value: str) -> tuple[str, ...]:
    """Return the names in a value of ``MARKER_NAMES``, each once."""
    return tuple(dict.fromkeys(value.split(_SEPARATOR)))


def batches(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield names in batches whose requests aren't too long, in order."""
    batch: list[str] = []
    length = 0
    for name in names:
        batch.append(name)
        length += len(quote_plus(name)) + len(quote_plus(_SEPARATOR))
        if length >= _BATCH_BYTES:
            yield tuple(batch)
            batch, length = [], 0
    if batch:
        yield tuple(batch)


def read_flag(body: bytes) -> bool:
    """Return an answer that is ``true`` or ``false``.

    Raises:
        BadAnswerError: It is neither.
    """
    if body in (b"true", b"false"):
        return body == b"true"
    raise BadAnswerError(f"a request about markers was answered {body[:100]!r}; allowed: a boolean")


def read_outcomes(body: bytes, number: int) -> tuple[bool, ...]:
    """Return the answer to a batch of ``number`` distinct names.

    Raises:
        BadAnswerError: The body isn't a list of ``number`` booleans.
    """
    try:
        outcomes = json.loads(body)
    except (ValueError, RecursionError):
        outcomes = None
    if (
        not isinstance(outcomes, list)
        or len(outcomes) != number
        or not all(isinstance(outcome, bool) for outcome in outcomes)
    ):
        raise BadAnswerError(
            f"a batch of {number} markers was answered {body[:100]!r}; allowed: as many booleans"
        )
    return tuple(outcomes)

"""Record keys, and the buckets that real Hudi puts them in (``bucket_answers.json``).

``tests.oracle.answers.bucket_answers`` asks Hudi.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

ANSWERS: Final = Path(__file__).with_name("bucket_answers.json")

COUNTS: Final = (1, 4, 7, 256, 99_999_999)
"""Numbers of buckets."""
FIELDS: Final = (("id",), ("a",), ("b",), ("a", "b"), ("b", "a"), ("c", "a"))
"""Hash fields."""

_LETTERS: Final = "abcXYZ019-_.éß中😀"
KEYS: Final = (
    *(str(number) for number in range(12)),
    *("".join(_LETTERS[(n * 7 + j * j) % len(_LETTERS)] for j in range(1 + n)) for n in range(24)),
    "x" * 300,
    "\N{PILE OF POO}\uffff\ue000",
    "with space",
    "only,comma",
    "only:colon",
    "id:5",
    "a:1,b:2",
    "b:2,a:1",
    "a:1,b:2,c:3",
    "a:1,2,b:3",
    "a:1:2,b:3",
    "a:2014-10-22 13:50:42,b:x,c:y",
    "a:x,b:2014-10-22 13:50:42",
    "a:__null__,b:__empty__",
    "a:__empty__,b:__null__,c:z",
    "a:,b:",
    "a:1,b",
    "other:1,b:2",
    "x,y:z",
    "ä:1,b:é中",
    "a:é中😀,b:2",
)


def answers() -> dict[str, list[int]]:
    """Return the recorded answers: JSON of (key, fields) → the bucket for each of ``COUNTS``."""
    recorded: dict[str, list[int]] = json.loads(ANSWERS.read_text("utf-8"))
    return recorded


def cases() -> list[tuple[str, tuple[str, ...]]]:
    """Return all (key, fields) that Hudi answers."""
    return [(key, fields) for key in KEYS for fields in FIELDS if not _hangs(key, fields)]


def _hangs(key: str, fields: tuple[str, ...]) -> bool:
    """Whether Hudi 1.2.0 loops forever: the last value has a colon, and its field isn't hashed."""
    return key.endswith("13:50:42") and "b" not in fields

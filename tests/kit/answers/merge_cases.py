"""Cases of the merge rule, and real Hudi's answers to them (``merge_answers.json``).

A case is a stored row, if any, and the rows of one write with its key, in their order. An answer
names the row that is left: ``stored``, the number of a row of the write, or ``gone``; ``fails``
means that Hudi's write fails. ``tests.oracle.answers.merge_answers`` asks Hudi.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from strandline.records.meta_fields import IS_DELETED

ANSWERS: Final = Path(__file__).with_name("merge_answers.json")
EVENT: Final = "EVENT_TIME_ORDERING"
COMMIT: Final = "COMMIT_TIME_ORDERING"
MODES: Final = (EVENT, COMMIT)
VERSIONS: Final = (6, 8, 9)

STORED: Final = "stored"
GONE: Final = "gone"
FAILS: Final = "fails"
ABSENT: Final = "absent"

PUT: Final = "put"
DELETE: Final = "delete"
HARD: Final = "hard delete"
"""A row of the operation ``delete``; ``DELETE`` is a row of an upsert with the flag."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of the ordering column ``ts``, and its values for the numbers in cases.

    ``date`` and ``decimal`` aren't among them: Hudi 1.2.0 compares an ``Integer`` with a
    ``LocalDate``, a ``Fixed`` with a ``BigDecimal``, and fails with a ``ClassCastException`` in
    about half of the cases.
    """

    type: pa.DataType
    value: Callable[[int], Any]
    fields: tuple[str, ...] = ("ts",)


_MOMENT: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

KINDS: Final[dict[str, Kind]] = {
    "int": Kind(pa.int32(), int),
    "long": Kind(pa.int64(), int),
    "double": Kind(pa.float64(), float),
    "string": Kind(pa.string(), str),
    "timestamp": Kind(
        pa.timestamp("us", tz="UTC"), lambda n: _MOMENT + datetime.timedelta(seconds=n)
    ),
    "int, int": Kind(pa.int32(), int, ("ts", "seq")),
}


DATE: Final = Kind(pa.date32(), lambda n: datetime.date(1970, 1, 1) + datetime.timedelta(days=n))
"""Dates, whose order is that of ``int`` where Hudi merges logs; see ``Kind``, too."""

WITH_NULLS: Final = ("int", "long")
"""Kinds for which cases with nulls are recorded."""
EVERY_VERSION: Final = ("int", "long", "double", "string")
"""Kinds that are recorded for all versions of tables; the others for the newest."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a write; ``value`` is the number behind its ordering value."""

    does: str
    value: int | None

    def __str__(self) -> str:
        return f"{self.does} {'null' if self.value is None else self.value}"


@dataclass(frozen=True, slots=True)
class Case:
    """A stored row, if any, and the rows of one write; ``stored`` is its number or ``ABSENT``."""

    stored: int | str | None
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The record key, and the key of the case in ``merge_answers.json``."""
        stored = "null" if self.stored is None else self.stored
        return f"{stored}: {', '.join(map(str, self.rows))}"

    @property
    def has_null(self) -> bool:
        """Whether an ordering value is null."""
        return self.stored is None or any(row.value is None for row in self.rows)

    @property
    def is_hard(self) -> bool:
        """Whether the write is a delete."""
        return self.rows[0].does == HARD


def _cases() -> Iterator[Case]:
    stored = (ABSENT, None, 0, 3, 5)
    for old in stored:
        for does, value in itertools.product((PUT, DELETE), (None, 0, 4, 5, 6)):
            yield Case(old, (Row(does, value),))
        for value in (None, 0, 4, 6):
            yield Case(old, (Row(HARD, value),))
    rows = [Row(does, value) for does in (PUT, DELETE) for value in (0, 5, 6)]
    for old, pair in itertools.product((ABSENT, 5, 7), itertools.product(rows, rows)):
        yield Case(old, pair)
    for value in (0, 5):
        for pair in itertools.permutations((Row(DELETE, None), Row(PUT, value))):
            yield Case(ABSENT, pair)
    # A row that is less than 0 comes after a delete without an ordering value.
    yield Case(ABSENT, (Row(DELETE, 0), Row(PUT, -4)))
    yield Case(ABSENT, (Row(PUT, -4), Row(DELETE, 0)))
    for old, triple in itertools.product(
        (ABSENT, 5),
        (
            (Row(PUT, 5), Row(DELETE, 0), Row(PUT, 4)),
            (Row(PUT, 5), Row(DELETE, 0), Row(PUT, 6)),
            (Row(PUT, 6), Row(DELETE, 5), Row(PUT, 5)),
            (Row(PUT, 5), Row(DELETE, 6), Row(PUT, 5)),
        ),
    ):
        yield Case(old, triple)
    yield Case(5, (Row(HARD, 0), Row(HARD, 6)))


CASES: Final = tuple(_cases())


def cases_of(kind: str) -> tuple[Case, ...]:
    """Return the cases that are recorded for a kind of ordering column."""
    return tuple(case for case in CASES if kind in WITH_NULLS or not case.has_null)


def tables() -> Iterator[tuple[str, int, str]]:
    """Yield kind, version and merge mode of each table that is recorded."""
    for mode, kind, version in itertools.product(MODES, KINDS, VERSIONS):
        if version == VERSIONS[-1] or kind in EVERY_VERSION:
            yield kind, version, mode


def stored_rows(cases: Iterable[Case], kind: Kind) -> pa.Table:
    """Return the rows to be stored before the writes."""
    rows = [
        _row(case, case.stored, STORED, kind) for case in cases if not isinstance(case.stored, str)
    ]
    return pa.Table.from_pylist(rows, _schema(kind))


def written_rows(cases: Iterable[Case], kind: Kind) -> pa.Table:
    """Return the rows of one write, those of each case in order."""
    rows = [
        _row(case, row.value, str(number), kind, deleted=row.does == DELETE)
        for case in cases
        for number, row in enumerate(case.rows)
    ]
    return pa.Table.from_pylist(rows, _schema(kind))


def _row(
    case: Case, value: int | None, origin: str, kind: Kind, *, deleted: bool = False
) -> dict[str, Any]:
    return {
        "id": case.name,
        "ts": None if value is None else kind.value(value),
        "seq": None if value is None else 0,
        "origin": origin,
        IS_DELETED: deleted,
    }


def _schema(kind: Kind) -> pa.Schema:
    return pa.schema(
        [
            ("id", pa.string()),
            ("ts", kind.type),
            ("seq", pa.int32()),
            ("origin", pa.string()),
            (IS_DELETED, pa.bool_()),
        ]
    )


def answers(kind: str, mode: str) -> dict[str, str]:
    """Return Hudi 1.2.0's answers by case; they are the same in all versions of tables."""
    recorded = json.loads(ANSWERS.read_text("utf-8"))
    assert recorded["versions"] == list(VERSIONS)
    found = {}
    for case in cases_of(kind):
        given = recorded[mode][case.name]
        found[case.name] = given if isinstance(given, str) else given[kind]
    return found

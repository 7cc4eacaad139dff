"""Twelve tables, one for each of the airlines with the most flights, and the rounds of their feeds.

The first round writes the first day of each table; each further one the next day of a few tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo.feed import Batch, Landing, arrow, batches
from demo.prove import prove
from demo.record import Proof
from demo.replay import replay

if TYPE_CHECKING:
    import pandas as pd

TABLES: Final = 12
WRITTEN: Final = 3
"""Tables that a round writes, after the first."""


def feeds(flights: pd.DataFrame, rounds: int) -> dict[str, list[Batch]]:
    """Return table → its batches, for so many rounds, the busiest airline first."""
    days = 1 + -(-(rounds - 1) * WRITTEN // TABLES)
    names = list(flights["carrier"].value_counts().index[:TABLES])
    return {name: list(batches(flights[flights["carrier"] == name], days)) for name in names}


def written(tables: Sequence[str], number: int) -> dict[str, int]:
    """Return the tables that a round writes, each with the number of its batch.

    Args:
        tables: All tables, in order.
        number: 1 for the first round.
    """
    if number == 1:
        return dict.fromkeys(tables, 1)
    first = (number - 2) * WRITTEN
    places = range(first, first + WRITTEN)
    return {tables[at % len(tables)]: 2 + at // len(tables) for at in places}


def land(all_feeds: Mapping[str, Sequence[Batch]], folder: Path) -> dict[str, Landing]:
    """Write the files of all batches; return table → where they are."""
    found = {name: Landing(folder / name) for name in all_feeds}
    for name, feed in all_feeds.items():
        for batch in feed:
            found[name].write(batch)
    return found


def proved(all_feeds: Mapping[str, Sequence[Batch]], rounds: int, lake: Path) -> tuple[Proof, ...]:
    """Read all tables after so many rounds with each reader; return one proof a reader.

    It has the rows of all tables, and the first difference of any.
    """
    found: dict[str, Proof] = {}
    tables = list(all_feeds)
    for name, feed in all_feeds.items():
        last = max(written(tables, number).get(name, 0) for number in range(1, rounds + 1))
        for proof in prove(lake / name, arrow(replay(feed[:last]).rows)):
            differs = None if proof.difference is None else f"{name}: {proof.difference}"
            found[proof.reader] = _sum(found.get(proof.reader), replace(proof, difference=differs))
    return tuple(found.values())


def _sum(before: Proof | None, proof: Proof) -> Proof:
    if before is None:
        return proof
    return Proof(
        proof.reader,
        before.rows + proof.rows,
        before.difference or proof.difference,
        before.seconds + proof.seconds,
    )

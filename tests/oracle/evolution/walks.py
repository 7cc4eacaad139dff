"""The walks over indexes and schemas, by release of Hudi."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.oracle.hudi import HUDI, HUDI_0
from tests.strandline.write.evolution.column_values import INT, LONG, WIDER
from tests.strandline.write.evolution.walk import Walk, Write
from tests.strandline.write.index.walk import Rules

OURS: Final = "ours"
THEIRS: Final = "hudi"
NOT_HUDIS: Final = {"BUCKET": ("bulk_insert",)}
"""Index → operations that Hudi doesn't do: they open second file groups for buckets."""


@dataclass(frozen=True, slots=True)
class EvolvingWalk:
    """One walk.

    Attributes:
        seed: Of all that is drawn.
        steps: Number of writes.
        version: The table's version.
        rules: The table's index and merge mode.
        widens_decimals: Whether decimals get more digits.
    """

    seed: int
    steps: int
    version: int
    rules: Rules
    widens_decimals: bool = True

    def __str__(self) -> str:
        rules = self.rules
        told = [
            rules.index,
            f"version {self.version}",
            "event time" if rules.by_time else "commit time",
            *(["rows stay"] if rules.is_global and not rules.moves else []),
        ]
        return ", ".join(told)

    def begun(self) -> Walk:
        """Return the walk before its first step."""
        kinds = {k: v for k, v in WIDER.items() if self.widens_decimals or k in (INT, LONG)}
        return Walk(self.rules, self.seed, kinds)

    def steps_of(self, walk: Walk) -> Iterator[tuple[str, Write]]:
        """Yield who writes and what; the caller has the walk follow each write."""
        rng = random.Random(self.seed)
        yield rng.choice((OURS, THEIRS)), walk.first()
        for _ in range(1, self.steps):
            who = rng.choice((OURS, THEIRS))
            without = NOT_HUDIS.get(self.rules.index, ()) if who == THEIRS else ()
            yield who, walk.draw(without=without)


STEPS: Final = 200
"""Number of steps of all walks; ``STRANDLINE_ROUNDS`` is a factor of it."""
WALKS: Final = {
    HUDI: (
        EvolvingWalk(1, 19, 9, Rules("SIMPLE")),
        EvolvingWalk(2, 18, 6, Rules("SIMPLE", by_time=False)),
        EvolvingWalk(3, 18, 8, Rules("BLOOM")),
        EvolvingWalk(4, 18, 6, Rules("BUCKET")),
        EvolvingWalk(5, 18, 9, Rules("BUCKET", by_time=False)),
        EvolvingWalk(6, 18, 6, Rules("GLOBAL_SIMPLE")),
        EvolvingWalk(7, 18, 9, Rules("GLOBAL_SIMPLE")),
        EvolvingWalk(8, 18, 8, Rules("GLOBAL_SIMPLE", moves=False, by_time=False)),
        EvolvingWalk(9, 19, 9, Rules("GLOBAL_BLOOM")),
    ),
    # 0.15.0 refuses rows with a wider decimal than the table's.
    HUDI_0: (
        EvolvingWalk(10, 12, 6, Rules("BLOOM"), widens_decimals=False),
        EvolvingWalk(11, 12, 6, Rules("BUCKET"), widens_decimals=False),
        EvolvingWalk(12, 12, 6, Rules("GLOBAL_SIMPLE"), widens_decimals=False),
    ),
}
"""Release → its walks; together they have ``STEPS`` steps."""

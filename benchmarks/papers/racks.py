"""Table 1 of DH-HDFS, first part: racks whose group changes when there is one more or one less."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Final

from benchmarks.papers.plot import Plot, Series
from benchmarks.papers.rows import Row, Section, percent, spread
from strandline.fleet.groups import groups_of

RACKS: Final = 475
"""19,000 servers, the paper's largest deployment, in racks of 40."""
GROUPS: Final = (6, 17)
"""Of that deployment; and with how many the paper's two figures agree."""
TOKENS: Final = (1, 10, 100)
_DC_7_ADDED: Final = 0.055
_DC_7_REMOVED: Final = 0.20
_NUMBERS: Final = 1_000_000


def moved(before: Mapping[str, object], after: Mapping[str, object]) -> float:
    """Return the share of the racks that change their group."""
    return sum(before[rack] != after[rack] for rack in before) / len(before)


def changes(names: Sequence[str], tokens: int) -> tuple[float, float]:
    """Return what the last name moves as it comes, and what the largest moves as it goes."""
    racks = [f"rack-{number}" for number in range(RACKS)]
    now = groups_of(racks, names[:-1], tokens)
    largest = Counter(now.values()).most_common(1)[0][0]
    fewer = [name for name in names[:-1] if name != largest]
    return (
        moved(now, groups_of(racks, names, tokens)),
        moved(now, groups_of(racks, fewer, tokens)),
    )


def table_1(dice: random.Random, rings: int) -> Section:
    """Return what moves when a group is added, or the largest is removed."""
    rows, added_mean, removed_mean = [], {}, {}
    for groups in GROUPS:
        for tokens in TOKENS:
            each = [
                changes(list(map(str, dice.sample(range(_NUMBERS), groups + 1))), tokens)
                for _ in range(rings)
            ]
            added, removed = (
                [100 * share for share in shares] for shares in zip(*each, strict=True)
            )
            name = f"{groups} groups, {tokens} point{'s' if tokens > 1 else ''}"
            law = 1 / (groups + 1)
            # A new group's share varies by its points' gaps, and by the racks drawn.
            deviation = law * ((1 / tokens) + 1 / (law * RACKS)) ** 0.5 / rings**0.5
            rows += [
                Row(
                    f"{name}: added",
                    percent(_DC_7_ADDED, 1),
                    percent(law, 1),
                    spread(added, 1) + " %",
                    abs(mean(added) / 100 - law) < 4 * deviation,
                ),
                Row(
                    f"{name}: the largest removed",
                    percent(_DC_7_REMOVED, 0),
                    f">= {percent(1 / groups, 1)}",
                    spread(removed, 1) + " %",
                    min(removed) >= 100 / groups - 1e-9,
                ),
            ]
            added_mean[groups, tokens] = mean(added)
            removed_mean[groups, tokens] = mean(removed)
        again = [
            moved(
                *(
                    {number: dice.randrange(groups + more) for number in range(RACKS)}
                    for more in (0, 1)
                )
            )
            for _ in range(rings)
        ]
        law = 1 - 1 / (groups + 1)
        rows.append(
            Row(
                f"{groups} groups, each rack drawn anew: added",
                "44 %",
                percent(law, 1),
                spread([100 * share for share in again], 1) + " %",
                abs(mean(again) - law) < 4 * (law * (1 - law) / RACKS / rings) ** 0.5,
            )
        )
    series = [Series("DC-7", [(1, 100 * _DC_7_ADDED)], is_paper=True)]
    for groups in GROUPS:
        for what, means in (("added", added_mean), ("largest removed", removed_mean)):
            points = [(tokens, means[groups, tokens]) for tokens in TOKENS]
            series.append(Series(f"{groups} groups, {what}", points))
    return Section(
        f"Table 1 (DH-HDFS): racks of {RACKS} that move with a group more or less",
        rows,
        "The law is 1/(K + 1). The paper's 5.5 % and 20 % of DC-7 go with about 17 groups of one"
        " point; 100 points give 8 % for the largest. Its 44 % and 68 % of racks assigned at"
        " random aren't reproduced: the text doesn't tell how they are drawn again. A server that"
        f" holds a seat stays until it is drained. {rings} rings each.",
        Plot("racks", "points a group", "racks that move, %", series, log_x=True),
    )

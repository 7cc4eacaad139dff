"""Figures of several rounds, their targets, and the table that shows them.

A figure has one value a round and side. The ratio is taken round by round, Java's value by ours, so
that what slows the machine for a while slows both; what is shown is the median, and the least and
the most in brackets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure is meant to reach; each bound counts only where it is given.

    Attributes:
        at_most: The most that our median may be.
        times: The least that the median of Java's value by ours may be.
    """

    at_most: float | None = None
    times: float | None = None

    def met(self, ours: float, ratio: float | None) -> bool | None:
        """Whether it is reached; ``None`` where that can't be told."""
        if self.times is not None and ratio is None:
            return None
        return (self.at_most is None or ours <= self.at_most) and (
            self.times is None or (ratio is not None and ratio >= self.times)
        )

    def __str__(self) -> str:
        bounds = []
        if self.at_most is not None:
            bounds.append(f"<= {_number(self.at_most)}")
        if self.times is not None:
            bounds.append(f">= {_number(self.times)} times")
        return ", ".join(bounds) or NOTHING


NO_TARGET = Target()


@dataclass(frozen=True, slots=True)
class Figure:
    """One row.

    Attributes:
        what: What was measured, with its unit; less is better.
        ours: Our value in each round; empty when it can't be measured.
        java: Hudi's in the same rounds; empty where it wasn't measured.
        target: What is wanted.
    """

    what: str
    ours: Sequence[float]
    java: Sequence[float] = ()
    target: Target = NO_TARGET

    @property
    def ratios(self) -> list[float]:
        """Java's value by ours, round by round."""
        pairs = zip(self.ours, self.java, strict=bool(self.ours and self.java))
        return [java / ours for ours, java in pairs if ours]

    @property
    def met(self) -> bool | None:
        """Whether the target is met; ``None`` without a target, or without what it needs."""
        if self.target == NO_TARGET or not self.ours:
            return None
        ratios = self.ratios
        return self.target.met(median(self.ours), median(ratios) if ratios else None)

    def row(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        met = {True: "yes", False: "NO", None: NOTHING}[self.met]
        return (
            self.what,
            _spread(self.ours),
            _spread(self.java),
            _spread(self.ratios),
            str(self.target),
            met,
        )


HEAD = ("figure", "ours", "Java", "ratio", "target", "met")


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a table in Markdown, its columns aligned."""
    rows = [HEAD, *(figure.row() for figure in figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = (
        " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(f"| {line} |" for line in lines)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return NOTHING
    low, middle, high = _number(min(values)), _number(median(values)), _number(max(values))
    return middle if low == high else f"{middle} ({low}-{high})"


def _number(value: float) -> str:
    """Return a number with three digits that count."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"

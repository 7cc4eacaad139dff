"""Figures of several rounds, their targets, and the table that shows them.

A figure has one value for each round and side. Ratios (Java's value by ours) are taken round by
round, so that a temporary slowdown of the machine affects both sides. Shown are the median and, in
brackets, minimum and maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a figure; each bound is optional.

    Attributes:
        at_most: Upper bound of our median.
        times: Lower bound of the median ratio.
    """

    at_most: float | None = None
    times: float | None = None

    def met(self, ours: float, ratio: float | None) -> bool | None:
        """Return whether the target is met; ``None`` if the ratio is needed but missing."""
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
    """One row of the table.

    Attributes:
        what: The quantity with its unit; less is better.
        ours: Our value in each round; empty if it can't be measured.
        java: Hudi's value in each round; empty if it wasn't measured.
        target: The target.
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
        """Whether the target is met; ``None`` without a target or without its values."""
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
    """Return the figures as a Markdown table with aligned columns."""
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
    """Return a number with three significant digits."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"

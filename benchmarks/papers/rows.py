"""Rows of three values: the paper's, that of a formula, and what the fleet's ring gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.papers.plot import Plot

NOTHING = "-"
HEAD = ("quantity", "paper", "formula", "here", "agrees")


@dataclass(frozen=True, slots=True)
class Row:
    """A quantity.

    Attributes:
        what: The quantity, with its unit.
        paper: What the paper says; empty: nothing.
        formula: What follows from a formula; empty: there is none.
        here: What was computed by enumeration or with the ring.
        agrees: Whether ``here`` is what ``formula`` or ``paper`` says; ``None``: not to be asked.
    """

    what: str
    paper: str = ""
    formula: str = ""
    here: str = ""
    agrees: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        agrees = {True: "yes", False: "NO", None: NOTHING}[self.agrees]
        return (
            self.what,
            *(text or NOTHING for text in (self.paper, self.formula, self.here)),
            agrees,
        )


@dataclass(frozen=True, slots=True)
class Section:
    """A table of rows.

    Attributes:
        title: What is shown, and where the paper shows it.
        rows: The rows.
        remark: What the rows mean, or what can't be reproduced.
        plot: Their values as a drawing.
    """

    title: str
    rows: Sequence[Row]
    remark: str = ""
    plot: Plot | None = None

    def text(self) -> str:
        """Return the section in Markdown."""
        lines = [HEAD, ("---",) * len(HEAD), *(row.cells() for row in self.rows)]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return "\n\n".join(part for part in (f"## {self.title}", table, self.remark) if part)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median of values, with the least and greatest in brackets."""
    low, middle, high = (f"{v:.{digits}f}" for v in (min(values), median(values), max(values)))
    return middle if low == high else f"{middle} ({low}-{high})"


def percent(share: float, digits: int = 3) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.{digits}f} %"


def scientific(value: float) -> str:
    """Return a small number with three digits."""
    return f"{value:.2e}"

"""Ratios of two things measured in alternation, and the table that shows them.

Each value has a partner that was measured immediately before or after it, so that other work on the
machine slows down both. Shown are medians; the ratio is the median of the pairs' ratios, with the
quartiles in brackets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

HEAD = ("figure", "measured", "compared with", "that", "ratio", "target", "met")


@dataclass(frozen=True, slots=True)
class Bound:
    """The target of a figure: upper bounds of the median value and of the median ratio."""

    value: float | None = None
    ratio: float | None = None

    def met(self, value: float, ratio: float | None) -> bool:
        """Return whether a median value and a median ratio, as shown, are within the bounds."""
        return (self.value is None or _shown(value) <= self.value) and (
            self.ratio is None or (ratio is not None and _shown(ratio) <= self.ratio)
        )


@dataclass(frozen=True, slots=True)
class Ratio:
    """One row of the table; less is better.

    Attributes:
        what: The quantity.
        values: Its values, pair by pair.
        unit: The unit of values and partners; seconds are given for ``"ms"`` and ``"us"``, too.
        other: What it is compared with; empty: nothing.
        partners: The values of that, pair by pair.
        bound: The target.
    """

    what: str
    values: Sequence[float]
    unit: str
    other: str = ""
    partners: Sequence[float] = ()
    bound: Bound | None = None

    @property
    def ratios(self) -> list[float]:
        """Each value by its partner."""
        pairs = zip(self.values, self.partners, strict=bool(self.partners))
        return [value / partner for value, partner in pairs if partner]

    @property
    def met(self) -> bool | None:
        """Whether the target is met; ``None`` without one."""
        if self.bound is None:
            return None
        ratios = self.ratios
        return self.bound.met(median(self.values), median(ratios) if ratios else None)

    def row(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        return (
            self.what,
            self._text(median(self.values)),
            self.other or "-",
            self._text(median(self.partners)) if self.partners else "-",
            _spread(self.ratios),
            self._target(),
            {True: "yes", False: "NO", None: "-"}[self.met],
        )

    def _target(self) -> str:
        if self.bound is None:
            return "-"
        value = None if self.bound.value is None else self._text(self.bound.value)
        ratio = None if self.bound.ratio is None else f"{self.bound.ratio:g} times"
        return ", ".join(f"<= {each}" for each in (value, ratio) if each is not None)

    def _text(self, value: float) -> str:
        scaled = value * {"ms": 1e3, "us": 1e6}.get(self.unit, 1)
        digits = f"{scaled:,.0f}" if scaled >= 100 or scaled == int(scaled) else f"{scaled:.3g}"
        return f"{digits} {self.unit}".rstrip()


def _shown(value: float) -> float:
    """Return a value with the three digits that the table shows."""
    return float(f"{value:.3g}")


def _spread(ratios: Sequence[float]) -> str:
    if len(ratios) < 2:
        return "".join(f"{ratio:.3g}" for ratio in ratios) or "-"
    low, _, high = quantiles(ratios, n=4, method="inclusive")
    return f"{median(ratios):.3g} ({low:.3g}-{high:.3g})"


def table(rows: Sequence[Ratio]) -> str:
    """Return the rows as a Markdown table."""
    return detail_table(HEAD, [row.row() for row in rows])


def detail_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def seconds(act: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def cpu_seconds(act: Callable[[], object]) -> float:
    """Return the CPU time of a call in this thread, which other work affects little."""
    started = time.thread_time()
    act()
    return time.thread_time() - started


def process_cpu(act: Callable[[], object]) -> float:
    """Return the CPU time of a call with that of all other threads of the process."""
    started = time.process_time()
    act()
    return time.process_time() - started


def cpu_ratio(
    rounds: int,
    what: str,
    run: Callable[[], object],
    other: str,
    partner: Callable[[], object],
    most: float | None = None,
) -> Ratio:
    """Return the row of the CPU times of two runs, measured in turns; ``most`` is its target."""
    pairs = [(process_cpu(run), process_cpu(partner)) for _ in range(rounds)]
    values, partners = zip(*pairs, strict=True)
    return Ratio(what, values, "ms", other, partners, most and Bound(ratio=most))

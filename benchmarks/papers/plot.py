"""``Plot``: the values of a section, as they are drawn (``benchmarks.papers.page``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one kind.

    Attributes:
        name: What they are.
        points: (x, y); x is a number, or a word if the plot's are words.
        is_paper: Whether they are the paper's: these are drawn as crosses, all others as lines.
    """

    name: str
    points: Sequence[tuple[float | str, float]]
    is_paper: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing.

    Attributes:
        name: Name of its file, without its extension.
        x: Name of the horizontal axis, with its unit.
        y: Name of the vertical one.
        series: What is drawn.
        log_x: Whether the horizontal axis is logarithmic.
        log_y: Whether the vertical one is.
    """

    name: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False

"""The picture's charts of the run in which the service was killed."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from demo.record import SOURCES, RunRecord
from demo.report.colours import CACHE, INK, KILLED, OFF, ON

_COLOURS: Final = dict(zip(SOURCES, (ON, CACHE, OFF), strict=True))
_LEAST_MS: Final = 0.01


def killed_sources(axes: Axes, run: RunRecord) -> None:
    """Draw a stacked column of look-ups by source for each batch."""
    days = [batch.number for batch in run.batches]
    floor = [0] * len(days)
    for source, colour in _COLOURS.items():
        values = [len(batch.lookups.get(source, ())) for batch in run.batches]
        if any(values):
            axes.bar(days, values, 0.82, bottom=floor, color=colour, label=source)
        floor = [low + value for low, value in zip(floor, values, strict=True)]
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes, run, "Look-ups per batch, service killed")
    # Room for the words above the columns.
    axes.set_ylim(0, max(floor, default=1) * 1.35)


def killed_slowest(axes: Axes, on: RunRecord, killed: RunRecord) -> None:
    """Draw the slowest look-up of each batch with the service on, and killed."""
    for run, colour, name in ((on, ON, "service on"), (killed, KILLED, "service killed")):
        days = [batch.number for batch in run.batches]
        slowest = [max(max(batch.lookups_s, default=0) * 1000, _LEAST_MS) for batch in run.batches]
        axes.plot(days, slowest, "o-", color=colour, markersize=4, linewidth=1.6, label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("milliseconds, log scale")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.35)
    _finish(axes, killed, "Slowest look-up per batch")


def _finish(axes: Axes, run: RunRecord, title: str) -> None:
    """Mark the batches in which the service was killed, and write what is around the plot."""
    kill = run.service_kill
    assert kill is not None, "the run in which the service was killed"
    for first, last, colour, words in (
        (kill.once, kill.once, OFF, "killed once,\nreplaced"),
        (kill.first, kill.last, KILLED, "killed\nfor good"),
    ):
        axes.axvspan(first - 0.5, last + 0.5, color=colour, alpha=0.16, linewidth=0, zorder=0)
        axes.annotate(
            words,
            ((first + last) / 2, 0.98),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontsize=8.5,
            color=INK,
        )
    axes.set_xlim(0.4, len(run.batches) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("day of the feed")
    axes.set_title(title, loc="left")
    place = {"loc": "lower right", "bbox_to_anchor": (1.01, 0.98)}
    axes.legend(**place, frameon=False, ncols=len(SOURCES), fontsize=9, handlelength=1.4)

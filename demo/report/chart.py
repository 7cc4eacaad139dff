"""The report as a picture: storage calls by cause, look-ups, and the time of each batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from demo.record import PHASES, RunRecord, megabytes, milliseconds, percentile
from demo.report.chart_killed import killed_slowest, killed_sources
from demo.report.colours import INK, OFF, ON, QUIET
from demo.report.report import KINDS, Report
from demo.report.summaries import summary

PHASE_COLOURS: Final = dict(
    zip(
        (*PHASES, "other"),
        ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#bbbbbb"),
        strict=True,
    )
)
_LEAST: Final = 0.004


def draw(report: Report, path: Path) -> None:
    """Draw the report into a PNG file."""
    style: dict[Any, Any] = {
        "axes.edgecolor": "#c5ccd3",
        "axes.labelcolor": QUIET,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "font.size": 10,
        "text.color": INK,
        "xtick.color": QUIET,
        "ytick.color": QUIET,
    }
    with matplotlib.rc_context(style):
        height = 10.6 if report.killed is None else 14.2
        figure = Figure(figsize=(13, height), dpi=110, facecolor="white")
        # Margins in inches, so that the heading keeps its place.
        grid = figure.add_gridspec(
            2 if report.killed is None else 3,
            2,
            height_ratios=(1.35, 1) if report.killed is None else (1.35, 1, 0.9),
            left=0.085,
            right=0.975,
            top=1 - 1.48 / height,
            bottom=0.95 / height,
            hspace=0.36,
            wspace=0.2,
        )
        _heading(figure, report)
        _calls(figure.add_subplot(grid[0, 0]), report)
        _lookups(figure.add_subplot(grid[0, 1]), report)
        left = figure.add_subplot(grid[1, 0])
        right = figure.add_subplot(grid[1, 1], sharey=left)
        for axes, run, name in ((left, report.on, "on"), (right, report.off, "off")):
            _batches(axes, run, f"Time per batch, service {name}")
        left.set_ylabel("seconds")
        # Below its row: its colours aren't those of the other charts.
        left.legend(loc="upper left", bbox_to_anchor=(0, -0.15), frameon=False, ncols=6)
        if report.killed is not None:
            killed_sources(figure.add_subplot(grid[2, 0]), report.killed)
            killed_slowest(figure.add_subplot(grid[2, 1]), report.on, report.killed)
        figure.savefig(path)


def _heading(figure: Figure, report: Report) -> None:
    height = figure.get_figheight()
    figure.text(0.02, 1 - 0.46 / height, "Flights into a Hudi table", fontsize=18, weight="bold")
    figure.text(0.02, 1 - 0.76 / height, f"{summary(report)}.", fontsize=11.5)
    cleaned = report.on.sum("files_cleaned")
    proofs = [proof for of_table in report.proofs.values() for proof in of_table]
    text = f"The cleaner removed {cleaned:,} files ({megabytes(report.on.sum('bytes_cleaned'))})."
    equal = sum(proof.holds for proof in proofs)
    text += f" {equal} of {len(proofs)} readings equal the replay. {report.on.platform}."
    figure.text(0.02, 1 - 1.02 / height, text, fontsize=10, color=QUIET)


def _calls(axes: Axes, report: Report) -> None:
    """Draw two bars for each kind and cause of call."""
    rows = [row for row in report.call_rows() if row.cause and row.on + row.off]
    places = range(len(rows))
    for shift, colour, name, values in (
        (-0.2, ON, "service on", [row.on for row in rows]),
        (0.2, OFF, "service off", [row.off for row in rows]),
    ):
        bars = axes.barh(
            [place + shift for place in places], values, 0.38, color=colour, label=name
        )
        axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=7, color=QUIET)
    axes.set_yticks(list(places), [f"{row.kind} · {row.cause}" for row in rows], fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"Storage calls: {', '.join(KINDS)}, by cause", loc="left")
    axes.legend(loc="lower right", frameon=False)


def _lookups(axes: Axes, report: Report) -> None:
    """Draw the cumulative distribution of the look-ups' times."""
    for run, colour, name in ((report.on, ON, "on"), (report.off, OFF, "off")):
        took = [max(seconds * 1000, _LEAST) for seconds in run.lookups_s]
        if not took:
            continue
        shares = [(place + 1) / len(took) * 100 for place in range(len(took))]
        marks = [percentile(run.lookups_s, percent) for percent in (50, 99)]
        label = f"{name}: p50 {milliseconds(marks[0])}, p99 {milliseconds(marks[1])}"
        axes.step(took, shares, where="post", color=colour, linewidth=2, label=label)
        axes.plot([max(m * 1000, _LEAST) for m in marks], (50, 99), "o", color=colour, markersize=6)
    axes.set_xscale("log")
    axes.set_ylim(0, 104)
    axes.grid(axis="both", color="#e8ebee", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("milliseconds, log scale")
    axes.set_ylabel("% of look-ups within")
    axes.set_title("Look-ups", loc="left")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(loc="best", framealpha=0.9, edgecolor="none")


def _batches(axes: Axes, run: RunRecord, title: str) -> None:
    """Draw a stacked column of phases for each batch."""
    days = [batch.number for batch in run.batches]
    floor = [0.0] * len(days)
    for phase, colour in PHASE_COLOURS.items():
        values = [batch.phase_s[phase] for batch in run.batches]
        axes.bar(days, values, 0.82, bottom=floor, color=colour, label=phase)
        floor = [low + value for low, value in zip(floor, values, strict=True)]
    if run.killed_on in days:
        _mark(axes, run.killed_on, floor, days)
    axes.set_xlabel("day of the feed")
    axes.margins(x=0.01, y=0.3)
    axes.set_title(title, loc="left")


def _mark(axes: Axes, day: int | None, tops: Sequence[float], days: Sequence[int]) -> None:
    """Mark the batch that was killed and repeated."""
    top = tops[days.index(day)] if day else 0.0
    axes.annotate(
        "killed here,\nrolled back, repeated",
        (day or 0, top),
        xytext=(0, 24),
        textcoords="offset points",
        ha="center",
        fontsize=8.5,
        color=INK,
        arrowprops={"arrowstyle": "-|>", "color": INK},
    )

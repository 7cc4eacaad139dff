"""The page's drawings as SVG: stacked columns per batch, distributions, and slowest look-ups.

Colours are CSS classes, so that the page's style chooses light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from demo.record import PHASES, SOURCES, RunRecord

_WIDTH: Final = 640
_HEIGHT: Final = 300
_LEFT: Final = 62
_RIGHT: Final = 24
_TOP: Final = 34
_BOTTOM: Final = 38
_PLOT_WIDTH: Final = _WIDTH - _LEFT - _RIGHT
_PLOT_HEIGHT: Final = _HEIGHT - _TOP - _BOTTOM
_LEAST_MS: Final = 0.01


def columns(run: RunRecord, top_s: float) -> str:
    """Return a stacked column of phases for each batch.

    Args:
        run: The run to draw.
        top_s: The scale's upper end in seconds; use the same for runs that are compared.
    """
    top = _round_up(top_s)
    parts = [_grid_y([top * step / 4 for step in range(5)], top, "{:g} s")]
    slot = _slot(run)
    for place, batch in enumerate(run.batches):
        x = _LEFT + place * slot
        y = float(_TOP + _PLOT_HEIGHT)
        title = [f"{batch.day}: {batch.total_s:.2f} s, {batch.rows:,} rows"]
        title += [f"{phase} {seconds:.2f} s" for phase, seconds in batch.phase_s.items()]
        parts.append(f"<g><title>{escape(chr(10).join(title))}</title>")
        for phase in (*PHASES, "other"):
            height = batch.phase_s[phase] / top * _PLOT_HEIGHT
            y -= height
            parts.append(_rect(x + slot * 0.09, y, slot * 0.82, height, phase))
        parts.append("</g>")
        if batch.number == run.killed_on:
            parts.append(_mark(x + slot / 2, y))
    parts.append(_batch_axis(run))
    return _svg(parts, "seconds per batch by phase")


def lookup_columns(run: RunRecord) -> str:
    """Return a stacked column of look-ups by source for each batch, with the service's deaths."""
    most = max((len(batch.lookups_s) for batch in run.batches), default=1)
    # Four whole steps.
    top = max(1, math.ceil(most / 4)) * 4
    parts = [_deaths(run), _grid_y([top * step / 4 for step in range(5)], top, "{:g}")]
    slot = _slot(run)
    for place, batch in enumerate(run.batches):
        x, y = _LEFT + place * slot, float(_TOP + _PLOT_HEIGHT)
        counts = {source: len(batch.lookups.get(source, ())) for source in SOURCES}
        title = [f"{batch.day}: {len(batch.lookups_s)} look-ups"]
        title += [f"{n} {source}" for source, n in counts.items() if n]
        title += [f"{len(batch.fallbacks)} views fell back"] if batch.fallbacks else []
        parts.append(f"<g><title>{escape(chr(10).join(title))}</title>")
        for source, n in counts.items():
            height = n / top * _PLOT_HEIGHT
            y -= height
            parts.append(_rect(x + slot * 0.09, y, slot * 0.82, height, source))
        parts.append("</g>")
    parts.append(_batch_axis(run))
    return _svg(parts, "look-ups per batch by source")


def slowest(runs: Sequence[tuple[str, RunRecord]]) -> str:
    """Return the slowest look-up of each batch, on a log scale, with the service's deaths.

    Args:
        runs: A CSS class and a run each; of the same batches.
    """
    series = [
        (name, run, [max(batch.lookups_s, default=0) * 1000 for batch in run.batches])
        for name, run in runs
    ]
    values = [max(ms, _LEAST_MS) for _, _, found in series for ms in found]
    low = math.floor(math.log10(min(values, default=1)))
    high = max(low + 1, math.ceil(math.log10(max(values, default=10))))
    parts = [_deaths(run) for _, run in runs]
    for power in range(low, high + 1):
        parts.append(_grid_line(_y_of((power - low) / (high - low)), _ms(10**power)))
    for name, run, found in series:
        points = [
            (
                _LEFT + (place + 0.5) * _slot(run),
                _y_of((math.log10(max(ms, _LEAST_MS)) - low) / (high - low)),
            )
            for place, ms in enumerate(found)
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="curve {name}" points="{line}"/>')
        for (x, y), ms, batch in zip(points, found, run.batches, strict=True):
            parts.append(f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="3">')
            parts.append(f"<title>{batch.day}: {ms:,.1f} ms</title></circle>")
    parts.append(_batch_axis(runs[0][1]))
    return _svg(parts, "slowest look-up of each batch")


def shares(curves: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Return the cumulative distribution of each curve's values, on a log scale.

    Args:
        curves: A CSS class and ascending seconds each.
    """
    values = [seconds * 1000 for _, ordered in curves for seconds in ordered]
    low = math.floor(math.log10(max(min(values, default=1), _LEAST_MS)))
    high = max(low + 1, math.ceil(math.log10(max(max(values, default=10), _LEAST_MS))))

    def x_of(ms: float) -> float:
        return _LEFT + (math.log10(max(ms, 10**low)) - low) / (high - low) * _PLOT_WIDTH

    parts = [_grid_y([0, 25, 50, 75, 100], 100, "{:g} %")]
    for power in range(low, high + 1):
        x = x_of(10**power)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" ')
        parts.append(f'y2="{_TOP + _PLOT_HEIGHT}"/>')
        parts.append(_text(x, _HEIGHT - 20, _ms(10**power), "middle"))
    for name, ordered in curves:
        points = " ".join(
            f"{x_of(seconds * 1000):.1f},{_y_of((place + 1) / len(ordered)):.1f}"
            for place, seconds in _thinned(ordered)
        )
        parts.append(f'<polyline class="curve {name}" points="{points}"/>')
    return _svg(parts, "share of look-ups within a time")


def _thinned(ordered: Sequence[float]) -> list[tuple[int, float]]:
    """Return at most a few hundred points of a curve, including its ends."""
    step = max(1, len(ordered) // 300)
    return [
        (place, value)
        for place, value in enumerate(ordered)
        if place % step == 0 or place >= len(ordered) - 5
    ]


def _grid_y(values: Sequence[float], top: float, form: str) -> str:
    parts = []
    for value in values:
        parts.append(_grid_line(_y_of(value / top), form.format(value)))
    return "".join(parts)


def _grid_line(y: float, words: str) -> str:
    line = f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + _text(_LEFT - 6, y + 4, words, "end")


def _slot(run: RunRecord) -> float:
    """Return the width of a batch."""
    return _PLOT_WIDTH / max(1, len(run.batches))


def _batch_axis(run: RunRecord) -> str:
    """Return the labels below the batches."""
    step = max(1, math.ceil(len(run.batches) / 10))
    parts = [
        _text(_LEFT + (place + 0.5) * _slot(run), _HEIGHT - 20, str(batch.number), "middle")
        for place, batch in enumerate(run.batches)
        if place % step == 0
    ]
    parts.append(_text(_LEFT + _PLOT_WIDTH / 2, _HEIGHT - 4, "day of the feed", "middle"))
    return "".join(parts)


def _deaths(run: RunRecord) -> str:
    """Return a band behind the batches in which the service was killed, with a word above each."""
    kill = run.service_kill
    if kill is None:
        return ""
    parts = []
    for name, first, last, words in (
        ("replaced", kill.once, kill.once, "killed once, replaced"),
        ("lost", kill.first, kill.last, "killed for good"),
    ):
        x, width = _LEFT + (first - 1) * _slot(run), (last - first + 1) * _slot(run)
        parts.append(_rect(x, _TOP, width, _PLOT_HEIGHT, f"band {name}"))
        parts.append(_word(x + width / 2, _TOP - 8, words))
    return "".join(parts)


def _mark(x: float, y: float) -> str:
    """Return the mark above the killed batch."""
    line = f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{max(22.0, y - 3):.1f}"/>'
    return line + _word(x, 14, "killed, rolled back, repeated")


def _word(x: float, y: float, words: str) -> str:
    """Return words above the plot that stay within its sides."""
    if x > _WIDTH * 0.75:
        return _text(min(x + 20, _WIDTH - 4), y, words, "end", "word")
    if x < _WIDTH * 0.25:
        return _text(max(x - 20, _LEFT), y, words, "start", "word")
    return _text(x, y, words, "middle", "word")


def _rect(x: float, y: float, width: float, height: float, name: str) -> str:
    where = f'x="{x:.1f}" y="{y:.2f}" width="{width:.1f}" height="{max(0.0, height):.2f}"'
    return f'<rect class="{name}" {where}/>'


def _text(x: float, y: float, words: str, anchor: str, name: str = "tick") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{name}" {where}>{escape(words)}</text>'


def _svg(parts: Sequence[str], label: str) -> str:
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}"'
    return f"<svg {box}>{''.join(parts)}</svg>"


def _ms(value: float) -> str:
    """Return a scale's milliseconds, or seconds from 1000 on."""
    return f"{value:g} ms" if value < 1000 else f"{value / 1000:g} s"


def _y_of(share: float) -> float:
    return _TOP + (1 - share) * _PLOT_HEIGHT


def _round_up(value: float) -> float:
    """Return the next value at which a scale of four steps can end."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(m * power for m in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if m * power >= value)

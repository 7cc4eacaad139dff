"""The page's drawings as SVG: stacked columns of phases, and distributions of times.

Colours are CSS classes, so that the page's style chooses light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from demo.record import PHASES, RunRecord

_WIDTH: Final = 640
_HEIGHT: Final = 300
_LEFT: Final = 46
_RIGHT: Final = 24
_TOP: Final = 34
_BOTTOM: Final = 34
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
    slot = _PLOT_WIDTH / max(1, len(run.batches))
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
        if place % max(1, math.ceil(len(run.batches) / 10)) == 0:
            parts.append(_text(x + slot / 2, _HEIGHT - 16, str(batch.number), "middle"))
    parts.append(_text(_LEFT + _PLOT_WIDTH / 2, _HEIGHT - 2, "day of the feed", "middle"))
    return _svg(parts, "seconds per batch by phase")


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
        parts.append(_text(x, _HEIGHT - 16, f"{10**power:g} ms", "middle"))
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
        y = _y_of(value / top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" ')
        parts.append(f'y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 6, y + 4, form.format(value), "end"))
    return "".join(parts)


def _mark(x: float, y: float) -> str:
    """Return the mark above the killed batch."""
    anchor = "end" if x > _WIDTH * 0.6 else "start" if x < _WIDTH * 0.3 else "middle"
    words = "killed, rolled back, repeated"
    line = f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{max(22.0, y - 3):.1f}"/>'
    return line + _text(x, 14, words, anchor, "word")


def _rect(x: float, y: float, width: float, height: float, name: str) -> str:
    where = f'x="{x:.1f}" y="{y:.2f}" width="{width:.1f}" height="{max(0.0, height):.2f}"'
    return f'<rect class="{name}" {where}/>'


def _text(x: float, y: float, words: str, anchor: str, name: str = "tick") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{name}" {where}>{escape(words)}</text>'


def _svg(parts: Sequence[str], label: str) -> str:
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}"'
    return f"<svg {box}>{''.join(parts)}</svg>"


def _y_of(share: float) -> float:
    return _TOP + (1 - share) * _PLOT_HEIGHT


def _round_up(value: float) -> float:
    """Return the next value at which a scale of four steps can end."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(m * power for m in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if m * power >= value)

"""The page of a run: who was asked when, what was done to the fleet, its ring, and the rows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from demo.fleet.record import Event, FleetRecord, Round, Sample, asked, rates
from demo.record import Proof, milliseconds, percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ccc;"
    "text-align:right}td:first-child,th:first-child,td:last-child{text-align:left}"
    "pre{background:#f5f5f5;padding:1em;overflow:auto}svg{max-width:100%;height:auto}"
)
_INCHES: Final = (11.0, 4.5)
_ABSENT: Final = "-"


def write_page(record: FleetRecord, file: Path) -> None:
    """Write the page, one file of HTML with its drawing; needs matplotlib."""
    write_html(_page(record), file)


def write_html(lines: Iterable[str], file: Path) -> None:
    """Write a page."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", "utf-8")


def _page(record: FleetRecord) -> Iterator[str]:
    yield from head("A fleet under a Spark job", is_right=record.is_right)
    yield (
        "<p>The first round writes a day of flights of each of twelve airlines, a table each, every"
        " further one the next day of three of them. Then Spark's tasks ask the fleet about all"
        " partitions of all tables at their new instants. Every answer is compared with a view"
        " built anew.</p>"
    )
    yield "<h2>Questions answered a second, by server</h2>"
    yield _drawing(record)
    yield "<h2>What was done</h2>"
    yield event_table(record.events)
    yield "<h2>Who was asked</h2><p>Questions that each server answered, by round.</p>"
    yield asked_table(record.rounds, record.samples)
    yield "<h2>Rounds</h2>"
    yield round_table(record.rounds)
    yield f"<h2>The ring before</h2><pre>{escape(record.before)}</pre>"
    yield f"<h2>The ring after</h2><pre>{escape(record.after)}</pre>"
    yield "<h2>The rows of all tables at the end, beside a replay of the feeds</h2>"
    yield proof_table(record.proofs)


def head(title: str, *, is_right: bool) -> Iterator[str]:
    """Yield the beginning of a page, with its verdict."""
    verdict = "all answers and rows are right" if is_right else "SOMETHING IS WRONG"
    yield f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title>'
    yield f"<style>{_STYLE}</style>"
    yield f"<h1>{escape(title)}: {verdict}</h1>"


def event_table(events: Sequence[Event]) -> str:
    """Return what was done to the fleet, numbered as in drawings."""
    rows = ((str(n), f"{e.at_s:.1f}", e.what) for n, e in enumerate(events, 1))
    return table(("number", "second", "event"), rows)


def asked_table(rounds: Sequence[Round], samples: Sequence[Sample]) -> str:
    """Return how many questions each server answered in each round; ``-``: it didn't run."""
    names = sorted({name for sample in samples for name in sample.answered})
    found = [(each, asked(samples, each.begun_s, each.ended_s)) for each in rounds]
    rows = (
        (
            str(each.number),
            *(f"{counts[name]:,}" if name in counts else _ABSENT for name in names),
        )
        for each, counts in found
    )
    return table(("round", *names), rows)


def round_table(rounds: Sequence[Round]) -> str:
    """Return what each round did, and how long its look-ups took."""
    rows = []
    for each in rounds:
        ordered = sorted(each.took_s)
        rows.append(
            (
                str(each.number),
                f"{each.begun_s:.1f}",
                f"{each.ended_s:.1f}",
                str(each.lookups),
                milliseconds(percentile(ordered, 50)),
                milliseconds(percentile(ordered, 99)),
                str(each.own),
                str(each.wrong),
                " ".join(each.tables),
            )
        )
    columns = "round, from s, to s, look-ups, median, 99 %, listed by a task, wrong, tables written"
    return table(tuple(columns.split(", ")), rows)


def proof_table(proofs: Sequence[Proof]) -> str:
    """Return what each reader found."""
    rows = ((p.reader, f"{p.rows:,}", p.difference or "none") for p in proofs)
    return table(("read by", "rows", "difference"), rows)


def table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table of HTML; cells are escaped."""
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in titles)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def figure_of(rows: int = 1) -> tuple[Figure, Any]:
    """Return an empty figure, and its axes, one below the other."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - only drawings need it

    figure = Figure(figsize=(_INCHES[0], _INCHES[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, sharex=True)


def mark_events(axes: Axes, events: Sequence[Event]) -> None:
    """Draw numbered lines at events."""
    for number, event in enumerate(events, 1):
        axes.axvline(event.at_s, color="0.4", linestyle=":", linewidth=1)
        axes.annotate(str(number), (event.at_s, 1), xycoords=("data", "axes fraction"), va="bottom")


def svg(figure: Figure) -> str:
    """Return a figure as SVG."""
    import matplotlib as mpl  # noqa: PLC0415 - only drawings need it

    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "fleet", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _drawing(record: FleetRecord) -> str:
    """Return the servers' rates over time with the events, as SVG."""
    figure, axes = figure_of()
    for name, points in sorted(rates(record.samples).items()):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, label=name, linewidth=1)
    mark_events(axes, record.events)
    axes.set(xlabel="seconds", ylabel="questions a second")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside right upper")
    return svg(figure)

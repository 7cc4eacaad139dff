"""The page of a run: who answered when, what was done to the fleet, its ring, and the rows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from demo.fleet.record import FleetRecord, rates

_INCHES: Final = (11.0, 4.5)
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ccc;"
    "text-align:right}td:first-child,th:first-child{text-align:left}"
    "pre{background:#f5f5f5;padding:1em;overflow:auto}svg{max-width:100%;height:auto}"
)


def write_page(record: FleetRecord, file: Path) -> None:
    """Write the page, one file of HTML with its drawing; needs matplotlib."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(_page(record)) + "\n", "utf-8")


def _page(record: FleetRecord) -> Iterator[str]:
    verdict = "all answers and rows are right" if record.is_right else "SOMETHING IS WRONG"
    yield '<!doctype html><meta charset="utf-8"><title>A fleet under a Spark job</title>'
    yield f"<style>{_STYLE}</style>"
    yield f"<h1>A fleet under a Spark job: {verdict}</h1>"
    yield (
        "<p>Each round writes a day of flights and has Spark's tasks ask the fleet about all "
        "partitions at the new instant. Every answer is compared with a view built anew.</p>"
    )
    yield "<h2>Questions answered a second, by server</h2>"
    yield _drawing(record)
    yield "<h2>What was done</h2>"
    yield _table(
        ("number", "second", "event"),
        ((str(n), f"{e.at_s:.1f}", e.what) for n, e in enumerate(record.events, 1)),
    )
    yield "<h2>Rounds</h2>"
    yield _table(
        ("day", "from s", "to s", "look-ups", "listed by a task", "wrong"),
        (
            (
                r.day,
                f"{r.begun_s:.1f}",
                f"{r.ended_s:.1f}",
                str(r.lookups),
                str(r.own),
                str(r.wrong),
            )
            for r in record.rounds
        ),
    )
    yield f"<h2>The ring before</h2><pre>{escape(record.before)}</pre>"
    yield f"<h2>The ring after</h2><pre>{escape(record.after)}</pre>"
    yield "<h2>The rows at the end, beside a replay of the feed</h2>"
    yield _table(
        ("read by", "rows", "difference"),
        ((p.reader, f"{p.rows:,}", p.difference or "none") for p in record.proofs),
    )


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _drawing(record: FleetRecord) -> str:
    """Return the servers' rates over time with the events, as SVG."""
    import matplotlib as mpl  # noqa: PLC0415 - only drawings need it
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    with mpl.rc_context({"svg.hashsalt": "fleet", "svg.fonttype": "none"}):
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.subplots()
        for name, points in sorted(rates(record.samples).items()):
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, label=name, linewidth=1)
        for number, event in enumerate(record.events, 1):
            axes.axvline(event.at_s, color="0.4", linestyle=":", linewidth=1)
            axes.annotate(
                str(number), (event.at_s, 1), xycoords=("data", "axes fraction"), va="bottom"
            )
        axes.set(xlabel="seconds", ylabel="questions a second")
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside right upper")
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]

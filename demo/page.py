"""The report as one self-contained HTML page, with its style and drawings inline."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from demo import svg
from demo.record import PHASES, RunRecord, percentile
from demo.report import CallRow, Report, megabytes, milliseconds, numbers, summary

_STYLE: Final = Path(__file__).with_name("page.css")
_BOTH: Final = (("on", "service on"), ("off", "service off"))


def page(report: Report) -> str:
    """Return the page."""
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<title>Flights into a Hudi table</title>",
            f"<style>{_STYLE.read_text('utf-8')}</style></head><body><main>",
            *_head(report),
            *_tiles(report),
            *_calls(report),
            *_lookups(report),
            *_batches(report),
            '<div class="pair top">',
            *_numbers(report),
            *_proofs(report),
            "</div>",
            "</main></body></html>\n",
        ]
    )


def _head(report: Report) -> Iterator[str]:
    yield "<h1>Flights into a Hudi table</h1>"
    yield f"<p>{escape(summary(report))}. Table version {report.table_version}, copy-on-write; "
    yield f"batch {report.on.killed_on} was killed before its commit in both runs, "
    yield "rolled back and repeated.</p>"
    yield f'<p class="quiet">{escape(report.on.platform)}</p>'
    for failure in report.failures:
        yield f'<p class="bad">Failed: {escape(failure)}</p>'


def _tiles(report: Report) -> Iterator[str]:
    on, off = report.on, report.off
    medians = [milliseconds(_median_s(run)) for run in (on, off)]
    halves = [milliseconds(percentile(run.lookups_s, 50)) for run in (on, off)]
    lists = [f"{run.calls_of('list'):,}" for run in (on, off)]
    cleaned = [f"{run.sum('files_cleaned'):,} files" for run in (on, off)]
    yield '<div class="tiles">'
    yield _tile("List calls", lists[0], f"{lists[1]} without the service")
    yield _tile("Look-up, p50", halves[0], f"{halves[1]} without the service")
    yield _tile("Batch, median", medians[0], f"{medians[1]} without the service")
    size = megabytes(on.sum("bytes_cleaned"))
    yield _tile("Cleaner removed", cleaned[0], f"{size}; {cleaned[1]} without")
    yield "</div>"


def _tile(name: str, value: str, versus: str) -> str:
    return (
        f'<div class="tile"><span class="quiet">{escape(name)}</span><b>{escape(value)}</b>'
        f'<span class="versus">{escape(versus)}</span></div>'
    )


def _calls(report: Report) -> Iterator[str]:
    rows = list(report.call_rows())
    most = max((max(row.on, row.off) for row in rows if row.cause), default=1) or 1
    yield '<section class="card"><h2>Storage calls, by cause</h2>'
    yield '<p class="quiet">Calls of all processes: driver, executors and, with the service on, '
    yield "the service, whose share has a column of its own. The calls of the killed process in "
    yield "its last batch aren't counted in either run.</p>"
    yield _key([(f"--{name}", text) for name, text in _BOTH])
    yield "<table><thead><tr><th>calls</th><th>for</th><th></th>"
    for name in ("service on", "of these the service", "service off"):
        yield f'<th class="number">{name}</th>'
    yield "</tr></thead><tbody>"
    for row in rows:
        yield from _call_row(row, most)
    yield "</tbody></table></section>"


def _call_row(row: CallRow, most: int) -> Iterator[str]:
    total = not row.cause
    yield '<tr class="total">' if total else "<tr>"
    yield f"<td>{escape(row.kind)}</td><td>{'all' if total else escape(row.cause)}</td>"
    yield '<td class="bars">'
    if not total:
        for name, value in (("on", row.on), ("off", row.off)):
            if not value:
                continue
            yield f'<div class="bar" style="width:{value / most * 100:.2f}%;'
            yield f'background:var(--{name})"></div>'
    yield "</td>"
    own = f"{row.of_service:,}" if row.of_service else ""
    for text in (f"{row.on:,}", own, f"{row.off:,}"):
        yield f'<td class="number">{text}</td>'
    yield "</tr>"


def _lookups(report: Report) -> Iterator[str]:
    yield '<section class="card"><h2>Look-ups</h2><div class="key">'
    for run, (name, text) in zip((report.on, report.off), _BOTH, strict=True):
        took = [milliseconds(percentile(run.lookups_s, percent)) for percent in (50, 99)]
        yield f'<span><i style="background:var(--{name})"></i>{text}: {len(run.lookups_s):,}, '
        yield f"p50 {took[0]}, p99 {took[1]}</span>"
    yield '</div><div class="pair"><div>'
    yield svg.shares([("on", report.on.lookups_s), ("off", report.off.lookups_s)])
    yield '</div><div class="quiet"><p>A look-up is one query of the file-system view, such as the '
    yield "files of a partition or the newest file of a file group. The curves show the share of "
    yield "look-ups answered within a time.</p><p>With the service, a task sends an HTTP request. "
    yield "Without it, each task lists the timeline and the partition itself. Here the table is on "
    yield "a local disk, where listing a small folder costs next to nothing; on an object store "
    yield "each list call takes tens to hundreds of milliseconds, so their number, above, decides."
    yield "</p></div></div></section>"


def _batches(report: Report) -> Iterator[str]:
    top = max(
        (batch.total_s for run in (report.on, report.off) for batch in run.batches), default=1
    )
    yield '<section class="card"><h2>Time per batch</h2>'
    yield _key([(f"--{phase}", phase) for phase in (*PHASES, "other")])
    yield '<div class="pair">'
    for run, (name, text) in zip((report.on, report.off), _BOTH, strict=True):
        yield f'<div><span class="{name}-text">{text}</span>{svg.columns(run, top)}</div>'
    yield "</div></section>"


def _numbers(report: Report) -> Iterator[str]:
    yield '<section class="card"><h2>In numbers</h2><table><thead><tr><th></th>'
    yield '<th class="number">service on</th><th class="number">service off</th>'
    yield "</tr></thead><tbody>"
    for (name, on), (_, off) in zip(numbers(report.on), numbers(report.off), strict=True):
        yield f'<tr><td>{escape(name)}</td><td class="number">{escape(on)}</td>'
        yield f'<td class="number">{escape(off)}</td></tr>'
    yield "</tbody></table></section>"


def _proofs(report: Report) -> Iterator[str]:
    yield '<section class="card"><h2>Proof against the replay</h2>'
    yield '<p class="quiet">Rows and values as three independent readers see them, compared with a '
    yield "plain replay of the feed.</p><table><thead><tr><th>table</th>"
    yield '<th class="number">rows</th>'
    for proof in next(iter(report.proofs.values()), ()):
        yield f"<th>{escape(proof.reader)}</th>"
    yield "</tr></thead><tbody>"
    for of, proofs in report.proofs.items():
        yield f'<tr><td>{escape(of)}</td><td class="number">{proofs[0].rows:,}</td>'
        for proof in proofs:
            style, result = ("good", "equal") if proof.holds else ("bad", "differs")
            yield f'<td class="{style}" title="{escape(proof.difference or result)}">{result}</td>'
        yield "</tr>"
    yield "</tbody></table></section>"


def _key(entries: list[tuple[str, str]]) -> str:
    marks = (
        f'<span><i style="background:var({colour})"></i>{escape(text)}</span>'
        for colour, text in entries
    )
    return f'<div class="key">{"".join(marks)}</div>'


def _median_s(run: RunRecord) -> float:
    return statistics.median([batch.total_s for batch in run.batches[1:]] or [run.batches_s])

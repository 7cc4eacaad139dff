"""The report as one self-contained HTML page, with its style and drawings inline."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from html import escape

from demo.record import PHASES, RunRecord, megabytes, milliseconds, percentile
from demo.report import svg
from demo.report.page_lookups import BOTH, key, killed_section, lookup_section
from demo.report.page_parts import WIDE, framed, life_section, proof_section
from demo.report.report import CallRow, Report
from demo.report.summaries import (
    killed_summary,
    numbers,
    readers_summary,
    saved_summary,
    summary,
)


def page(report: Report) -> str:
    """Return the page."""
    parts = [
        *_head(report),
        *_tiles(report),
        *_calls(report),
        *lookup_section(report),
        *killed_section(report),
        *_batches(report),
        *life_section(report.life),
        '<div class="pair top">',
        *_numbers(report),
        *proof_section(report.proofs, report.groups),
        "</div>",
    ]
    return framed("Flights into a Hudi table", parts)


def _head(report: Report) -> Iterator[str]:
    yield "<h1>Flights into a Hudi table</h1>"
    yield f"<p>{escape(summary(report))}. Table version {report.table_version}, "
    yield f"{report.table_type}; batch {report.on.killed_on} was killed before its commit in both "
    yield "runs, rolled back and repeated.</p>"
    yield f"<p>{escape(saved_summary(report))}.</p>"
    if told := readers_summary(report):
        yield f"<p>{escape(told)}.</p>"
    if report.killed is not None:
        yield f"<p>{escape(killed_summary(report, report.killed))}.</p>"
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
    yield key([(f"--{name}", text) for name, text in BOTH])
    yield f'{WIDE}<table><thead><tr><th>calls</th><th>for</th><th class="bars"></th>'
    for name in ("service on", "of these the service", "service off"):
        yield f'<th class="number">{name}</th>'
    yield "</tr></thead><tbody>"
    for row in rows:
        yield from _call_row(row, most)
    yield "</tbody></table></div></section>"


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


def _batches(report: Report) -> Iterator[str]:
    top = max(
        (batch.total_s for run in (report.on, report.off) for batch in run.batches), default=1
    )
    yield '<section class="card"><h2>Time per batch</h2>'
    yield key([(f"--{phase}", phase) for phase in (*PHASES, "other")])
    yield '<div class="pair">'
    for run, (name, text) in zip((report.on, report.off), BOTH, strict=True):
        yield f'<div><span class="{name}-text">{text}</span>{svg.columns(run, top)}</div>'
    yield "</div></section>"


def _numbers(report: Report) -> Iterator[str]:
    yield '<section class="card"><h2>In numbers</h2>'
    yield f"{WIDE}<table><thead><tr><th></th>"
    for name in report.runs:
        yield f'<th class="number">{name}</th>'
    yield "</tr></thead><tbody>"
    columns = [numbers(report, name) for name in report.runs]
    for (name, value), *others in zip(*columns, strict=True):
        yield f"<tr><td>{escape(name)}</td>"
        for text in (value, *(other for _, other in others)):
            yield f'<td class="number">{escape(text)}</td>'
        yield "</tr>"
    yield "</tbody></table></div></section>"


def _median_s(run: RunRecord) -> float:
    return statistics.median([batch.total_s for batch in run.batches[1:]] or [run.batches_s])

"""The report as one self-contained HTML page, with its style and drawings inline."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from demo.record import PHASES, RunRecord, megabytes, milliseconds, percentile
from demo.report import svg
from demo.report.page_lookups import BOTH, key, killed_section, lookup_section
from demo.report.report import CallRow, Report
from demo.report.summaries import (
    killed_summary,
    numbers,
    readers_summary,
    saved_summary,
    summary,
)

_STYLE: Final = Path(__file__).with_name("page.css")


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
            *lookup_section(report),
            *killed_section(report),
            *_batches(report),
            *_life(report),
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
    yield '<div class="wide"><table><thead><tr><th>calls</th><th>for</th><th class="bars"></th>'
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
    yield '<section class="card"><h2>In numbers</h2><div class="wide"><table><thead><tr><th></th>'
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


def _life(report: Report) -> Iterator[str]:
    life = report.life
    if life is None:
        return
    yield '<section class="card"><h2>The life of a data file</h2>'
    yield f'<p class="quiet">{escape(life.path)}, which is '
    yield f"{'still there' if life.is_there else 'gone'}: told from the timeline and its archive, "
    yield "the last line as <code>strandline why</code> does.</p>"
    yield '<div class="wide"><table><thead><tr><th>batch</th><th>what happened</th></tr></thead>'
    yield "<tbody>"
    for number, text in life.events:
        yield f"<tr><td>{number}</td><td>{escape(text)}</td></tr>"
    yield "</tbody></table></div></section>"


def _proofs(report: Report) -> Iterator[str]:
    yield '<section class="card"><h2>Proof against the replay</h2>'
    yield '<p class="quiet">Rows and values as three independent readers see them, compared with a '
    yield "plain replay of the feed; file groups and their slices, compared with those of the run "
    yield 'with the service on.</p><div class="wide"><table><thead><tr><th>table</th>'
    yield '<th class="number">rows</th>'
    for proof in next(iter(report.proofs.values()), ()):
        yield f"<th>{escape(proof.reader)}</th>"
    yield "<th>file groups</th></tr></thead><tbody>"
    for of, proofs in report.proofs.items():
        yield f'<tr><td>{escape(of)}</td><td class="number">{proofs[0].rows:,}</td>'
        for proof in proofs:
            yield _verdict(proof.difference)
        groups = report.groups.get(of)
        yield "<td></td>" if groups is None else _verdict(groups.difference)
        yield "</tr>"
    yield "</tbody></table></div></section>"


def _verdict(difference: str | None) -> str:
    """Return the cell for a comparison."""
    style, result = ("good", "equal") if difference is None else ("bad", "differs")
    return f'<td class="{style}" title="{escape(difference or result)}">{result}</td>'


def _median_s(run: RunRecord) -> float:
    return statistics.median([batch.total_s for batch in run.batches[1:]] or [run.batches_s])

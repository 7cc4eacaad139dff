"""The page's sections on look-ups: their times, and the run in which the service was killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from demo.record import SOURCES, RunRecord, milliseconds, percentile
from demo.report import svg
from demo.report.lookups import LOST, ONCE, LookupRow, by_source, rows
from demo.report.page_parts import WIDE
from demo.report.report import Report

BOTH: Final = (("on", "service on"), ("off", "service off"))
_BADGES: Final = {ONCE: "replaced", LOST: "lost"}


def lookup_section(report: Report) -> Iterator[str]:
    """Yield the section on the times of look-ups with the service on and off."""
    yield '<section class="card"><h2>Look-ups</h2><div class="key">'
    for run, (name, text) in zip((report.on, report.off), BOTH, strict=True):
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


def killed_section(report: Report) -> Iterator[str]:
    """Yield the section on the run in which the service was killed, if there was one."""
    run = report.killed
    if run is None:
        return
    yield '<section class="card"><h2>Service killed half-way</h2>'
    yield '<p class="quiet">A third run of the same feed, in which the process of the service is '
    yield "killed (SIGKILL) in the middle of writes: after the driver has pinned the timeline, and "
    yield "before the tasks look up. The driver waits meanwhile; look-up times don't include "
    yield "that.</p><ol>"
    for told in report.account:
        yield f"<li>{escape(told)}</li>"
    yield '</ol><div class="pair"><div><h3>Look-ups per batch, by source</h3>'
    yield key([(f"--{source}", source) for source in by_source(run)])
    yield svg.lookup_columns(run)
    yield "</div><div><h3>Slowest look-up of each batch</h3>"
    yield key([("--on", "service on"), ("--killed", "service killed")])
    yield svg.slowest([("on", report.on), ("killed", run)])
    yield "</div></div>"
    yield from _table(rows(run))
    for name, of in report.runs.items():
        yield f"<details><summary>Every batch, {name}: {_sources(of)}</summary>"
        yield from _table(rows(of, every=True))
        yield "</details>"
    yield "</section>"


def _sources(run: RunRecord) -> str:
    """Return count and times of a run's look-ups, by source."""
    parts = [
        f"{len(took):,} {source} (p50 {milliseconds(percentile(took, 50))}, "
        f"p99 {milliseconds(percentile(took, 99))})"
        for source, took in by_source(run).items()
    ]
    return ", ".join(parts) or "no look-ups"


def _table(found: Sequence[LookupRow]) -> Iterator[str]:
    """Yield a table with a row for each batch or stretch of batches."""
    yield f"{WIDE}<table><thead><tr><th>batch</th><th>the service</th>"
    for name in (*SOURCES, "p50", "p99"):
        yield f'<th class="number">{name}</th>'
    yield '<th class="text">fallbacks</th><th class="number">list calls</th></tr></thead><tbody>'
    for row in found:
        yield (
            f'<tr class="event"><td>{row.batches}</td>'
            if row.event
            else (f"<tr><td>{row.batches}</td>")
        )
        yield f"<td>{_badge(row)}</td>"
        for source in SOURCES:
            yield f'<td class="number">{row.counts[source] or ""}</td>'
        for percent in (50, 99):
            yield f'<td class="number">{milliseconds(percentile(row.took_s, percent))}</td>'
        yield f'<td class="text">{escape(row.causes)}</td>'
        yield f'<td class="number">{row.list_calls:,}</td></tr>'
    yield "</tbody></table></div>"


def _badge(row: LookupRow) -> str:
    if not row.event:
        return ""
    title = f"{row.kills} processes killed"
    return f'<span class="badge {_BADGES[row.event]}" title="{title}">{escape(row.event)}</span>'


def key(entries: Sequence[tuple[str, str]]) -> str:
    """Return a legend: a CSS colour variable and a text each."""
    marks = (
        f'<span><i style="background:var({colour})"></i>{escape(text)}</span>'
        for colour, text in entries
    )
    return f'<div class="key">{"".join(marks)}</div>'

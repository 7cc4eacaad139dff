"""The report on an object store as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from demo.object_store.lake import OFF, ON
from demo.object_store.record import TITLES, WAYS, StoreReport
from demo.object_store.summaries import COLUMNS, asked, day_figures, figures, sentences, title
from demo.record import BatchRecord
from demo.report.page_parts import WIDE, framed, life_section, proof_section, rows


def page(report: StoreReport) -> str:
    """Return the page."""
    parts = [_head(report), _days(report), _feed(report)]
    parts += [life_section(report.life), proof_section(report.proofs, {OFF: report.groups})]
    return framed("Look-ups on an object store", (text for part in parts for text in part))


def _head(report: StoreReport) -> Iterator[str]:
    yield f"<h1>{escape(title(report))}</h1><p>{escape(asked(report))}.</p>"
    for failure in report.failures:
        yield f'<p class="bad">Failed: {escape(failure)}</p>'
    yield f'<section class="card">{WIDE}<table><thead><tr><th>way</th><th class="bars"></th>'
    for name in COLUMNS:
        yield f'<th class="number">{name}</th>'
    yield "</tr></thead><tbody>"
    requests = [report.spread(way, lambda each: each.requests.answered).median for way in WAYS]
    for way, number in zip(WAYS, requests, strict=True):
        yield f'<tr><td>{escape(TITLES[way])}</td><td class="bars">'
        yield f'<div class="bar" style="width:{number / max(requests) * 100:.2f}%;'
        yield 'background:var(--on)"></div></td>'
        for text in figures(report, way):
            yield f'<td class="number">{escape(text)}</td>'
        yield "</tr>"
    yield "</tbody></table></div></section><ul>"
    for told in sentences(report):
        yield f"<li>{escape(told)}.</li>"
    yield f'</ul><p class="quiet">{escape(report.platform)}; {report.seconds:,.0f} s. Table '
    yield f"version {report.table_version}, {escape(report.table_type)}.</p>"


def _days(report: StoreReport) -> Iterator[str]:
    yield '<section class="card"><h2>Every job</h2>'
    yield '<p class="quiet">The ways take turns, each day in another order. The time of a request '
    yield "is the median until its answer begins, with the delay.</p>"
    jobs = [report.loading, *report.jobs, report.after_kill]
    notes = ["loads the table", *[""] * len(report.jobs), "killed, replaced"]
    body = (
        (
            str(each.job.day),
            TITLES[each.job.way],
            note,
            *day_figures(report, each),
            f"{each.rate:,.1f}",
            f"{each.requests.busiest:,}",
            f"{each.requests.took_s * 1000:,.0f}",
        )
        for each, note in zip(jobs, notes, strict=True)
    )
    head = ("requests a second", "in the busiest second", "a request, ms")
    yield from rows(("day", "way", "", *COLUMNS, *head), body, texts=3)
    yield "</section>"


def _feed(report: StoreReport) -> Iterator[str]:
    yield '<section class="card"><h2>The writer</h2><p class="quiet">Beside, as they are: the '
    yield "service can't change what a write does, and only little of it is look-ups.</p>"
    head = ("day", "table", "rows", "commits", "look-ups, s", "whole write, s")
    body = (
        (str(batch.number), table, *_written(batch))
        for table in (ON, OFF)
        for batch in report.feed[table]
    )
    yield from rows(head, body, texts=2)
    yield "</section>"


def _written(batch: BatchRecord) -> tuple[str, ...]:
    look_ups, total = f"{sum(batch.lookups_s):.2f}", f"{batch.total_s:.1f}"
    return f"{batch.rows:,}", str(batch.commits), look_ups, total

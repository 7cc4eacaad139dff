"""A report as tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from demo.record import FileLife, RunRecord, milliseconds, percentile
from demo.report.lookups import rows
from demo.report.report import Report
from demo.report.summaries import (
    killed_summary,
    numbers,
    readers_summary,
    saved_summary,
    summary,
)


def show(report: Report, console: Console) -> None:
    """Print the report on the terminal."""
    console.print(Group(*_parts(report)))


def _parts(report: Report) -> Iterator[RenderableType]:
    yield Text()
    yield _calls_table(report)
    yield Text()
    if report.killed is not None:
        yield _killed_table(report.killed)
        for told in report.account:
            yield Text(told)
        yield Text()
    yield _numbers_table(report)
    yield Text()
    if report.life is not None:
        yield _life_table(report.life)
        yield Text()
    yield _proofs_table(report)
    yield Text()
    yield Text(f"{summary(report)}.", style="bold")
    yield Text(f"{saved_summary(report)}.", style="bold")
    if told := readers_summary(report):
        yield Text(f"{told}.", style="bold")
    if report.killed is not None:
        yield Text(f"{killed_summary(report, report.killed)}.", style="bold")
    yield Text(report.on.platform, style="dim")
    for failure in report.failures:
        yield Text(f"FAILED  {failure}", style="bold red")


def _calls_table(report: Report) -> Table:
    table = _table("Storage calls", "calls", "for", "service on", "(its process)", "service off")
    for row in report.call_rows():
        total = not row.cause
        own = f"{row.of_service:,}" if row.of_service else ""
        table.add_row(
            row.kind if total else f"  {row.kind}",
            "all" if total else row.cause,
            f"{row.on:,}",
            own,
            f"{row.off:,}",
            style="bold" if total else None,
            end_section=total,
        )
    return table


def _killed_table(run: RunRecord) -> Table:
    columns = ("look-ups", "p50", "p99", "fallbacks", "list calls")
    table = _table("Service killed half-way", "batch", "the service", *columns)
    for row in rows(run):
        answered = ", ".join(f"{n} {source}" for source, n in row.counts.items() if n)
        took = [milliseconds(percentile(row.took_s, percent)) for percent in (50, 99)]
        table.add_row(
            row.batches,
            row.event,
            answered,
            *took,
            row.causes,
            f"{row.list_calls:,}",
            style="bold" if row.event else None,
        )
    return table


def _numbers_table(report: Report) -> Table:
    table = _table("The rest", "", "", *report.runs)
    columns = [numbers(report, name) for name in report.runs]
    for (name, value), *others in zip(*columns, strict=True):
        table.add_row(name, "", value, *(other for _, other in others))
    return table


def _life_table(life: FileLife) -> Table:
    table = _table(f"The life of {life.path}", "batch", "what happened")
    for number, text in life.events:
        table.add_row(str(number), text)
    table.add_row("", "it is still there" if life.is_there else "it is gone", style="bold")
    return table


def _proofs_table(report: Report) -> Table:
    readers = [proof.reader for proof in next(iter(report.proofs.values()), ())]
    table = _table("Proof against the replay", "table", "rows", *readers, "file groups")
    for of, proofs in report.proofs.items():
        groups = report.groups.get(of)
        results = [_verdict(proof.difference) for proof in proofs]
        results.append(Text() if groups is None else _verdict(groups.difference))
        table.add_row(of, f"{proofs[0].rows:,}", *results)
    return table


def _verdict(difference: str | None) -> Text:
    return Text("equal", "green") if difference is None else Text("differs", "bold red")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    return table

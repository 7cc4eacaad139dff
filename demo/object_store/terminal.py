"""The report on an object store on one screen of the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from demo.object_store.record import TITLES, WAYS, StoreReport
from demo.object_store.summaries import COLUMNS, asked, figures, sentences, title


def show(report: StoreReport, console: Console) -> None:
    """Print the report on the terminal."""
    console.print(Group(*_parts(report)))


def _parts(report: StoreReport) -> Iterator[RenderableType]:
    yield Text(title(report), style="bold")
    yield Text(f"{asked(report)}.")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for way in WAYS:
        table.add_row(TITLES[way], *figures(report, way))
    yield table
    for told in sentences(report):
        yield Text(f"{told}.")
    yield Text(f"{report.platform}; {report.seconds:,.0f} s", style="dim")
    for failure in report.failures:
        yield Text(f"FAILED  {failure}", style="bold red")

"""The report: the same feed with the service on and off, side by side.

``Report`` has both runs, their proofs and, in ``failures``, all that is wrong with them. This
module prints it on the terminal, ``demo.chart`` draws it, ``demo.page`` makes an HTML page; all
three take their numbers from here. ``demo.report_files`` writes the files.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from demo.record import Proof, RunRecord, percentile

KINDS: Final = ("list", "stat", "read")
"""The kinds of storage calls that the report compares: those that don't write."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """Storage calls of one kind and cause in both runs.

    Attributes:
        kind: The kind of call.
        cause: The cause; ``""`` for the total of the kind.
        on: Calls with the service on, including those of its process.
        of_service: The calls of the service's process among ``on``.
        off: Calls with the service off.
    """

    kind: str
    cause: str
    on: int
    of_service: int
    off: int


@dataclass(frozen=True, slots=True)
class Report:
    """Two runs of one feed.

    Attributes:
        days: Number of days of the feed.
        table_version: The tables' version.
        rows: Number of rows at the end of the replay.
        on: The run with the service.
        off: The run without it.
        proofs: State → results of the readers, for both tables after the kill and at the end.
    """

    days: int
    table_version: int
    rows: int
    on: RunRecord
    off: RunRecord
    proofs: Mapping[str, tuple[Proof, ...]]

    @property
    def failures(self) -> list[str]:
        """The checks that failed, a sentence each."""
        failures = [
            f"{of}: {proof.reader} differs: {proof.difference}"
            for of, proofs in self.proofs.items()
            for proof in proofs
            if not proof.holds
        ]
        on, off = self.on.calls_of("list"), self.off.calls_of("list")
        if off <= on:
            failures.append(f"without the service there were {off} list calls, with it {on}")
        failures += [
            f"batch {batch.number}: tasks stopped using the service: {'; '.join(batch.fallbacks)}"
            for batch in self.on.batches
            if batch.fallbacks
        ]
        for run in (self.on, self.off):
            if not run.sum_of_lengths("rolled_back"):
                failures.append(f"service {_word(run)}: the killed write was not rolled back")
        return failures

    def call_rows(self) -> Iterator[CallRow]:
        """Yield, for each kind, a row for each cause, most frequent first, and a total."""
        on, of_service, off = self.on.calls, self.on.service_calls, self.off.calls
        for kind in KINDS:
            keys = sorted(
                {key for key in (*on, *off) if key[0] == kind},
                key=lambda key: (-on[key] - off[key], key),
            )
            for key in keys:
                yield CallRow(*key, on[key], of_service[key], off[key])
            own = sum(n for (of, _), n in of_service.items() if of == kind)
            yield CallRow(kind, "", self.on.calls_of(kind), own, self.off.calls_of(kind))

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        values = {name: getattr(self, name) for name in ("days", "table_version", "rows")}
        proofs = {of: list(map(dataclasses.asdict, found)) for of, found in self.proofs.items()}
        return values | {"on": self.on.as_json(), "off": self.off.as_json(), "proofs": proofs}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Report:
        """Return the report of ``as_json``."""
        runs = {name: RunRecord.from_json(values[name]) for name in ("on", "off")}
        proofs = {of: tuple(Proof(**p) for p in found) for of, found in values["proofs"].items()}
        return cls(**dict(values) | runs | {"proofs": proofs})


def numbers(run: RunRecord) -> list[tuple[str, str]]:
    """Return the names and formatted values of a run's other numbers."""
    looked_up = run.lookups_s
    after_start = [batch.total_s for batch in run.batches[1:]] or [run.batches_s]
    return [
        ("look-ups", f"{len(looked_up):,}"),
        ("look-up, p50", milliseconds(percentile(looked_up, 50))),
        ("look-up, p99", milliseconds(percentile(looked_up, 99))),
        *((f"time per batch: {name}", milliseconds(s)) for name, s in phase_means(run).items()),
        ("time per batch, median", milliseconds(statistics.median(after_start))),
        ("commits", f"{run.sum('commits'):,}"),
        ("rows inserted", f"{run.sum('inserted'):,}"),
        ("rows updated", f"{run.sum('updated'):,}"),
        ("rows deleted", f"{run.sum('deleted'):,}"),
        ("data files written", f"{run.sum('files'):,} ({megabytes(run.sum('bytes_written'))})"),
        ("files the cleaner removed", f"{run.sum('files_cleaned'):,}"),
        ("bytes the cleaner removed", megabytes(run.sum("bytes_cleaned"))),
        ("failed writes rolled back", f"{run.sum_of_lengths('rolled_back'):,}"),
        ("whole run", f"{run.seconds:,.1f} s"),
    ]


def phase_means(run: RunRecord) -> dict[str, float]:
    """Return phase → mean seconds per batch."""
    return {phase: s / max(1, len(run.batches)) for phase, s in run.phase_s.items()}


def milliseconds(seconds: float) -> str:
    """Return a duration in milliseconds, with three significant digits."""
    value = seconds * 1000
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def megabytes(size: float) -> str:
    """Return a size in megabytes (10^6 bytes)."""
    return f"{size / 1e6:,.1f} MB"


def summary(report: Report) -> str:
    """Return the report in one sentence."""
    on, off = report.on.calls_of("list"), report.off.calls_of("list")
    return (
        f"{report.rows:,} flights after {report.days} days in {report.on.sum('commits')} commits: "
        f"{on:,} list calls with the timeline service, {off:,} without"
    )


def show(report: Report, console: Console) -> None:
    """Print the report on the terminal."""
    console.print(Group(*_parts(report)))


def _parts(report: Report) -> Iterator[RenderableType]:
    yield Text()
    yield _calls_table(report)
    yield Text()
    yield _numbers_table(report)
    yield Text()
    yield _proofs_table(report)
    yield Text()
    yield Text(f"{summary(report)}.", style="bold")
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


def _numbers_table(report: Report) -> Table:
    table = _table("The rest", "", "", "service on", "", "service off")
    for (name, on), (_, off) in zip(numbers(report.on), numbers(report.off), strict=True):
        table.add_row(name, "", on, "", off)
    return table


def _proofs_table(report: Report) -> Table:
    readers = [proof.reader for proof in next(iter(report.proofs.values()), ())]
    table = _table("Proof against the replay", "table", "rows", *readers)
    for of, proofs in report.proofs.items():
        results = [
            Text("equal", "green") if proof.holds else Text("differs", "bold red")
            for proof in proofs
        ]
        table.add_row(of, f"{proofs[0].rows:,}", *results)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    return table


def _word(run: RunRecord) -> str:
    return "on" if run.service else "off"

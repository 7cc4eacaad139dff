"""The report: the same feed with the service on and off, side by side.

``Report`` holds both runs and their proofs, and says in ``failures`` what is wrong with them. It is
shown on the terminal here, drawn by ``demo.chart`` and put on one HTML page by ``demo.page``; all
three say the same numbers, which come from the methods of this module. ``demo.report_files`` writes
them, and reads the numbers again.
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
"""The kinds of storage calls that the report compares; the others write."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """Storage calls of one kind and cause in both runs.

    Attributes:
        kind: Of the calls.
        cause: What for; ``""`` for all causes of the kind.
        on: With the service on, its own process included.
        of_service: How many of ``on`` the service's process made.
        off: With the service off.
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
        days: How many days of the feed.
        table_version: Of the tables.
        rows: How many rows the replay ends with.
        on: With the service.
        off: Without.
        proofs: Of what → what the readers saw: both tables at their end, and each after the kill.
    """

    days: int
    table_version: int
    rows: int
    on: RunRecord
    off: RunRecord
    proofs: Mapping[str, tuple[Proof, ...]]

    @property
    def failures(self) -> list[str]:
        """What doesn't hold, in sentences; nothing when the report is good."""
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
            f"batch {batch.number}: tasks gave up the service: {'; '.join(batch.fallbacks)}"
            for batch in self.on.batches
            if batch.fallbacks
        ]
        for run in (self.on, self.off):
            if not run.sum_of_lengths("rolled_back"):
                failures.append(f"service {_word(run)}: the killed write was not rolled back")
        return failures

    def call_rows(self) -> Iterator[CallRow]:
        """Yield the calls to compare: each kind's causes, most frequent first, then its total."""
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
        """Return JSON-able values, for ``from_json``."""
        said = {name: getattr(self, name) for name in ("days", "table_version", "rows")}
        proofs = {of: [dataclasses.asdict(p) for p in seen] for of, seen in self.proofs.items()}
        return said | {"on": self.on.as_json(), "off": self.off.as_json(), "proofs": proofs}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Report:
        """Return what ``as_json`` said."""
        runs = {name: RunRecord.from_json(said[name]) for name in ("on", "off")}
        proofs = {of: tuple(Proof(**p) for p in seen) for of, seen in said["proofs"].items()}
        return cls(**dict(said) | runs | {"proofs": proofs})


def numbers(run: RunRecord) -> list[tuple[str, str]]:
    """Return a run's numbers beside its storage calls: a name and a text each."""
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
    """Return phase → seconds per batch, on average."""
    return {phase: s / max(1, len(run.batches)) for phase, s in run.phase_s.items()}


def milliseconds(seconds: float) -> str:
    """Return a duration in milliseconds, with three digits that count."""
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
        said = [
            Text("equal", "green") if proof.holds else Text("differs", "bold red")
            for proof in proofs
        ]
        table.add_row(of, f"{proofs[0].rows:,}", *said)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    return table


def _word(run: RunRecord) -> str:
    return "on" if run.service else "off"

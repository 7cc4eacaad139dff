"""The report: the same feed with the service on and off, side by side.

``Report`` has both runs, their proofs and, in ``failures``, all that is wrong with them. This
module prints it on the terminal, ``demo.chart`` draws it, ``demo.page`` makes an HTML page; all
three take their numbers from here. ``demo.report_files`` writes the files.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from demo.lookups import account, by_source, rows, unexpected
from demo.record import GroupProof, Proof, RunRecord, megabytes, milliseconds, percentile

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
    """The runs of one feed.

    Attributes:
        days: Number of days of the feed.
        table_version: The tables' version.
        rows: Number of rows at the end of the replay.
        on: The run with the service.
        off: The run without it.
        proofs: State → results of the readers, for the tables after the kill and at the end.
        killed: The run in which the service was killed; ``None`` if it was left out.
        groups: Run → comparison of its file groups with those of ``on``.
        request_ms: Delay of each request to the object store, ms; ``None``: a local disk.
    """

    days: int
    table_version: int
    rows: int
    on: RunRecord
    off: RunRecord
    proofs: Mapping[str, tuple[Proof, ...]]
    killed: RunRecord | None = None
    groups: Mapping[str, GroupProof] = field(default_factory=dict)
    request_ms: float | None = None

    @property
    def failures(self) -> list[str]:
        """The checks that failed, a sentence each."""
        failures = [
            f"{of}: {proof.reader} differs: {proof.difference}"
            for of, proofs in self.proofs.items()
            for proof in proofs
            if not proof.holds
        ]
        # Not all list calls: those of a repair depend on how long it waits for the killed job.
        on, off = (run.calls["list", "lookup"] for run in (self.on, self.off))
        if off <= on:
            failures.append(f"without the service look-ups listed {off} times, with it {on}")
        if self.on.readers is not None and self.on.readers.list_calls:
            lists = self.on.readers.list_calls
            failures.append(f"service on: a reader's tasks made {lists} list calls")
        failures += [
            f"{of}: the file groups differ: {proof.difference}"
            for of, proof in self.groups.items()
            if proof.difference is not None
        ]
        failures += [f"service on: {failure}" for failure in unexpected(self.on)]
        if self.killed is not None:
            failures += [f"service killed: {failure}" for failure in unexpected(self.killed)]
        for run in (self.on, self.off):
            if not run.sum_of_lengths("rolled_back"):
                failures.append(f"service {_word(run)}: the killed write was not rolled back")
        return failures

    @property
    def runs(self) -> dict[str, RunRecord]:
        """The runs by name, such as ``service on``."""
        runs = {"service on": self.on, "service off": self.off}
        return runs if self.killed is None else runs | {"service killed": self.killed}

    @property
    def account(self) -> list[str]:
        """What happened in the run in which the service was killed, a sentence each."""
        groups = self.groups.get("service killed")
        return [] if self.killed is None else account(self.killed, groups)

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
        values |= {"on": self.on.as_json(), "off": self.off.as_json(), "proofs": proofs}
        values["killed"] = None if self.killed is None else self.killed.as_json()
        groups = {of: dataclasses.asdict(proof) for of, proof in self.groups.items()}
        return values | {"groups": groups, "request_ms": self.request_ms}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Report:
        """Return the report of ``as_json``."""
        names = [name for name in ("on", "off", "killed") if values[name] is not None]
        runs = {name: RunRecord.from_json(values[name]) for name in names}
        proofs = {of: tuple(Proof(**p) for p in found) for of, found in values["proofs"].items()}
        groups = {of: GroupProof(**proof) for of, proof in values["groups"].items()}
        return cls(**dict(values) | runs | {"proofs": proofs, "groups": groups})


def numbers(run: RunRecord) -> list[tuple[str, str]]:
    """Return the names and formatted values of a run's other numbers."""
    looked_up = run.lookups_s
    sources = by_source(run)
    by_count = ", ".join(f"{len(took):,} {source}" for source, took in sources.items())
    after_start = [batch.total_s for batch in run.batches[1:]] or [run.batches_s]
    return [
        ("look-ups", by_count),
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
        ("views that fell back", f"{run.sum_of_lengths('fallbacks'):,}"),
        ("list calls", f"{run.calls_of('list'):,}"),
        ("whole run", f"{run.seconds:,.1f} s"),
    ]


def phase_means(run: RunRecord) -> dict[str, float]:
    """Return phase → mean seconds per batch."""
    return {phase: s / max(1, len(run.batches)) for phase, s in run.phase_s.items()}


def summary(report: Report) -> str:
    """Return the report in one sentence."""
    on, off = report.on.calls_of("list"), report.off.calls_of("list")
    return (
        f"{report.rows:,} flights after {report.days} days in {report.on.sum('commits')} commits: "
        f"{on:,} list calls with the timeline service, {off:,} without"
    )


def saved_summary(report: Report) -> str:
    """Return in one sentence how long the batches took with the service and without.

    Look-ups are what the service can shorten; on a busy machine the rest differs from run to run.
    The batch that repaired the killed one's files is left out of both.
    """
    on, off = report.on.calm_s, report.off.calm_s
    where = (
        "a local disk"
        if report.request_ms is None
        else f"an object store with {report.request_ms:g} ms a request"
    )
    looked_up = [
        math.fsum(s for batch in run.calm_batches for s in batch.lookups_s)
        for run in (report.on, report.off)
    ]
    saved = f"saves {off - on:,.1f} s ({(off - on) / off:.0%})" if off > on else "saves no time"
    return (
        f"On {where} the batches took {on:,.1f} s with the service and {off:,.1f} s without, their "
        f"look-ups {looked_up[0]:,.2f} s and {looked_up[1]:,.2f} s: the service {saved}"
    )


def readers_summary(report: Report) -> str:
    """Return in one sentence how long a reader's tasks waited; empty if there was no reader."""
    on, off = report.on.readers, report.off.readers
    if on is None or off is None:
        return ""
    return (
        f"{len(on.waited_s)} tasks that looked up {on.partitions} partitions waited "
        f"{sum(on.waited_s):,.2f} s in all with the service and {sum(off.waited_s):,.2f} s "
        f"without, which made {off.list_calls:,} list calls"
    )


def killed_summary(report: Report, run: RunRecord) -> str:
    """Return the run in which the service was killed in one sentence."""
    local, total = len(by_source(run).get("local", ())), len(run.lookups_s)
    proofs = report.proofs.get("service killed", ())
    groups = report.groups.get("service killed")
    equal = all(proof.holds for proof in proofs) and groups and groups.difference is None
    return (
        f"In a third run the service was killed: {local:,} of {total:,} look-ups were answered by "
        f"listing storage, {run.calls_of('list'):,} list calls in all, and rows and file groups "
        f"{'are the same' if equal else 'differ'}"
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
    for (name, value), *others in zip(*map(numbers, report.runs.values()), strict=True):
        table.add_row(name, "", value, *(other for _, other in others))
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


def _word(run: RunRecord) -> str:
    return "on" if run.service else "off"

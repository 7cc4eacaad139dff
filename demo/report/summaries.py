"""A report in sentences, and the numbers of a run as text, for the terminal, page and picture."""

from __future__ import annotations

import math
import statistics

from demo.record import RunRecord, megabytes, milliseconds, percentile
from demo.report.lookups import by_source
from demo.report.report import Report


def numbers(report: Report, name: str) -> list[tuple[str, str]]:
    """Return the names and formatted values of the other numbers of a run."""
    run, logs = report.runs[name], report.logs.get(name)
    of_logs = (
        []
        if logs is None
        else [
            ("logs written", f"{logs.written:,}"),
            ("compactions", f"{logs.compactions:,}, of {logs.merged:,} logs"),
        ]
    )
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
        *of_logs,
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
    logs = report.logs.get("service on")
    merged = "" if logs is None else f", {logs.merged:,} of {logs.written:,} logs compacted"
    return (
        f"{report.rows:,} flights after {report.days} days in {report.on.sum('commits')} commits"
        f"{merged}: "
        f"{on:,} list calls with the timeline service, {off:,} without"
    )


def saved_summary(report: Report) -> str:
    """Return in one sentence how long the batches took with the service and without.

    Look-ups are what the service can shorten; on a busy machine the rest differs from run to run.
    The batch that repaired the killed one's files is left out of both.
    """
    on, off = report.on.calm_s, report.off.calm_s
    looked_up = [
        math.fsum(s for batch in run.calm_batches for s in batch.lookups_s)
        for run in (report.on, report.off)
    ]
    saved = f"saves {off - on:,.1f} s ({(off - on) / off:.0%})" if off > on else "saves no time"
    return (
        f"On a local disk the batches took {on:,.1f} s with the service and {off:,.1f} s without, "
        f"their look-ups {looked_up[0]:,.2f} s and {looked_up[1]:,.2f} s: the service {saved}"
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

"""The report on an object store in figures and sentences, for the terminal and the page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Final

from demo.object_store.lake import OFF, ON
from demo.object_store.record import OWN, TITLES, Measured, Spread, StoreReport
from demo.record import BatchRecord

COLUMNS: Final = ("requests", "seconds waited", "wall, s")
_FIGURES: Final[tuple[tuple[Callable[[Measured], float], Callable[[float], str]], ...]] = (
    (lambda each: each.requests.answered, "{:,.0f}".format),
    (lambda each: each.job.waited_s, lambda value: _seconds(value)),
    (lambda each: each.job.wall_s, lambda value: _seconds(value)),
)
NOT_COMPARED: Final = "not compared"


def title(report: StoreReport) -> str:
    """Return what was asked."""
    return f"Which files make up {report.partitions} partitions?"


def asked(report: StoreReport) -> str:
    """Return who asked, and where."""
    days = len(report.days)
    when = "the day's" if days == 1 else f"each of {days} days'"
    return (
        f"Asked by each of {len(report.loading.job.tasks)} fresh Python workers of a Spark job, on "
        f"an S3 server at {report.delay_ms:g} ms a request, after {when} commits; median "
        "(least-most) over the days"
    )


def figures(report: StoreReport, way: str) -> list[str]:
    """Return the figures of a way in the order of ``COLUMNS``: median, least and most."""
    found = [_spread(report.spread(way, figure), text) for figure, text in _FIGURES]
    return _compared(report, found)


def day_figures(report: StoreReport, each: Measured) -> list[str]:
    """Return the figures of one job in the order of ``COLUMNS``."""
    return _compared(report, [text(figure(each)) for figure, text in _FIGURES])


def rate(report: StoreReport) -> str:
    """Return how busy the S3 server was, and what is therefore compared."""
    busiest = report.busiest
    told = (
        f"the S3 server had at most {busiest.rate:,.1f} requests a second over a job "
        f"({TITLES[busiest.job.way]}), and can answer about {report.capacity:,.0f}; there, a "
        f"request took {busiest.requests.took_s * 1000:,.0f} ms at the median"
    )
    if report.compares_times:
        return told[0].upper() + told[1:]
    return f"Only requests are compared, as times would tell of the server's limits: {told}"


def measured(report: StoreReport) -> str:
    """Return how the figures came about."""
    driver_s = [math.fsum(t.driver_s for t in each.job.tasks) for each in report.of(OWN)]
    return (
        "Requests are counted in the S3 server's own log. Waited is the sum over the tasks, from "
        f"opening a view until the answer. For their own views tasks load the S3 driver before, "
        f"{_spread(Spread.of(driver_s), _seconds)} s in all, which counts for the wall alone. "
        "Workers are fresh by spark.python.worker.reuse=false"
    )


def own_views(report: StoreReport) -> str:
    """Return from what the tasks built their own views."""
    tasks = [task for each in report.of(OWN) for task in each.job.tasks]
    lists = statistics.median(task.lists for task in tasks)
    others = statistics.median(task.calls - task.lists for task in tasks)
    return (
        "A view of a task's own is built from the table's commits, or by listing each partition if "
        f"that takes fewer requests; here by {lists:g} lists and {others:g} other calls a task"
    )


def loading(report: StoreReport) -> str:
    """Return what the kept service needed to load the table."""
    requests = report.loading.requests.answered
    return f"Before, the kept service loaded the table once: {requests:,} requests"


def feed(report: StoreReport) -> str:
    """Return how long the days' writes took with the service and without."""
    on, off = (_writes(report.feed[table]) for table in (ON, OFF))
    return (
        f"The writes of these days, as they are: {on} with the embedded service, {off} without. "
        "Only their look-ups, of the two or three partitions of a day, can differ by it; the rest "
        "is noise, and the first write warms Spark up"
    )


def _writes(batches: Sequence[BatchRecord]) -> str:
    took_s = [batch.total_s for batch in batches]
    each = ", ".join(f"{s:.1f}" for s in took_s)
    looked_up_s = math.fsum(s for batch in batches for s in batch.lookups_s)
    return f"{math.fsum(took_s):.1f} s ({each}), look-ups {_seconds(looked_up_s)} s,"


def kill(report: StoreReport) -> str:
    """Return what happened when the service was killed."""
    job, tasks = report.after_kill.job, len(report.after_kill.job.tasks)
    fell_back = sum(bool(task.fallbacks) for task in job.tasks)
    waited = f", {_seconds(job.waited_s)} s waited" if report.compares_times else ""
    return (
        f"The kept service was killed (SIGKILL, process {report.killed[0]}) and replaced on its "
        f"port (process {report.killed[1]}): {tasks - fell_back} of {tasks} tasks were answered "
        f"by it, {fell_back} by views of their own; "
        f"{report.after_kill.requests.answered:,} requests{waited}"
    )


def proof(report: StoreReport) -> str:
    """Return what the readers and the comparison of file groups found."""
    proofs = [each for of in report.proofs.values() for each in of]
    same = "are the same" if report.groups.difference is None else "differ"
    return (
        f"{sum(each.holds for each in proofs)} of {len(proofs)} readings (3 readers, 2 tables) "
        f"equal a plain replay of the feed, {report.rows:,} rows; the {report.groups.groups:,} "
        f"file groups of both tables {same}"
    )


def clean(report: StoreReport) -> str:
    """Return why a data file is gone, or there; empty if none was committed."""
    if report.life is None:
        return ""
    return f"Why {report.life.path.rpartition('/')[2]} is as it is: {report.life.events[-1][1]}"


def sentences(report: StoreReport) -> list[str]:
    """Return what the first screen says beneath its table, without full stops."""
    told = (rate, measured, own_views, loading, kill, feed, proof, clean)
    return [text for each in told if (text := each(report))]


def _compared(report: StoreReport, found: list[str]) -> list[str]:
    """Return figures without times if these aren't compared."""
    requests, *times = found
    return [requests, *(times if report.compares_times else [NOT_COMPARED] * len(times))]


def _spread(spread: Spread, text: Callable[[float], str]) -> str:
    if spread.least == spread.most:
        return text(spread.median)
    return f"{text(spread.median)} ({text(spread.least)}-{text(spread.most)})"


def _seconds(value: float) -> str:
    """Return seconds without a unit, in three digits or so."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"

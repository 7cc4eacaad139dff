"""A report on an object store, made by hand: three ways on three days."""

from __future__ import annotations

from dataclasses import replace

from demo.object_store.record import FORGETS, KEPT, OWN, Job, Passed, StoreReport, counted
from demo.object_store.task import TaskAnswer
from demo.record import BatchRecord, FileLife, GroupProof, Proof

REQUESTS = {OWN: 32, FORGETS: 6, KEPT: 2}
"""Requests of a job on the first day; each day adds one to those of ``OWN``."""


def job(way, day, begin_s, wait_s=0.25, *, fallbacks=(), calls=None):
    """Return a job of 16 tasks."""
    calls = (2 if way == OWN else 0) if calls is None else calls
    tasks = tuple(
        TaskAnswer(
            1000 * day + n,
            0.5 * (way == OWN),
            wait_s,
            calls,
            3,
            f"{day}-{n}",
            fallbacks,
            calls // 2,
        )
        for n in range(16)
    )
    return Job(way, day, begin_s, begin_s + 10, tasks)


def measure(found, requests, *, passed=None, tag=None):
    """Return a job with so many requests in the server's log, spread over its first 5 s."""
    at = [found.begin_s + 5 * number / requests for number in range(requests)]
    passed = at if passed is None else at[:passed]
    return counted(found, at, [Passed(tag or found.way, each - 0.03, each) for each in passed])


def report(capacity=100.0):
    """Return the report."""
    jobs = []
    for day in (301, 302, 303):
        for way in (OWN, FORGETS, KEPT):
            begin_s = 20.0 * len(jobs)
            more = day - 301 if way == OWN else 0
            jobs.append(measure(job(way, day, begin_s), REQUESTS[way] + more))
    feed = {
        table: tuple(
            BatchRecord(day, "2013-10-28", total_s=4.0, lookups={"service": (0.25,)}, commits=2)
            for day in (301, 302, 303)
        )
        for table in ("service-on", "service-off")
    }
    proofs = {
        table: tuple(Proof(reader, 12345, None, 0.5) for reader in ("view", "DuckDB", "hudi-rs"))
        for table in feed
    }
    return StoreReport(
        partitions=300,
        delay_ms=30,
        capacity=capacity,
        table_version=9,
        table_type="copy-on-write",
        rows=12345,
        loading=measure(job(KEPT, 300, -20.0), 25),
        jobs=tuple(jobs),
        after_kill=replace(measure(job(KEPT, 303, 500.0), 25), is_disturbed=True),
        killed=(11, 12),
        feed=feed,
        proofs=proofs,
        groups=GroupProof(303, 310, None),
        life=FileLife("dt=2013-10-28/a.parquet", ((301, "wrote it"), (303, "a clean")), False),
        logs=None,
        platform="a test",
        seconds=200.0,
    )

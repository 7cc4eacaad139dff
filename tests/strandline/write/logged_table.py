"""A merge-on-read table that compactions are tried on, and what they leave."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from strandline import Table
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.instant import COMPACTION, State
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

LOGS = {"datasource__write__table__type": "MERGE_ON_READ"}
BUCKETS = {**LOGS, "index__type": "BUCKET", "bucket__index__num__buckets": 1}
VERSION_6 = {"write__table__version": 6}


def write_logs(base: Path, version: dict) -> Path:
    """Make a table with three rows in two groups, each with logs; return its base path.

    Args:
        base: Where.
        version: Options that choose the table's version.
    """
    with client(base, **LOGS, **version) as c:
        c.upsert(table(row("a"), row("b"), row("c", "us")))
        c.upsert(table(row("a", ts=2), row("c", "us", ts=3)))
        c.delete(table(row("b")))
    return base


def rows(base) -> list[dict]:
    """Return the rows as the naive reader and ours give them, which is the same."""
    found = reader.rows(base)
    ours = Table(base).to_arrow().drop_columns(list(reader.META)).to_pylist()
    assert sorted(ours, key=lambda each: (each["id"], each["region"])) == found
    return found


def optimized(base) -> list[dict]:
    """Return the rows of the newest base files alone."""
    found = Table(base).scan(read_optimized=True).to_arrow()
    return sorted(found.drop_columns(list(reader.META)).to_pylist(), key=lambda r: r["id"])


def compactions(base) -> list[State]:
    """Return the states of compactions, oldest first."""
    meta = TableMetaClient.open(LocalStorage(str(base)))
    times = {i.requested_time for i in meta.instant_files() if i.action == COMPACTION}
    return [i.state for i in meta.active_timeline() if i.requested_time in times]


def dead_write(base, *, keep_markers: bool = True) -> str:
    """Write, and die before the instant completes; return its time."""
    trial = base.with_name("trial")
    shutil.copytree(base, trial)
    learned = FaultyStorage(LocalStorage(str(trial)))
    with client(trial, learned, **LOGS) as c:
        c.upsert(table(row("a", ts=9), row("new")))
    shutil.rmtree(trial)
    log = enumerate(learned.log, 1)
    at = next(n for n, (kind, path) in log if kind == "create" and path.endswith(".deltacommit"))
    doomed = FaultyStorage(LocalStorage(str(base)), [Fault(at, Effect.CRASH_BEFORE)])
    with pytest.raises(Crash), client(base, doomed, **LOGS) as c:
        c.upsert(table(row("a", ts=9), row("new")))
    if not keep_markers:
        shutil.rmtree(base / ".hoodie" / ".temp")
    (name,) = reader.pending(base) - {each for each in reader.pending(base) if "inflight" in each}
    return name[:17]

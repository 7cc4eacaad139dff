"""Sinks of streams without Spark, and what their batches have left in a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline import Table
from strandline.commit.lock.base import Wait
from strandline.records.commit_history import STREAM_BATCH
from strandline.write.engine.local import LocalEngine
from strandline.write.stream_sink import StreamSink
from tests.strandline.write.tables import OPTIONS, row, table
from timeline.clock import Clock
from timeline.storage.base import Storage

STREAMING = "datasource__write__streaming__"
LOGS = {"datasource__write__table__type": "MERGE_ON_READ", "parquet__small__file__limit": "0"}
EVERY_2 = {**LOGS, "compact__inline__max__delta__commits": "2"}
NO_COMPACTION = {STREAMING + "disable__compaction": "true"}
LOCKED = {
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
}
LAZY = {"clean__failed__writes__policy": "LAZY"}
INSERT = {"datasource__write__operation": "insert"}


def sink(
    base: Path,
    storage: Storage | None = None,
    clock: Clock | None = None,
    wait: Wait = lambda _: None,
    **options: object,
) -> StreamSink:
    """A sink that doesn't sleep; options as of ``tables.client``."""
    given = {f"hoodie.{name.replace('__', '.')}": value for name, value in options.items()}
    return StreamSink(
        LocalEngine(2, cores=1),
        base,
        {**OPTIONS, **given},
        storage=storage,
        clock=clock,
        wait=wait,
    )


@contextmanager
def opened(base: Path, *args: Any, **options: object) -> Iterator[StreamSink]:
    made = sink(base, *args, **options)
    try:
        yield made
    finally:
        made.close()


def rows(number: int) -> pa.Table:
    return table(row("a", ts=number), row(f"b{number}", ts=number))


def batches(base: Path) -> list[int]:
    """Return the batches that commits record, in their order."""
    found = (json.loads(each.extra_metadata.get(STREAM_BATCH, "{}")) for each in commits(base))
    return [int(number) for each in found for number in each.values()]


def commits(base: Path) -> list[Any]:
    found = Table(base)
    return [found.commit_metadata(each.requested_time) for each in found.commits()]

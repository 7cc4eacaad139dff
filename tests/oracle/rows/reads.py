"""The same reads by both readers: the newest rows, those as of a time, those of a range."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline import Table
from strandline.read.scan import Scan
from tests.oracle.hudi import Hudi
from tests.oracle.view.random_walk import JAVA_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = ("_hoodie_commit_time", "_hoodie_record_key", "id", "p", "ts", "v")
EARLIEST: Final = "000"
_WRITES: Final = ("commit", "deltacommit", "replacecommit")
_SHOWN: Final = 5

Rows = Sequence[tuple[Any, ...]]


class Reads:
    """Reads a table with both readers.

    Attributes:
        answered: Kind of read → how often Hudi answered it.
        asked: Kind of read → how often it was asked.
    """

    def __init__(self, hudi: Hudi, path: Path, version: int, rng: random.Random) -> None:
        self._hudi, self._path, self._rng = hudi, path, rng
        self._order = "completion_time" if version >= 8 else "requested_time"
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def newest(self) -> Iterator[str]:
        """Yield what differs in the newest rows, and in those of base files, in words."""
        table = Table(self._path)
        base = self._frame({"hoodie.datasource.query.type": "read_optimized"})
        both = self._frame({}).unionByName(base)
        found = _sorted(map(tuple, both.collect()))
        # Together in one query, which takes half the time, and apart only if they differ.
        ours = [*_rows(table.scan()), *_rows(table.scan(read_optimized=True))]
        if found == _sorted(ours):
            return
        yield from _differing("snapshot", _rows(table.scan()), self._frame({}))
        yield from _differing("read optimized", _rows(table.scan(read_optimized=True)), base)

    def earlier(self) -> Iterator[str]:
        """Yield what differs as of one instant that can be read."""
        table = Table(self._path)
        earliest = table.earliest_instant() or ""
        times = [time for time, _ in self._writes(table) if time >= earliest]
        if times:
            time = self._rng.choice(times)
            frame = self._asked("as_of", {"as.of.instant": time})
            if frame is not None:
                yield from _differing(f"as of {time}", _rows(table.scan(as_of=time)), frame)

    def range(self) -> Iterator[str]:
        """Yield what differs in the rows of a range of commits."""
        table, rng = Table(self._path), self._rng
        earliest = table.earliest_instant() or ""
        writes = sorted(self._writes(table), key=itemgetter(1))
        if not writes:
            return
        kept = [place for time, place in writes if time >= earliest]
        until = rng.choice([None, *kept])
        # From version 8 on an archived commit may have completed after those that are active.
        archived = max((place for _, place in self._writes(table, archived=True)), default="")
        last = writes[-1][1] if until is None else until
        begins = [place for _, place in writes if archived <= place <= last]
        if not begins:
            return
        # Of archived commits Hudi's has no rows, or the newest ones whatever the end.
        is_whole = rng.random() < 0.1 and not archived
        since = EARLIEST if is_whole else rng.choice(begins)
        options = {
            "hoodie.datasource.query.type": "incremental",
            # Else it gives the newest rows if a file was cleaned, whatever the end.
            "hoodie.datasource.read.incr.fallback.fulltablescan.enable": "false",
            "hoodie.datasource.read.begin.instanttime": since,
        }
        if until is not None:
            options["hoodie.datasource.read.end.instanttime"] = until
        theirs = self._asked("range", options)
        if theirs is not None:
            state = set(_rows(table.incremental(EARLIEST, until)))
            # Hudi's reader merges the logs of the range alone, and so gives rows that lose by event
            # time against those that are older.
            theirs = [row for row in theirs if row in state]
            found = _rows(table.incremental(since, until))
            yield from _differing(f"({since}, {until}]", found, theirs)

    def _writes(self, table: Table, *, archived: bool = False) -> list[tuple[str, str]]:
        """Return active, or archived, writes: requested time, and the time they are ordered by."""
        return [
            (entry["requested_time"], entry[self._order])
            for entry in table.history().to_pylist()
            if entry["action"] in _WRITES
            and entry["state"] == "COMPLETED"
            and entry["archived"] == archived
        ]

    def _frame(self, options: dict[str, str]) -> DataFrame:
        reader = self._hudi.spark.read.format("hudi").option("hoodie.metadata.enable", "false")
        found = reader.options(**options).load(str(self._path))
        if not found.columns:  # without a commit
            found = self._hudi.spark.createDataFrame([], ", ".join(f"{n} string" for n in COLUMNS))
        return found.select(*COLUMNS)

    def _asked(self, kind: str, options: dict[str, str]) -> Rows | None:
        """Return Hudi's rows; ``None`` if it refuses."""
        self.asked[kind] += 1
        try:
            found = _collected(lambda: self._frame(options))
        except JAVA_ERRORS:
            # It looks at the last clean alone, refuses times after pending writes, and reads the
            # files of each commit of a range, cleaned or not; how often is checked (``ANSWERED``).
            return None
        self.answered[kind] += 1
        return found


def _collected(frame: Callable[[], DataFrame]) -> Rows:
    return _sorted(map(tuple, frame().collect()))


def _rows(scan: Scan) -> Rows:
    if scan.instant is None:  # without a commit there is no schema
        return []
    table = scan.to_arrow().select(COLUMNS)
    return _sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _sorted(rows: Any) -> Rows:
    return sorted(rows, key=repr)


def _differing(what: str, ours: Rows, theirs: Rows | DataFrame) -> Iterator[str]:
    expected = theirs if isinstance(theirs, list) else _collected(lambda: theirs)
    for who, rows in (
        ("only ours has", Counter(ours) - Counter(expected)),
        ("only Hudi's has", Counter(expected) - Counter(ours)),
    ):
        if rows:
            shown = sorted(rows.elements(), key=repr)[:_SHOWN]
            yield f"{what}: {who} {rows.total()} rows: {shown}"

"""Small batches are written by the driver; the executors take over where it can't or mustn't."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.write.driver_engine import DriverEngine
from strandline.write.small_batch import DriverLimits
from tests.conformance.engine_suite import Counting, EngineSuite
from tests.kit import reader
from tests.kit.far_engine import FarEngine
from tests.strandline.write.tables import client, row, table
from timeline.errors import InputError, PathNotFoundError, StorageUnavailableError
from timeline.storage.local import LocalStorage

FIRST = table(row("a"), row("b", "us"))
NEXT = table(row("a", ts=2), row("b", "us", ts=2), row("c", "asia"))
KEYS = ["KeyTask", "KeyProfileTask"]


class TestInTheDriver(EngineSuite):
    @pytest.fixture
    def engine(self):
        return DriverEngine(FarEngine(), DriverLimits())


class TestOnTheExecutors(EngineSuite):
    @pytest.fixture
    def engine(self):
        engine = DriverEngine(FarEngine(), DriverLimits())
        engine.limit_rewrite(1)
        assert not engine.in_process
        return engine


@pytest.fixture
def base(tmp_path: Path) -> Path:
    with client(tmp_path / "t") as c:
        c.upsert(FIRST)
    return tmp_path / "t"


def names(base: Path) -> list[str]:
    return sorted(each["name"] for each in reader.rows(base))


def test_a_small_batch_needs_the_executors_for_its_keys_only(base: Path) -> None:
    engine = FarEngine()
    with client(base, engine=engine) as c:
        result = c.upsert(NEXT)
    assert engine.steps == KEYS
    assert result.written_by == "driver"
    assert (result.rows_inserted, result.rows_updated, result.files) == (1, 2, 3)
    assert names(base) == ["a@2", "b@2", "c@1"]
    assert reader.leftovers(base) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("strandline.write.driver.max.rows", 2),
        ("strandline.write.driver.max.rows", 0),
        ("strandline.write.driver.max.bytes", 10),
    ],
)
def test_a_larger_batch_is_written_by_the_executors(base: Path, setting, value) -> None:
    engine = FarEngine()
    with client(base, engine=engine, **{setting: value}) as c:
        result = c.upsert(NEXT)
    assert engine.steps[:2] == KEYS
    assert engine.steps[-1] == "WriteTask"
    assert result.written_by == "executors"
    assert names(base) == ["a@2", "b@2", "c@1"]


def test_both_ways_count_the_same_calls(base: Path, tmp_path: Path) -> None:
    calls = {}
    for rows in (50_000, 0):
        with client(tmp_path / str(rows), engine=FarEngine(1)) as c:
            c.upsert(FIRST)
        options = {"strandline.write.driver.max.rows": rows}
        with client(tmp_path / str(rows), engine=FarEngine(1), **options) as c:
            result = c.upsert(NEXT)
        calls[result.written_by] = Counter(result.storage_calls)
        assert len(result.lookups) == 3
        assert {each.source for each in result.lookups} == {"local"}
    # Each task that writes looks for its instant; the driver has a task for each core.
    for counted in calls.values():
        del counted["list", "write"]
    assert calls["driver"] == calls["executors"]


def test_more_bytes_to_rewrite_than_allowed_are_rewritten_by_the_executors(base: Path) -> None:
    sizes = [path.stat().st_size for path in base.rglob("*.parquet")]
    for limit, rest in ((sum(sizes), []), (sum(sizes) - 1, ["AssignTask", "WriteTask"])):
        engine = FarEngine()
        with client(
            base, engine=engine, **{"strandline.write.driver.max.rewrite.bytes": limit}
        ) as c:
            result = c.upsert(NEXT)
        assert engine.steps == [*KEYS, *rest]
        assert result.written_by == ("executors" if rest else "driver")
        sizes = [path.stat().st_size for path in reader_files(base)]
    assert names(base) == ["a@2", "b@2", "c@1"]


def reader_files(base: Path) -> list[Path]:
    """Return the newest base files that ``NEXT`` rewrites."""
    newest: dict[str, Path] = {}
    for path in sorted(base.rglob("*.parquet"), key=lambda each: each.stat().st_mtime_ns):
        newest[path.name.partition("_")[0]] = path
    return list(newest.values())


class FarData(LocalStorage):
    """A table whose data files only executors reach; they get an unpickled copy.

    Args:
        base: The table's path.
        kind: ``read`` or ``write``: which access fails here.
        error: The error.
        times: How often.
    """

    def __init__(self, base: Path, kind: str, error=StorageUnavailableError, times: int = -1):
        super().__init__(str(base))
        self.refusal = [kind, error, times]

    def __reduce__(self):
        return LocalStorage, (self.base_path,)

    def _refuse(self, kind: str, path: str) -> None:
        wanted, error, times = self.refusal
        if kind == wanted and path.endswith(".parquet") and times:
            self.refusal[2] -= 1
            raise error(f"not from here: {path}")

    def open_input(self, path, *about):
        self._refuse("read", path)
        return super().open_input(path, *about)

    def create_stream(self, path):
        self._refuse("write", path)
        return super().create_stream(path)


TAGGED = ["SearchTask", "TagTask", "TagProfileTask", "AssignTask", "WriteTask"]


@pytest.mark.parametrize("error", [StorageUnavailableError, PathNotFoundError])
@pytest.mark.parametrize(("kind", "rest"), [("read", TAGGED), ("write", ["WriteTask"])])
def test_executors_take_over_where_the_driver_reaches_no_data_file(
    base: Path, caplog, error, kind, rest
) -> None:
    engine = FarEngine()
    with client(base, FarData(base, kind, error), engine) as c:
        result = c.upsert(NEXT)
    assert engine.steps == [*KEYS, *rest]
    assert result.written_by == "executors"
    assert names(base) == ["a@2", "b@2", "c@1"]
    assert reader.leftovers(base) == []
    files = Counter(instant for *_, instant in reader.base_files(base))
    assert files[result.instant] == result.files == 3
    assert "the driver can't reach a file" in caplog.text
    assert result.storage_calls["create", "write"] >= 3


def test_a_single_failure_is_repeated_in_the_driver(base: Path) -> None:
    engine = FarEngine()
    with client(base, FarData(base, "write", times=1), engine) as c:
        result = c.upsert(NEXT)
    assert engine.steps == KEYS
    assert result.written_by == "driver"
    assert names(base) == ["a@2", "b@2", "c@1"]
    assert reader.leftovers(base) == []


def test_other_errors_of_the_driver_are_the_writes(base: Path) -> None:
    engine = FarEngine()
    with client(base, FarData(base, "read", InputError), engine) as c, pytest.raises(InputError):
        c.upsert(NEXT)
    assert engine.steps == KEYS
    assert names(base) == ["a@1", "b@1"]


def test_what_a_failed_step_counted_is_dropped() -> None:
    engine = DriverEngine(FarEngine(), DriverLimits())
    tally = engine.tally()
    rows = engine.adopt(pa.table({"n": range(4)}))
    engine.transform(rows, Counting(tally), pa.schema([("n", pa.int64())]))
    assert sum(tally.total.values()) == 4
    tally.add({("row", "seen"): 9})
    engine.transform(rows, fails_here, pa.schema([("n", pa.int64())]))
    assert sum(tally.total.values()) == 4


HERE = os.getpid()


def fails_here(batches):
    """A task that fails once, as if in the driver."""
    if not FAILED:
        FAILED.append(1)
        raise PathNotFoundError("no such file")
    yield from batches


FAILED: list[int] = []


def test_empty_frames_and_deletes(base: Path) -> None:
    engine = FarEngine()
    with client(base, engine=engine) as c:
        nothing = c.upsert(table())
        deleted = c.delete(pa.table({"id": ["a", "x"], "region": ["eu", "eu"]}))
    assert (nothing.written_by, nothing.files) == ("driver", 0)
    assert (deleted.written_by, deleted.rows_deleted) == ("driver", 1)
    assert names(base) == ["b@1"]
    assert engine.steps == KEYS * 2

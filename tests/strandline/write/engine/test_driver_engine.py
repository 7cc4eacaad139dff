"""Small batches are written by the driver; the executors take over where it can't or mustn't."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.write.engine.driver import DriverEngine
from strandline.write.engine.driver_limits import DriverLimits
from tests.conformance.engine_suite import Counting, EngineSuite
from tests.kit.engines.far_engine import FarEngine
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, stored, table
from timeline.errors import InputError, PathNotFoundError, StorageUnavailableError
from timeline.storage.local import LocalStorage

FIRST = table(row("a"), row("b", "us"))
NEXT = table(row("a", ts=2), row("b", "us", ts=2), row("c", "asia"))
KEYS = ["KeyTask", "KeyProfileTask"]
WRITTEN = ["AssignTask", "PartitionOrderTask", "WriteTask"]


class TestInTheDriver(EngineSuite):
    @pytest.fixture
    def engine(self):
        return DriverEngine(FarEngine(), DriverLimits())


@pytest.mark.property
class TestOnTheExecutors(EngineSuite):
    @pytest.fixture
    def engine(self):
        engine = DriverEngine(FarEngine(), DriverLimits())
        engine.limit_rewrite(1)
        assert not engine.in_process
        return engine


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return stored(tmp_path / "t", FIRST)


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
        assert len(result.lookups) == 1  # of all partitions
        assert {each.source for each in result.lookups} == {"local"}
    # Executors' tasks may outlive their stage: each that writes looks for its instant, and the
    # markers are listed before the commit and after it.
    executors = calls["executors"]
    assert executors.pop(("list", "write")) > 0
    assert executors.pop(("list", "marker")) > calls["driver"]["list", "marker"] == 0
    assert calls["driver"] == executors


def test_more_bytes_to_rewrite_than_allowed_are_rewritten_by_the_executors(base: Path) -> None:
    sizes = [path.stat().st_size for path in base.rglob("*.parquet")]
    for limit, rest in ((sum(sizes), []), (sum(sizes) - 1, WRITTEN)):
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


def taken(left: list[object]) -> bool:
    """Take one from a list that several tasks take from; return whether one was left."""
    try:
        left.pop()
    except IndexError:
        return False
    return True


class FarData(LocalStorage):
    """A table whose data files only executors reach; they get an unpickled copy.

    Args:
        base: The table's path.
        kind: ``read`` or ``write``: which access fails here.
        error: The error.
        times: How often; ``None``: always.
        below: Folder of the files; empty: all files. One task has all files of a partition.
    """

    def __init__(
        self, base: Path, kind: str, error=StorageUnavailableError, times=None, below: str = ""
    ):
        super().__init__(str(base))
        self.refused = (kind, below)
        self.error = error
        self.always = times is None
        self.left: list[object] = [None] * (times or 0)  # shared by the storages of all causes

    def __reduce__(self):
        return LocalStorage, (self.base_path,)

    def _refuse(self, kind: str, path: str) -> None:
        wanted, below = self.refused
        is_refused = kind == wanted and path.startswith(below) and path.endswith(".parquet")
        if is_refused and (self.always or taken(self.left)):
            raise self.error(f"not from here: {path}")

    def open_input(self, path, *about):
        self._refuse("read", path)
        return super().open_input(path, *about)

    def create_stream(self, path):
        self._refuse("write", path)
        return super().create_stream(path)


TAGGED = ["FindTask", "TagTask", "TagProfileTask", *WRITTEN]


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


LOOKS = ("list", "rollback")


@pytest.mark.property
@pytest.mark.parametrize("at", ["marker", "file"])
def test_what_a_failed_attempt_has_left_is_swept_by_its_own_commit(base: Path, at: str) -> None:
    storage = OnceLate(base, at)
    with client(base, storage, FarEngine()) as c:
        c.upsert(NEXT)
        storage.faults.append(at)
        result = c.upsert(NEXT)
        assert not storage.faults
        assert result.written_by == "driver"
        assert result.storage_calls["list", "marker"] > 0
        assert reader.leftovers(base) == []
        files = Counter(instant for *_, instant in reader.base_files(base))
        assert files[result.instant] == result.files
        # It is known what was left, so the next write starts from there.
        result = c.upsert(NEXT)
        assert LOOKS not in result.storage_calls
        assert ("list", "marker") not in result.storage_calls


@pytest.mark.property
def test_a_write_that_was_moved_to_the_executors_is_followed_by_a_look(base: Path) -> None:
    storage = FarData(base, "write", times=0, below="eu/")
    with client(base, storage, FarEngine()) as c:
        c.upsert(NEXT)
        storage.left += [None, None]  # the first attempt and the second of the task of `eu`
        moved = c.upsert(NEXT)
        assert moved.written_by == "executors"
        assert moved.storage_calls["list", "write"] > 0
        assert LOOKS in c.upsert(NEXT).storage_calls
        assert LOOKS not in c.upsert(NEXT).storage_calls
    assert reader.leftovers(base) == []


class OnceLate(LocalStorage):
    """A table on which one call fails after its effect.

    Args:
        base: The table's path.
        at: ``marker`` or ``file``: what is created by the call.
    """

    def __init__(self, base: Path, at: str) -> None:
        super().__init__(str(base))
        self.at = at
        self.faults: list[object] = []  # shared by the storages of all causes

    def _fail(self, at: str, path: str) -> None:
        if self.at == at and taken(self.faults):
            raise StorageUnavailableError(f"no answer: {path}")

    def create(self, path, data=b""):
        super().create(path, data)
        if ".marker." in path:
            self._fail("marker", path)

    @contextmanager
    def create_stream(self, path):
        with super().create_stream(path) as stream:
            yield stream
        self._fail("file", path)


def test_files_of_a_remote_storage_are_created_at_the_same_time(base: Path) -> None:
    """Three files, on however few cores; each waits until the others are open, too."""
    storage = Together(base, files=3)
    with client(base, storage, FarEngine()) as c:
        result = c.upsert(NEXT)
    assert (result.written_by, result.files) == ("driver", 3)
    assert names(base) == ["a@2", "b@2", "c@1"]
    assert reader.leftovers(base) == []


class Together(LocalStorage):
    """A storage, as if of another machine, on which a number of files must be open at once."""

    is_remote = True

    def __init__(self, base: Path, files: int) -> None:
        super().__init__(str(base))
        self.all_open = threading.Barrier(files)

    def __reduce__(self):
        return LocalStorage, (self.base_path,)

    @contextmanager
    def create_stream(self, path):
        with super().create_stream(path) as stream:
            self.all_open.wait(60)
            yield stream


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

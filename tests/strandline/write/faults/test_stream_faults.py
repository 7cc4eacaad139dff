"""Batches of a stream that fail, die or are in doubt: each is in the table once."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from strandline.commit.others_heartbeats import heartbeat_path
from strandline.write.engine.local import LocalEngine
from strandline.write.stream_sink import BatchProgress, StreamSink
from tests.kit.concurrency.manual_clock import LaterClock, ManualClock
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, calls_in_turns
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.streamed import (
    INSERT,
    LAZY,
    LOCKED,
    NO_COMPACTION,
    STREAMING,
    batches,
    opened,
    rows,
    sink,
)
from tests.strandline.write.tables import OPTIONS, row, table
from timeline.clock import Clock, SystemClock
from timeline.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    StorageUnavailableError,
    StrandlineError,
    TableNotFoundError,
    WriteConflictError,
)
from timeline.storage.base import FileKind, Storage
from timeline.storage.local import LocalStorage


def failing_creates(base: Path, times: int, ending: str) -> HookedStorage:
    """A storage whose first creates of files with an ending fail."""
    left = [times]

    def before(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(ending) and left[0]:
            left[0] -= 1
            raise StorageUnavailableError("injected")

    return HookedStorage(base, before)


def test_a_batch_that_fails_is_tried_again(tmp_path: Path) -> None:
    base, waits = tmp_path / "t", list[float]()
    made = StreamSink(
        LocalEngine(1),
        base,
        {**OPTIONS, "hoodie.datasource.write.streaming.retry.interval.ms": "250"},
        storage=failing_creates(base, 2, ".commit.requested"),
        wait=waits.append,
    )
    assert made.write(rows(0), 0, "q").attempts == 3
    made.close()
    assert waits == [0.25, 0.5]
    assert batches(base) == [0]


def test_the_last_attempt_s_error_is_raised(tmp_path: Path) -> None:
    base = tmp_path / "t"
    storage = failing_creates(base, 2, ".commit.requested")
    with opened(base, storage, **{STREAMING + "retry__count": "2"}) as made:
        with pytest.raises(StorageUnavailableError):
            made.write(rows(0), 0, "q")
        assert made.write(rows(0), 0, "q").attempts == 1


def test_a_stopped_stream_does_not_try_again(tmp_path: Path) -> None:
    def stop(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".commit.requested"):
            made.stop()
            raise StorageUnavailableError("injected")

    made = StreamSink(
        LocalEngine(1), tmp_path / "t", OPTIONS, storage=HookedStorage(tmp_path / "t", stop)
    )
    with pytest.raises(StorageUnavailableError):
        made.write(rows(0), 0, "q")
    made.close()


def test_stopping_a_stream_ends_its_pause(tmp_path: Path) -> None:
    base = tmp_path / "t"
    storage = failing_creates(base, 1, ".commit.requested")
    made = sink(base, storage, wait=lambda _: made.stop())
    with pytest.raises(ConcurrentWriteError, match="was stopped before its batch was committed"):
        made.write(rows(0), 0, "q")
    made.close()


def test_what_repeating_does_not_help_is_raised_at_once(tmp_path: Path) -> None:
    made = sink(tmp_path / "t", datasource__write__operation="delete")
    with pytest.raises(TableNotFoundError):
        made.write(rows(0), 0, "q")
    made.close()


def test_another_run_of_the_query_that_commits_the_batch_meanwhile_wins(tmp_path: Path) -> None:
    """Such as one whose driver was taken for dead: inserts conflict with nothing else."""
    base = tmp_path / "t"
    with opened(base, **INSERT, **NO_COMPACTION) as made:
        made.write(table(row("first")), 0, "q")
    done: list[BatchProgress] = []

    def before(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight") and not done:
            with opened(base, **INSERT, **LOCKED, **NO_COMPACTION) as other:
                done.append(other.write(table(row("x")), 1, "q"))

    with opened(base, HookedStorage(base, before), **INSERT, **LOCKED, **NO_COMPACTION) as made:
        again = made.write(table(row("x")), 1, "q")
    assert (again.result, again.attempts) == (None, 2)
    assert done[0].result is not None
    assert batches(base) == [0, 1]
    assert sorted(each["id"] for each in reader.rows(base, unique=False)) == ["first", "x"]
    assert reader.leftovers(base) == []


def finished(base: Path, options: dict[str, Any], clock: Clock) -> None:
    """Go on as Spark does: the last batch again, then the next."""
    with opened(base, None, clock, **options) as made:
        made.write(table(row("x", ts=1)), 1, "q")
        made.write(table(row("x", ts=2)), 2, "q")
    assert batches(base) == [0, 1, 2]
    found = Counter(each["name"] for each in reader.rows(base, unique=False))
    assert found == {"x@0": 1, "x@1": 1, "x@2": 1}
    assert reader.leftovers(base) == []


@pytest.mark.property
@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("effect", [each for each in Effect if each is not Effect.EXISTS_AFTER])
def test_a_batch_is_in_the_table_once_wherever_its_writing_ends(
    tmp_path: Path, effect: Effect, version: str
) -> None:
    """Inserts of one key, which nothing but the record of the batch keeps apart."""
    base, saved, clock = tmp_path / "t", tmp_path / "saved", LaterClock()
    options = {**INSERT, "write__table__version": version, **NO_COMPACTION}
    with opened(base, **options) as made:
        made.write(table(row("x", ts=0)), 0, "q")
    shutil.copytree(base, saved)

    def attempt(plan: list[Fault]) -> FaultyStorage:
        storage = FaultyStorage(LocalStorage(str(base)), plan)
        made = sink(base, storage, **options, **{STREAMING + "retry__count": "1"})
        with suppress(Crash, StrandlineError):
            made.write(table(row("x", ts=1)), 1, "q")
        with suppress(Crash, StrandlineError):
            made.close()
        return storage

    calls = calls_in_turns(attempt([]).log, effect, int(version))
    assert len(calls) > (0 if effect is Effect.CRASH_AFTER else 3)
    for at in calls:
        shutil.rmtree(base)
        shutil.copytree(saved, base)
        attempt([Fault(at, effect)])
        finished(base, options, clock)


@pytest.mark.property
def test_a_commit_in_doubt_is_settled_before_the_next_attempt(tmp_path: Path) -> None:
    """Its answer is lost, and so is what the writer looks at then; the next attempt finds it."""
    base = tmp_path / "t"
    with opened(base, **INSERT) as made:
        made.write(table(row("x", ts=0)), 0, "q")
    lost = threading.Event()

    def after(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".commit"):
            lost.set()
            raise StorageUnavailableError("injected: the answer is lost")

    def before(kind: str, path: str) -> None:
        if lost.is_set() and kind in ("stat", "list") and "timeline" in path:
            raise StorageUnavailableError("injected: the timeline can't be read")

    storage = HookedStorage(base, before, after)
    made = StreamSink(
        LocalEngine(1),
        base,
        {**OPTIONS, "hoodie.datasource.write.operation": "insert"},
        storage=storage,
        wait=lambda _: (lost.clear(), storage.hooks.__setitem__(1, None)),
    )
    again = made.write(table(row("x", ts=1)), 1, "q")
    made.close()
    assert (again.result, again.attempts) == (None, 2)
    finished(base, INSERT, LaterClock())


class Unanswered(LocalStorage):
    """A local table that carries out a completing request only when the test says so."""

    def __init__(self, base: Path) -> None:
        super().__init__(str(base))
        self.sent: list[tuple[str, bytes]] = []

    def create(self, path: str, data: bytes = b"") -> None:
        if path.endswith(".commit") and len(self.sent) < 2:  # it is repeated once
            self.sent.append((path, data))
            raise StorageUnavailableError("injected: no answer")
        super().create(path, data)

    def take_effect(self) -> None:
        path, data = self.sent[0]
        with suppress(AlreadyExistsError):
            super().create(path, data)

    def move_elsewhere(self) -> None:
        """Let its heartbeat be that of a process on another machine."""
        beat = heartbeat_path(Path(self.sent[0][0]).name[:17])
        content = json.loads(self.read(beat, FileKind.PROPERTIES))
        self.replace(beat, json.dumps({**content, "namespace": "another machine"}).encode())


@pytest.mark.property
@pytest.mark.parametrize("appears", [True, False], ids=["appears", "never appears"])
@pytest.mark.parametrize(
    ("options", "restarts"),
    [({**LAZY, **LOCKED}, False), (LAZY, False), (LOCKED, True)],
    ids=["lazy with a lock", "lazy in one process", "eager on another machine"],
)
def test_a_batch_waits_for_its_commit_in_doubt(
    tmp_path: Path, options: dict[str, Any], restarts: bool, appears: bool
) -> None:
    """It conflicts with nothing else: the inserts open file groups of their own."""
    base, clock = tmp_path / "t", ManualClock(SystemClock().now_ms())
    options = {**INSERT, **options}
    with opened(base, **options) as made:
        made.write(table(row("x", ts=0)), 0, "q")
    storage, waits = Unanswered(base), list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(round(seconds * 1000))
        if appears and len(waits) == 5:
            storage.take_effect()

    def write(number: int, ts: int, attempts: int = 3, other: Storage | None = None) -> Any:
        retries = {STREAMING + "retry__count": str(attempts)}
        with opened(base, other, clock, wait, **options, **retries) as made:
            return made.write(table(row("x", ts=ts)), number, "q")

    if restarts:
        with pytest.raises(CommitOutcomeUnknownError):
            write(1, 1, 1, storage)
        storage.move_elsewhere()
        done = write(1, 1)
    else:
        done = write(1, 1, 2, storage)
    assert (done.result is None) == appears
    assert (len(waits) == 5) if appears else (115 < sum(waits) < 125)
    if appears:
        storage.take_effect()
    write(2, 2)
    assert batches(base) == [0, 1, 2]
    found = Counter(each["name"] for each in reader.rows(base, unique=False))
    assert found == {"x@0": 1, "x@1": 1, "x@2": 1}


@pytest.mark.property
def test_a_batch_of_which_another_run_leaves_a_commit_in_doubt_meanwhile_conflicts(
    tmp_path: Path,
) -> None:
    base, other = tmp_path / "t", Unanswered(tmp_path / "t")
    options = {**INSERT, **LOCKED, **NO_COMPACTION, STREAMING + "retry__count": "1"}
    with opened(base, **options) as made:
        made.write(table(row("x", ts=0)), 0, "q")

    def before(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight") and not other.sent:
            with opened(base, other, **options) as made, suppress(CommitOutcomeUnknownError):
                made.write(table(row("x", ts=1)), 1, "q")
            other.move_elsewhere()

    with (
        opened(base, HookedStorage(base, before), **options) as made,
        pytest.raises(WriteConflictError, match="in doubt: it is a batch of the same stream 'defa"),
    ):
        made.write(table(row("x", ts=1)), 1, "q")
    other.take_effect()
    with opened(base, **options) as made:
        assert made.write(table(row("x", ts=1)), 1, "q").result is None
    assert batches(base) == [0, 1]

"""The stream sink without Spark: each batch once, whatever fails; compactions beside it."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline import Table
from strandline.commit.lock.base import Wait
from strandline.commit.others_heartbeats import HeartbeatSettings, heartbeat_path
from strandline.commit.own_heartbeat import Heartbeat
from strandline.records.commit_history import STREAM_BATCH
from strandline.write.engine.local import LocalEngine
from strandline.write.stream_sink import BatchProgress, StreamSink
from tests.kit.concurrency.manual_clock import LaterClock, ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import OPTIONS, client, row, table
from timeline.clock import Clock, SystemClock
from timeline.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    ConfigError,
    StorageUnavailableError,
    StrandlineError,
    TableNotFoundError,
    WriteConflictError,
)
from timeline.storage.base import FileKind, Storage
from timeline.storage.local import LocalStorage

STREAMING = "datasource__write__streaming__"
LOGS = {"datasource__write__table__type": "MERGE_ON_READ", "parquet__small__file__limit": "0"}
EVERY_2 = {**LOGS, "compact__inline__max__delta__commits": "2"}
NO_COMPACTION = {STREAMING + "disable__compaction": "true"}
LOCKED = {
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
}
LAZY = {"clean__failed__writes__policy": "LAZY"}
INSERT = {"datasource__write__operation": "insert"}


def sink(
    base: Path,
    storage: Storage | None = None,
    clock: Clock | None = None,
    wait: Wait = lambda _: None,
    **options: object,
) -> StreamSink:
    """A sink that doesn't sleep; options as of ``tables.client``."""
    given = {f"hoodie.{name.replace('__', '.')}": value for name, value in options.items()}
    return StreamSink(
        LocalEngine(2, cores=1),
        base,
        {**OPTIONS, **given},
        storage=storage,
        clock=clock,
        wait=wait,
    )


@contextmanager
def opened(base: Path, *args: Any, **options: object) -> Iterator[StreamSink]:
    made = sink(base, *args, **options)
    try:
        yield made
    finally:
        made.close()


def rows(number: int) -> pa.Table:
    return table(row("a", ts=number), row(f"b{number}", ts=number))


def batches(base: Path) -> list[int]:
    """Return the batches that commits record, in their order."""
    found = (json.loads(each.extra_metadata.get(STREAM_BATCH, "{}")) for each in commits(base))
    return [int(number) for each in found for number in each.values()]


def commits(base: Path) -> list[Any]:
    found = Table(base)
    return [found.commit_metadata(each.requested_time) for each in found.commits()]


# Batches.


@pytest.mark.parametrize("options", [{}, LOGS], ids=["copy-on-write", "merge-on-read"])
def test_a_repeated_batch_is_done_and_the_next_one_is_written(tmp_path: Path, options) -> None:
    base = tmp_path / "t"
    with opened(base, **options) as one:
        first = one.write(rows(0), 0, "q")
        assert (first.batch, first.query, first.attempts) == (0, "q", 1)
        assert first.result.rows_inserted == 2
        one.write(rows(1), 1, "q")
        assert one.write(rows(1), 1, "q").result is None
    with opened(base, **options) as two:
        assert two.write(rows(9), 1, "q").result is None
        assert two.write(rows(2), 2, "q").result.instant
    assert batches(base) == [0, 1, 2]
    assert {each["name"] for each in reader.rows(base)} == {"a@2", "b0@0", "b1@1", "b2@2"}


def test_a_new_query_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with opened(base) as one:
        one.write(rows(0), 0, "old")
    before = reader.state(base)
    with opened(base) as two:
        for number in (0, 1):
            with pytest.raises(ConfigError, match=f"batch {number} of query new"):
                two.write(rows(5), number, "new")
    assert reader.state(base) == before
    with opened(base, **{STREAMING + "checkpoint__identifier": "other"}) as three:
        assert three.write(rows(5), 0, "new").result is not None


def test_a_query_of_hudi_goes_on_here(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with client(base) as c:
        c.upsert(rows(3), extra_metadata={STREAM_BATCH: '{"default_single_writer":"3"}'})
    with opened(base) as here:
        assert here.write(rows(3), 3, "q").result is None
        assert here.write(rows(4), 4, "q").result is not None
    assert batches(base) == [3, 4]


def test_empty_batches_and_deletes_count(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with opened(base) as upserts:
        assert upserts.write(table(), 0, "q").result.rows_inserted == 0
        upserts.write(rows(1), 1, "q")
        upserts.write(table(), 2, "q")
        assert upserts.write(table(), 2, "q").result is None
    identifier = {STREAMING + "checkpoint__identifier": "deletes"}
    with opened(base, **identifier, datasource__write__operation="delete") as deletes:
        assert deletes.write(table(row("b1")), 0, "d").result.rows_deleted == 1
        with client(base) as c:
            c.upsert(table(row("b1", ts=7)))
        # Hudi would delete the row that has come since.
        assert deletes.write(table(row("b1")), 0, "d").result is None
    assert {each["name"] for each in reader.rows(base)} == {"a@1", "b1@7"}


def test_inserts_are_not_repeated(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with opened(base, **INSERT) as inserts:
        for number in (0, 1, 1, 2, 2):
            inserts.write(table(row("same", ts=number)), number, "q")
    found = Table(base).to_arrow()["name"].to_pylist()
    assert sorted(found) == ["same@0", "same@1", "same@2"]


def test_two_queries_write_one_table_under_a_lock(tmp_path: Path) -> None:
    base = tmp_path / "t"
    identifier = STREAMING + "checkpoint__identifier"
    with (
        opened(base, **LOCKED, **{identifier: "one"}) as one,
        opened(base, **LOCKED, **{identifier: "two"}) as two,
    ):
        for number in range(3):
            one.write(table(row("one", ts=number)), number, "1")
            two.write(table(row("two", "us", ts=number)), number, "2")
            assert one.write(table(row("one", ts=9)), number, "1").result is None
            assert two.write(table(row("two", "us", ts=9)), number, "2").result is None
    assert {each["name"] for each in reader.rows(base)} == {"one@2", "two@2"}


def test_a_gap_is_a_warning_of_the_write(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with opened(base) as one:
        one.write(rows(0), 0, "q")
        undone = one.write(rows(1), 1, "q").result.instant
    with client(base) as c:
        c.rollback(undone)
    with opened(base) as two:
        result = two.write(rows(2), 2, "q").result
    (warning,) = result.warnings
    assert "batch 2 of stream 'default_single_writer' follows batch 0" in warning


def test_progress_is_told_after_the_commit(tmp_path: Path) -> None:
    told: list[BatchProgress] = []

    def tell(progress: BatchProgress) -> None:
        told.append(progress)
        if len(told) == 2:
            raise RuntimeError("the listener fails")

    made = StreamSink(LocalEngine(1), tmp_path / "t", OPTIONS, progress=tell)
    assert made.write(rows(0), 0, "q") == told[0]
    with pytest.raises(RuntimeError, match="the listener fails"):
        made.write(rows(1), 1, "q")
    assert made.write(rows(1), 1, "q").result is None
    made.close()


# Failures.


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

    calls = list(distinct_calls(attempt([]).log, effect))
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


# Compactions.


def settled(check: Callable[[], bool], write: Callable[[], object]) -> None:
    """Write until the thread beside has done what a check looks at."""
    for _ in range(200):
        if check():
            return
        write()
    raise AssertionError("the compaction beside the stream didn't come to an end")


@pytest.mark.parametrize("version", ["6", "9"])
def test_compactions_run_beside_the_batches(tmp_path: Path, version: str) -> None:
    base, compacted = tmp_path / "t", threading.Event()
    threads: list[str] = []

    def before(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".compaction.inflight"):
            threads.append(threading.current_thread().name)
            # The compaction goes on when later batches have been written.
            assert compacted.wait(PATIENCE_S)

    progress: list[BatchProgress] = []
    options = {**EVERY_2, "write__table__version": version}
    with opened(base, HookedStorage(base, before), **options) as made:
        for number in range(5):
            progress.append(made.write(rows(number), number, "q"))
        planned = {p.result.planned_compaction for p in progress} - {None}
        assert not any(each.endswith(".commit") for each in reader.timeline_names(base))
        compacted.set()
    assert set(threads) == {"strandline-async-compaction"}
    names = [each for each in reader.timeline_names(base) if each.endswith(".commit")]
    assert names[0].partition("_")[0].partition(".")[0] in planned
    assert not any(p.result.warnings for p in progress)
    assert {each["name"] for each in reader.rows(base)} == {"a@4", *(f"b{n}@{n}" for n in range(5))}
    optimized = Table(base).scan(read_optimized=True).to_arrow()
    assert "a@0" not in optimized["name"].to_pylist()
    assert reader.leftovers(base) == []


def test_a_compaction_that_fails_is_reported_and_repeated(tmp_path: Path) -> None:
    base, failed = tmp_path / "t", list[str]()

    def before(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".compaction.inflight") and not failed:
            failed.append(path)
            raise StorageUnavailableError("injected")

    ended: list[Any] = []
    numbers = iter(range(300))
    with opened(base, HookedStorage(base, before), **EVERY_2) as made:

        def write() -> None:
            number = next(numbers)
            ended.extend(made.write(rows(number), number, "q").compactions)

        settled(lambda: any(each.result is not None for each in ended), write)
    errors = [each.error for each in ended if each.error is not None]
    assert len(errors) == len(failed) == 1
    assert isinstance(errors[0], StorageUnavailableError)


@pytest.mark.parametrize("dies", [False, True], ids=["planned", "execution died"])
def test_what_others_have_planned_is_executed(tmp_path: Path, dies: bool) -> None:
    base = tmp_path / "t"

    def before(kind: str, path: str) -> None:
        if dies and kind == "create" and path.endswith(".commit"):
            raise Crash("injected")

    storage = HookedStorage(base, before)
    with client(base, storage, **LOGS) as c:
        c.upsert(rows(0))
        c.upsert(rows(1))
        planned = c.schedule_compaction()
        with suppress(Crash):
            assert c.compact_planned() if dies else True
    assert (f"{planned}.compaction.inflight" in reader.timeline_names(base)) == dies
    with opened(base, None, LaterClock(), **LOGS) as made:
        made.write(rows(2), 0, "q")
    names = reader.timeline_names(base)
    assert any(each.startswith(f"{planned}_") and each.endswith(".commit") for each in names)
    assert {each["name"] for each in reader.rows(base)} == {"a@2", "b0@0", "b1@1", "b2@2"}
    assert reader.leftovers(base) == []


@pytest.mark.property
def test_a_compaction_that_another_writer_leaves_is_executed_later(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with client(base, **LOGS) as c:
        c.upsert(rows(0))
        c.upsert(rows(1))
        planned = c.schedule_compaction()
    other = Heartbeat(LocalStorage(str(base)), HeartbeatSettings(), SystemClock())
    other.start(planned)
    ended: list[Any] = []
    numbers = iter(range(300))
    with opened(base, **LOGS, compact__inline__max__delta__commits="1000") as made:

        def write() -> None:
            number = next(numbers)
            ended.extend(made.write(rows(number), number, "q").compactions)

        settled(lambda: bool(ended), write)
        assert (ended[0].result, ended[0].left) == (None, (planned,))
        other.stop()
        settled(lambda: any(each.result is not None for each in ended), write)
    assert ended[-1].result.instant == planned


def test_a_compactor_that_cannot_start_is_reported_and_tried_again(tmp_path: Path) -> None:
    class Full(LocalEngine):
        left = 1

        def beside(self, call: Callable[[], None], purpose: str) -> Callable[[], None]:
            if Full.left:
                Full.left -= 1
                raise RuntimeError("can't start new thread")
            return super().beside(call, purpose)

    ended: list[Any] = []
    numbers = iter(range(300))
    options = {**OPTIONS, "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    made = StreamSink(Full(1), tmp_path / "t", options)

    def write() -> None:
        number = next(numbers)
        ended.extend(made.write(rows(number), number, "q").compactions)

    write()
    assert str(ended[0].error) == "can't start new thread"
    settled(lambda: len(ended) > 1, write)
    made.close()
    assert ended[1].error is None
    assert batches(tmp_path / "t") == list(range(next(numbers)))


def test_a_copy_on_write_table_has_no_planned_compactions(tmp_path: Path) -> None:
    with client(tmp_path / "t") as c:
        c.upsert(rows(0))
        assert c.compact_planned() is None


@pytest.mark.parametrize(
    ("options", "plans", "executed"),
    [
        (NO_COMPACTION, False, False),
        ({"datasource__compaction__async__enable": "false"}, False, True),
        ({"compact__inline": "true"}, False, True),
        ({"compact__schedule__inline": "true"}, True, False),
        ({}, True, True),
    ],
    ids=["disabled", "not asynchronous", "inline", "only planned", "beside"],
)
def test_options_decide_who_compacts(tmp_path: Path, options, plans, executed) -> None:
    base = tmp_path / "t"
    with opened(base, **EVERY_2, **options) as made:
        results = [made.write(rows(number), number, "q").result for number in range(4)]
    assert any(each.planned_compaction for each in results) == plans
    assert any(name.endswith(".commit") for name in reader.timeline_names(base)) == executed


@pytest.mark.property
@pytest.mark.parametrize("version", ["6", "9"])
def test_a_batch_is_compared_while_its_table_is_compacted_and_cleaned(
    tmp_path: Path, version: str
) -> None:
    base = tmp_path / "t"
    options = {
        **EVERY_2,
        "write__table__version": version,
        "clean__automatic": "true",
        "clean__async__enabled": "true",
        "clean__commits__retained": "1",
        "keep__min__commits": "2",
        "keep__max__commits": "3",
    }
    with opened(base, **options) as made:
        for number in range(12):
            assert made.write(rows(number), number, "q").result.warnings == ()
            assert made.write(rows(number), number, "q").result is None
    assert {each["name"] for each in reader.rows(base)} == {
        "a@11",
        *(f"b{number}@{number}" for number in range(12)),
    }


# Bad input.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({STREAMING + "checkpoint__identifier": ""}, "checkpoint.identifier is ''; allowed"),
        (
            {STREAMING + "ignore__failed__batch": "true"},
            "ignore.failed.batch is 'true'; allowed: f",
        ),
        ({STREAMING + "retry__count": "0"}, "retry.count is '0'; allowed: integer, 1 or more"),
        ({STREAMING + "retry__interval__ms": "x"}, "retry.interval.ms is 'x'; allowed: integer"),
        ({"datasource__write__operation": "delete_partition"}, "is delete_partition, which takes"),
        (
            {**NO_COMPACTION, "compact__inline": "true"},
            "disable.compaction is true, and hoodie.compact.inline is true; allowed: one of them",
        ),
        ({"compact__inlin": "true"}, "did you mean hoodie.compact.inline"),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path: Path, options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sink(tmp_path / "t", **options)


def test_options_must_be_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="options are 5; allowed: a mapping"):
        StreamSink(LocalEngine(1), tmp_path / "t", 5)  # type: ignore[arg-type]

"""Compactions beside the batches of a stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from strandline import Table
from strandline.commit.others_heartbeats import HeartbeatSettings
from strandline.commit.own_heartbeat import Heartbeat
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from strandline.write.stream_sink import BatchProgress, StreamSink
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.storage.faulty_storage import Crash
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.streamed import (
    EVERY_2,
    LOGS,
    NO_COMPACTION,
    batches,
    opened,
    rows,
)
from tests.strandline.write.tables import OPTIONS, client
from timeline.clock import SystemClock
from timeline.errors import AlreadyExistsError, StorageError, StorageUnavailableError
from timeline.storage.local import LocalStorage


def settled(check: Callable[[], bool], write: Callable[[], object]) -> None:
    """Write until the thread beside has done what a check looks at."""
    for _ in range(200):
        if check():
            return
        write()
    raise AssertionError("the compaction beside the stream didn't come to an end")


@pytest.mark.property
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


def test_a_compaction_that_is_done_is_reported_though_what_is_left_can_not_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, ended = tmp_path / "t", list[Any]()
    numbers, error = iter(range(300)), StorageUnavailableError("injected")

    def fail(_: WriteClient) -> tuple[str, ...]:
        raise error

    monkeypatch.setattr(WriteClient, "planned_compactions", fail)
    with opened(base, **EVERY_2) as made:

        def write() -> None:
            number = next(numbers)
            ended.extend(made.write(rows(number), number, "q").compactions)

        settled(lambda: any(each.result is not None for each in ended), write)
    assert {each.error for each in ended} == {error}


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


class LostAnswer(HookedStorage):
    """Creates the first plan of a compaction, and fails.

    Args:
        base: The table.
        error: The error.
    """

    def __init__(self, base: Path, error: StorageError) -> None:
        super().__init__(base)
        self._error: StorageError | None = error

    def create(self, path: str, data: bytes = b"") -> None:
        super().create(path, data)
        if path.endswith(".compaction.requested") and self._error is not None:
            error, self._error = self._error, None
            raise error


@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("error", [StorageUnavailableError("lost"), AlreadyExistsError("repeated")])
def test_a_plan_whose_request_seems_to_have_failed_is_executed(
    tmp_path: Path, version: str, error: StorageError
) -> None:
    base = tmp_path / "t"
    options = {**EVERY_2, "write__table__version": version}
    with opened(base, LostAnswer(base, error), **options) as sink:
        numbers = iter(range(1000))

        def write() -> None:
            number = next(numbers)
            sink.write(rows(number), number, "q")

        write()
        settled(
            lambda: any(name.endswith(".commit") for name in reader.timeline_names(base)), write
        )


def test_a_copy_on_write_table_has_no_planned_compactions(tmp_path: Path) -> None:
    with client(tmp_path / "t") as c:
        c.upsert(rows(0))
        assert c.compact_planned() is None


@pytest.mark.property
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

"""Tasks of a stage run side by side; whatever ends the stage ends all of them."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.write.engine import task_threads
from strandline.write.engine.local import LocalEngine
from strandline.write.engine.task_threads import run_in_threads
from tests.kit.concurrency.interrupts import interrupted
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.concurrency.running_calls import running_calls
from tests.kit.concurrency.signals import Interrupted, interrupt, interrupts, wait_until_in
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline import threads
from timeline.errors import ConfigError, InputError, StorageUnavailableError
from timeline.storage.local import LocalStorage
from timeline.threads import usable_cores

ROWS = pa.table({"n": range(4)})


def running() -> set[threading.Thread]:
    return running_calls("strandline-task-")


def run(engine: LocalEngine, task) -> None:
    engine.transform(engine.adopt(ROWS), task, ROWS.schema)


def test_tasks_run_at_the_same_time_on_the_caller_and_on_other_threads() -> None:
    together = threading.Barrier(3)

    def run(number: int, stop: threading.Event) -> tuple[int, str]:
        together.wait(PATIENCE_S)
        return number, threading.current_thread().name

    found = run_in_threads(run, 3, 3)
    assert [number for number, _ in found] == [0, 1, 2]
    names = {name for _, name in found}
    assert len(names) == 3
    assert threading.current_thread().name in names
    assert running() == set()


def test_one_task_and_one_core_need_no_thread() -> None:
    here = threading.current_thread()
    assert run_in_threads(lambda *_: threading.current_thread(), 1, 8) == [here]
    assert run_in_threads(lambda *_: threading.current_thread(), 3, 1) == [here] * 3
    assert run_in_threads(lambda *_: None, 0, 2) == []


def test_a_failure_stops_the_other_tasks_before_their_next_file() -> None:
    begun = threading.Barrier(2)

    def task(batches):
        together = list(batches)
        begun.wait(PATIENCE_S)
        if LocalEngine.attempt().partition == 0:
            raise InputError("no")
        # Ends only because the other task has failed.
        yield from itertools.repeat(together[0])

    with pytest.raises(InputError, match="no"):
        run(LocalEngine(2, cores=2), task)
    assert running() == set()


def test_after_a_failure_no_waiting_task_begins_and_none_is_repeated() -> None:
    attempts = []

    def task(batches):
        attempts.append(LocalEngine.attempt().partition)
        raise StorageUnavailableError(f"task {len(attempts)}")
        yield from batches

    with pytest.raises(StorageUnavailableError, match="task 2"):
        run(LocalEngine(4, task_retries=1, cores=1), task)
    assert attempts == [0, 0]


def test_a_stage_interrupted_at_any_step_leaves_no_thread_behind() -> None:
    for at in itertools.count(1):
        done: list[int] = []
        stage = lambda done=done: run_in_threads(lambda n, _: done.append(n), 3, 2)  # noqa: E731
        was_interrupted = interrupted(stage, at, (task_threads, threads))
        assert running() == set(), f"a task runs on after an interrupt at opcode {at}"
        if not was_interrupted:
            break
    assert at > 50
    assert sorted(done) == [0, 1, 2]


def test_a_stage_interrupted_while_it_waits_ends_all_tasks() -> None:
    begun, ended = threading.Barrier(2), list[int]()

    def run(number: int, stop: threading.Event) -> None:
        begun.wait(PATIENCE_S)
        if threading.current_thread() is not threading.main_thread():
            wait_until_in("join")
            interrupt()
            assert stop.wait(PATIENCE_S)
            ended.append(number)

    with interrupts(), pytest.raises(Interrupted):
        run_in_threads(run, 2, 2)
    assert running() == set()
    assert len(ended) == 1


def test_a_stage_without_threads_runs_in_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert run_in_threads(lambda number, _: number, 3, 3) == [0, 1, 2]


class Meeting(LocalStorage):
    """A local table whose data files are opened for writing by several tasks at once."""

    def __init__(self, base: Path, tasks: int) -> None:
        super().__init__(str(base))
        self.barrier = threading.Barrier(tasks)

    def create_stream(self, path: str):
        self.barrier.wait(PATIENCE_S)
        return super().create_stream(path)


def test_files_of_a_write_are_written_side_by_side(tmp_path: Path) -> None:
    with client(tmp_path, Meeting(tmp_path, 2), LocalEngine(2, cores=2)) as c:
        result = c.upsert(table(row("a", "eu"), row("b", "us")))
    assert result.files == 2
    assert result.storage_calls["create", "write"] == 2
    tokens = {name.split("_")[1] for _, name, _, _ in reader.base_files(tmp_path)}
    assert len(tokens) == 2
    assert running() == set()


def test_an_engine_takes_the_cores_of_its_process() -> None:
    engine = LocalEngine()
    assert engine.tasks == engine.cores == usable_cores() >= 1
    assert LocalEngine(3).tasks == 3
    with pytest.raises(ConfigError, match="cores is 0"):
        LocalEngine(cores=0)

"""S3 carries out an unanswered request for a data file long after its write has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.commit.markers import DirectMarkers, instants_with_markers
from strandline.commit.others_heartbeats import HeartbeatSettings
from strandline.commit.transaction import Transaction
from strandline.table_services.rollback.policy import RollbackPolicy
from strandline.write.engine.base import EngineContext, Task
from strandline.write.engine.local import LocalEngine, LocalRows
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.engines.far_engine import FarEngine
from tests.kit.servers.s3_server import S3Server, s3_server
from tests.kit.tables import reader
from tests.strandline.table_services.rollback.setting import Setting
from tests.strandline.write.faults.test_interrupts import beating
from tests.strandline.write.tables import client, row, table
from timeline.errors import (
    CreateUnansweredError,
    IllegalTransitionError,
    StorageUnavailableError,
    WriteConflictError,
)
from timeline.storage.fsspec_storage import FsspecStorage

pytestmark = pytest.mark.property

HEARTBEATS = HeartbeatSettings(interval_ms=10_000)
OPTIONS = {"client__heartbeat__interval_in_ms": HEARTBEATS.interval_ms}
EAGER = RollbackPolicy(heartbeats=HEARTBEATS)
NEW = table(row("x", "asia"), row("y", "us"))
LOGS = {"datasource__write__table__type": "MERGE_ON_READ"}
BASE_FILE, LOG = r"\.parquet", r"\.log\.\d+_\d+-\d+-\d+"


class LateSetting(Setting):
    """A table on S3 whose late requests are carried out while a writer waits."""

    def __init__(self, server: S3Server, **options: str) -> None:
        super().__init__(server.single_try(), **options)
        self.server = server
        self.carried_out = 0

    def _wait(self, seconds: float) -> None:
        self.carried_out += self.server.requests.carry_out()
        super()._wait(seconds)


@pytest.fixture
def setting() -> Iterator[LateSetting]:
    with s3_server() as server:
        yield LateSetting(server)


@pytest.fixture
def logged() -> Iterator[LateSetting]:
    """The same, merge-on-read."""
    with s3_server() as server:
        yield LateSetting(server, **LOGS)


class CutOffEngine(FarEngine):
    """Executors that lose their connection once storage hasn't answered a create."""

    def transform(self, data: LocalRows, task: Task, schema: pa.Schema) -> LocalRows:
        with pytest.MonkeyPatch.context() as m:
            replace = FsspecStorage.replace

            def fail(*_: object) -> None:
                raise StorageUnavailableError("no connection")

            def cut_off(storage: FsspecStorage, path: str, data: bytes) -> None:
                if ".marker." not in path:
                    return replace(storage, path, data)
                m.setattr(FsspecStorage, "list", fail)
                return fail()

            m.setattr(FsspecStorage, "replace", cut_off)
            return super().transform(data, task, schema)


ON_EXECUTORS = {"strandline__write__driver__max__rows": 0}
"""A small batch isn't written by the driver."""


ARCHIVING = {
    "keep__min__commits": 2,
    "keep__max__commits": 3,
    "clean__automatic": "true",
    "clean__commits__retained": 1,
    "archive__automatic": "true",
}


def places(tasks: int, retries: int) -> pytest.MarkDecorator:
    """Run a test with tasks in the driver, and on executors."""
    engines = LocalEngine(tasks, retries, cores=1), FarEngine(tasks, retries)
    return pytest.mark.parametrize("engine", engines, ids=["driver", "executors"])


@pytest.fixture
def failing_after_one(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Fail every marker but the first, which is that of an attempt before."""
    create = DirectMarkers.create
    made = []

    def begin(error: BaseException) -> None:
        def fail(markers: DirectMarkers, *args: Any) -> Any:
            made.append(markers)
            if len(made) > 1:
                raise error
            return create(markers, *args)

        monkeypatch.setattr(DirectMarkers, "create", fail)

    return begin


@places(2, 0)
def test_a_rollback_waits_for_the_file(
    setting: LateSetting, engine: EngineContext, tmp_path: Path
) -> None:
    """Without its marker it would count as committed once the timeline began later. (#32)"""
    path, storage = setting.storage.base_path, setting.storage
    with client(path, storage, engine, **OPTIONS, **ON_EXECUTORS) as c:
        setting.server.requests.delay(BASE_FILE)
        with pytest.raises(CreateUnansweredError, match=r"expired, in 20 s; a next write") as info:
            c.insert(NEW)
    assert info.value.retryable
    assert len(setting.repair(EAGER)) == 1
    setting.server.requests.carry_out()
    assert setting.carried_out == 1
    assert HEARTBEATS.timeout_ms / 1000 <= setting.waited <= HEARTBEATS.timeout_ms / 1000 + 2
    with client(setting.storage.base_path, setting.storage, clock=LaterClock()) as c:
        assert c.insert(NEW).rolled_back == ()
    base = setting.server.save(setting.storage, tmp_path / "t")
    assert [each["id"] for each in reader.rows(base)] == ["old", "x", "y"]
    assert reader.leftovers(base) == []


@places(1, 1)
@pytest.mark.parametrize("failure", [StorageUnavailableError("no connection"), KeyError("a bug")])
def test_a_rollback_waits_for_the_file_of_an_earlier_attempt(
    setting: LateSetting,
    engine: EngineContext,
    failure: BaseException,
    failing_after_one: Callable[[BaseException], None],
    tmp_path: Path,
) -> None:
    """The driver learns only how the last attempt of an executor's task has failed."""
    failing_after_one(failure)
    path, storage = setting.storage.base_path, setting.storage
    with client(path, storage, engine, **OPTIONS, **ON_EXECUTORS) as c:
        setting.server.requests.delay(BASE_FILE)
        with pytest.raises(type(failure)):
            c.insert(NEW)
    assert len(setting.repair(EAGER)) == 1
    assert setting.carried_out == 1
    assert HEARTBEATS.timeout_ms / 1000 <= setting.waited <= HEARTBEATS.timeout_ms / 1000 + 2
    base = setting.server.save(storage, tmp_path / "t")
    assert [each["id"] for each in reader.rows(base)] == ["old"]
    assert reader.leftovers(base) == []


@places(1, 1)
def test_a_rollback_waits_for_the_file_of_a_write_that_conflicts(
    setting: LateSetting,
    engine: EngineContext,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Otherwise a write that conflicts is rolled back by its own writer, at once."""

    def conflict(*_: object) -> None:
        raise WriteConflictError("another write changed the file")

    path, storage = setting.storage.base_path, setting.storage
    with client(path, storage, engine, **OPTIONS, **ON_EXECUTORS) as c, monkeypatch.context() as m:
        m.setattr(Transaction, "complete", lambda *_, **__: conflict())
        setting.server.requests.delay(BASE_FILE)
        with pytest.raises(WriteConflictError, match="expired, in 20 s"):
            c.insert(NEW)
    assert len(setting.repair(EAGER)) == 1
    assert setting.carried_out == 1
    base = setting.server.save(storage, tmp_path / "t")
    assert [each["id"] for each in reader.rows(base)] == ["old"]
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("operation", ["upsert", "compact"])
def test_a_rollback_waits_for_the_file_of_an_executor_that_can_note_nothing(
    logged: LateSetting, operation: str
) -> None:
    """Its error tells the driver, although the task doesn't get through to its instant either."""
    path, storage = logged.storage.base_path, logged.storage
    with client(path, storage, **OPTIONS) as c:
        c.upsert(table(row("old", ts=2)))
    with client(path, storage, CutOffEngine(1, 0), **OPTIONS, **ON_EXECUTORS) as c:
        logged.server.requests.delay(BASE_FILE)
        with pytest.raises(CreateUnansweredError):
            c.compact() if operation == "compact" else c.insert(NEW)
    (pending,) = logged.meta.active_timeline().pending()
    if operation == "compact":
        assert logged.rollbacks(EAGER).free_plan(pending)
    else:
        assert list(logged.repair(EAGER)) == [pending.requested_time]
    assert logged.carried_out == 1
    assert HEARTBEATS.timeout_ms / 1000 <= logged.waited <= HEARTBEATS.timeout_ms / 1000 + 2


@places(1, 1)
def test_nothing_waits_for_a_file_that_cannot_appear(
    setting: LateSetting,
    engine: EngineContext,
    failing_after_one: Callable[[BaseException], None],
) -> None:
    """Also with a marker without its file, as a task leaves that fails or is ended."""
    failing_after_one(KeyError("a bug"))
    path, storage = setting.storage.base_path, setting.storage
    with (
        client(path, storage, engine, **OPTIONS, **ON_EXECUTORS) as c,
        pytest.raises(KeyError, match="a bug"),
    ):
        c.insert(NEW)
    assert len(setting.repair(EAGER)) == 1
    assert setting.waited == 0


def test_a_rollback_waits_if_the_look_for_notes_was_interrupted(
    setting: LateSetting,
    failing_after_one: Callable[[BaseException], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody knows then whether a file may still appear."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    failing_after_one(KeyError("a bug"))
    path, storage = setting.storage.base_path, setting.storage
    with client(path, storage, FarEngine(1), **OPTIONS, **ON_EXECUTORS) as c:
        monkeypatch.setattr(type(storage), "list_tree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            c.insert(NEW)
    monkeypatch.undo()
    assert beating() == set()
    assert len(setting.repair(EAGER)) == 1
    assert setting.waited >= HEARTBEATS.timeout_ms / 1000


def test_a_rollback_waits_if_storage_does_not_tell(
    setting: LateSetting,
    failing_after_one: Callable[[BaseException], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In an outage an executor's task can't note anything either."""

    def fail(*_: object) -> None:
        raise StorageUnavailableError("no connection")

    failing_after_one(KeyError("a bug"))
    path, storage = setting.storage.base_path, setting.storage
    with client(path, storage, FarEngine(1), **OPTIONS, **ON_EXECUTORS) as c:
        monkeypatch.setattr(type(storage), "list_tree", fail)
        with pytest.raises(KeyError, match="a bug"):
            c.insert(NEW)
    monkeypatch.undo()
    assert len(setting.repair(EAGER)) == 1
    assert setting.waited >= HEARTBEATS.timeout_ms / 1000


@places(1, 1)
def test_a_repeated_attempt_leaves_no_markers(
    setting: LateSetting, engine: EngineContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit deletes them, unless storage didn't answer."""
    create, made = DirectMarkers.create, []

    def fail_once(markers: DirectMarkers, *args: Any) -> Any:
        made.append(markers)
        create(markers, *args)
        if len(made) == 1:
            raise StorageUnavailableError("no connection")

    monkeypatch.setattr(DirectMarkers, "create", fail_once)
    path, storage = setting.storage.base_path, setting.storage
    with client(path, storage, engine, **OPTIONS, **ON_EXECUTORS) as c:
        assert ("replace", "marker") not in c.insert(NEW).storage_calls
    assert len(made) > 2
    assert instants_with_markers(storage) == ()


@places(1, 1)
@pytest.mark.parametrize("next_write", ["before", "after"])
def test_the_file_of_a_repeated_attempt_is_swept(
    setting: LateSetting, next_write: str, engine: EngineContext, tmp_path: Path
) -> None:
    """It has the instant of the commit, whose view would have two files of one slice. (#32)"""
    setting.server.requests.delay(BASE_FILE)
    path, storage = setting.storage.base_path, setting.storage
    with client(path, storage, engine, **ON_EXECUTORS) as c:
        c.insert(NEW)
        if next_write == "before":
            c.upsert(table(row("z", "asia")))
        assert setting.server.requests.carry_out() == 1
        if next_write == "after":
            c.upsert(table(row("z", "asia")))
    with client(setting.storage.base_path, setting.storage, clock=LaterClock()) as c:
        assert c.upsert(table(row("z", "asia", ts=2))).rolled_back == ()
    base = setting.server.save(setting.storage, tmp_path / "t")
    slices = [(file_id, instant) for _, _, file_id, instant in reader.base_files(base)]
    assert len(slices) == len(set(slices))
    assert [each["id"] for each in reader.rows(base)] == ["old", "x", "y", "z"]
    assert reader.leftovers(base) == []


@places(1, 1)
@pytest.mark.parametrize("version", [6, 9])
def test_the_file_of_a_repeated_attempt_is_swept_though_its_commit_is_archived(
    engine: EngineContext, version: int, tmp_path: Path
) -> None:
    """Other writers may complete as many commits while a slow one writes."""
    with s3_server() as server:
        setting = LateSetting(server, version=version)
        path, storage = setting.storage.base_path, setting.storage
        with client(path, storage, engine, **ARCHIVING, **ON_EXECUTORS) as c:
            server.requests.delay(BASE_FILE)
            instant = c.insert(NEW).instant
            for ts in range(6):
                c.upsert(table(row("old", ts=ts)))
            assert setting.meta.active_timeline().find(instant) is None
            assert instants_with_markers(storage) == (instant,)
            assert server.requests.carry_out() == 1
        with client(path, storage, clock=LaterClock()) as c:
            assert c.upsert(table(row("z", "asia", ts=2))).rolled_back == ()
        assert instants_with_markers(storage) == ()
        base = server.save(storage, tmp_path / "t")
    slices = [(file_id, instant) for _, _, file_id, instant in reader.base_files(base)]
    assert len(slices) == len(set(slices))


@places(1, 1)
def test_a_rollback_of_the_commit_waits_for_the_file_of_a_repeated_attempt(
    setting: LateSetting, engine: EngineContext, tmp_path: Path
) -> None:
    """The rollback deletes the markers that the commit has left for the file."""
    setting.server.requests.delay(BASE_FILE)
    path, storage = setting.storage.base_path, setting.storage
    with client(path, storage, engine, **ON_EXECUTORS) as c:
        instant = c.insert(NEW).instant
    setting.rollbacks(EAGER).roll_back_completed(instant)
    assert setting.carried_out == 1
    assert HEARTBEATS.timeout_ms / 1000 <= setting.waited <= HEARTBEATS.timeout_ms / 1000 + 2
    base = setting.server.save(storage, tmp_path / "t")
    assert [each["id"] for each in reader.rows(base)] == ["old"]
    assert reader.leftovers(base) == []


def test_a_rollback_of_a_commit_that_is_not_the_newest_does_not_wait(setting: LateSetting) -> None:
    setting.server.requests.delay(BASE_FILE)
    with client(setting.storage.base_path, setting.storage, LocalEngine(1, 1)) as c:
        instant = c.insert(NEW).instant
        c.insert(table(row("z", "asia")))
    with pytest.raises(IllegalTransitionError, match="newest"):
        setting.rollbacks(EAGER).roll_back_completed(instant)
    assert setting.waited == 0


@places(2, 0)
def test_a_rollback_waits_for_the_log(
    logged: LateSetting, engine: EngineContext, tmp_path: Path
) -> None:
    path, storage = logged.storage.base_path, logged.storage
    with client(path, storage, engine, **OPTIONS, **ON_EXECUTORS) as c:
        logged.server.requests.delay(LOG)
        with pytest.raises(CreateUnansweredError):
            c.upsert(table(row("old", ts=2)))
    assert len(logged.repair(EAGER)) == 1
    assert logged.carried_out == 1
    base = logged.server.save(logged.storage, tmp_path / "t")
    assert list(reader.logs(base)) == []
    assert reader.leftovers(base) == []


@places(1, 1)
@pytest.mark.parametrize("next_write", ["before", "after"])
def test_the_log_of_a_repeated_attempt_is_swept(
    logged: LateSetting, next_write: str, engine: EngineContext, tmp_path: Path
) -> None:
    logged.server.requests.delay(LOG)
    path, storage = logged.storage.base_path, logged.storage
    with client(path, storage, engine, **ON_EXECUTORS) as c:
        instant = c.upsert(table(row("old", ts=2))).instant
        if next_write == "before":
            c.upsert(NEW)
        assert logged.server.requests.carry_out() == 1
        if next_write == "after":
            c.upsert(NEW)
    with client(logged.storage.base_path, logged.storage, clock=LaterClock()) as c:
        assert c.upsert(table(row("x", "asia", ts=2))).rolled_back == ()
    base = logged.server.save(logged.storage, tmp_path / "t")
    assert [log[3] for log in reader.logs(base)].count(instant) == 1
    assert [(each["id"], each["ts"]) for each in reader.rows(base)] == [
        ("old", 2),
        ("x", 2),
        ("y", 1),
    ]
    assert reader.leftovers(base) == []


@places(1, 1)
def test_the_log_of_a_repeated_attempt_is_emptied(engine: EngineContext, tmp_path: Path) -> None:
    """In table version 6 it has the name of its slice, and its rows are visible at once."""
    with s3_server() as server:
        setting = LateSetting(server, version=6, **LOGS)
        path, storage = setting.storage.base_path, setting.storage
        with client(path, storage, engine, **ON_EXECUTORS) as c:
            server.requests.delay(LOG)
            c.upsert(table(row("old", ts=2)))
            assert server.requests.carry_out() == 1
        with client(path, storage, clock=LaterClock()) as c:
            c.insert(NEW)
        base = server.save(storage, tmp_path / "t")
    assert sorted(log.stat().st_size > 0 for log in base.glob("eu/.*.log.*")) == [False, True]
    assert reader.leftovers(base) == []


@places(1, 1)
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            CreateUnansweredError,
            r"executed again when its heartbeat has expired, in 20 s; a next c",
        ),
        (KeyError, "the last attempt"),
    ],
    ids=["unanswered", "answered"],
)
def test_a_compaction_is_undone_when_its_file_may_no_longer_appear(
    logged: LateSetting,
    engine: EngineContext,
    error: type[Exception],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    failing_after_one: Callable[[BaseException], None],
    tmp_path: Path,
) -> None:
    """Without its marker the file would be a second one of the slice."""
    path, storage = logged.storage.base_path, logged.storage
    with client(path, storage, engine, **OPTIONS, **ON_EXECUTORS) as c:
        c.upsert(table(row("old", ts=2)))
        logged.server.requests.delay(BASE_FILE)
        failing_after_one(error("the last attempt"))
        with pytest.raises(error, match=told):
            c.compact()
    monkeypatch.undo()
    (pending,) = logged.meta.active_timeline().pending()
    assert logged.rollbacks(EAGER).free_plan(pending)
    assert logged.carried_out == 1
    assert HEARTBEATS.timeout_ms / 1000 <= logged.waited <= HEARTBEATS.timeout_ms / 1000 + 2
    with client(path, storage, clock=LaterClock(), **OPTIONS) as c:
        done = c.compact()
    assert done is not None
    assert done.instant == pending.requested_time
    base = logged.server.save(storage, tmp_path / "t")
    assert len(list(reader.base_files(base))) == 2
    assert [each["ts"] for each in reader.rows(base)] == [2]
    assert reader.leftovers(base) == []


@places(1, 1)
def test_the_file_of_a_repeated_compacting_task_is_swept(
    logged: LateSetting, engine: EngineContext, tmp_path: Path
) -> None:
    path, storage = logged.storage.base_path, logged.storage
    with client(path, storage, engine, **OPTIONS, **ON_EXECUTORS) as c:
        c.upsert(table(row("old", ts=2)))
        logged.server.requests.delay(BASE_FILE)
        assert c.compact() is not None
        assert logged.server.requests.carry_out() == 1
        c.upsert(table(row("old", ts=3)))
    with client(path, storage, clock=LaterClock(), **OPTIONS) as c:
        c.upsert(NEW)
    base = logged.server.save(storage, tmp_path / "t")
    slices = [(file_id, instant) for _, _, file_id, instant in reader.base_files(base)]
    assert len(slices) == len(set(slices)) == 4
    assert [each["ts"] for each in reader.rows(base)] == [3, 1, 1]
    assert reader.leftovers(base) == []

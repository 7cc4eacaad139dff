"""S3 carries out an unanswered request for a data file long after its write has failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.commit.others_heartbeats import HeartbeatSettings
from strandline.table_services.rollback.policy import RollbackPolicy
from strandline.write.engine.base import EngineContext
from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.engines.far_engine import FarEngine
from tests.kit.servers.s3_server import S3Server, s3_server
from tests.kit.tables import reader
from tests.strandline.table_services.rollback.setting import Setting
from tests.strandline.write.tables import client, row, table
from timeline.errors import CreateUnansweredError

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


ON_EXECUTORS = {**OPTIONS, "strandline__write__driver__max__rows": 0}


@pytest.mark.parametrize(
    ("engine", "options"),
    [(LocalEngine(2, cores=1), OPTIONS), (FarEngine(2), ON_EXECUTORS)],
    ids=["driver", "executors"],
)
def test_a_rollback_waits_for_the_file(
    setting: LateSetting, engine: EngineContext, options: dict[str, Any], tmp_path: Path
) -> None:
    """Without its marker it would count as committed once the timeline began later. (#32)"""
    with client(setting.storage.base_path, setting.storage, engine, **options) as c:
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


@pytest.mark.parametrize("next_write", ["before", "after"])
def test_the_file_of_a_repeated_attempt_is_swept(
    setting: LateSetting, next_write: str, tmp_path: Path
) -> None:
    """It has the instant of the commit, whose view would have two files of one slice. (#32)"""
    setting.server.requests.delay(BASE_FILE)
    with client(setting.storage.base_path, setting.storage, LocalEngine(1, 1, cores=1)) as c:
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


def test_a_rollback_waits_for_the_log(logged: LateSetting, tmp_path: Path) -> None:
    with client(logged.storage.base_path, logged.storage, **OPTIONS) as c:
        logged.server.requests.delay(LOG)
        with pytest.raises(CreateUnansweredError):
            c.upsert(table(row("old", ts=2)))
    assert len(logged.repair(EAGER)) == 1
    assert logged.carried_out == 1
    base = logged.server.save(logged.storage, tmp_path / "t")
    assert list(reader.logs(base)) == []
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("next_write", ["before", "after"])
def test_the_log_of_a_repeated_attempt_is_swept(
    logged: LateSetting, next_write: str, tmp_path: Path
) -> None:
    logged.server.requests.delay(LOG)
    with client(logged.storage.base_path, logged.storage, LocalEngine(1, 1, cores=1)) as c:
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


def test_a_compaction_is_undone_when_its_file_may_no_longer_appear(
    logged: LateSetting, tmp_path: Path
) -> None:
    """Without its marker the file would be a second one of the slice."""
    path, storage = logged.storage.base_path, logged.storage
    with client(path, storage, **OPTIONS) as c:
        c.upsert(table(row("old", ts=2)))
        logged.server.requests.delay(BASE_FILE)
        with pytest.raises(CreateUnansweredError):
            c.compact()
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


def test_the_file_of_a_repeated_compacting_task_is_swept(
    logged: LateSetting, tmp_path: Path
) -> None:
    path, storage = logged.storage.base_path, logged.storage
    with client(path, storage, LocalEngine(1, 1, cores=1), **OPTIONS) as c:
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

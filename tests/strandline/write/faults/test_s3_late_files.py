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


class LateSetting(Setting):
    """A table on S3 whose late requests are carried out while a writer waits."""

    def __init__(self, server: S3Server) -> None:
        super().__init__(server.single_try())
        self.server = server
        self.carried_out = 0

    def _wait(self, seconds: float) -> None:
        self.carried_out += self.server.requests.carry_out()
        super()._wait(seconds)


@pytest.fixture
def setting() -> Iterator[LateSetting]:
    with s3_server() as server:
        yield LateSetting(server)


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
        setting.server.requests.delay(".parquet")
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
    setting.server.requests.delay(".parquet")
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

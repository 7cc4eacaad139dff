"""A service that can't be synced with what has happened doesn't make it fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.write.embedded import EmbeddedService
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.logged_table import LOGS, optimized, rows, write_logs
from tests.strandline.write.tables import client, row, stored, table
from timeline.errors import ServiceUnreachableError

Unsynced = Callable[[Path, str], HookedStorage]


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> Unsynced:
    """Make storages after whose creation of a file with an ending the next sync fails."""
    made: list[str] = []
    sync = EmbeddedService.synced_view

    def fail(self: EmbeddedService):
        if made:
            made.clear()
            raise ServiceUnreachableError("the service is away")
        return sync(self)

    def storage(base: Path, ending: str) -> HookedStorage:
        def note(kind: str, path: str) -> None:
            if kind == "create" and path.endswith(ending):
                made.append(path)

        return HookedStorage(base, after=note)

    monkeypatch.setattr(EmbeddedService, "is_ready", True)
    monkeypatch.setattr(EmbeddedService, "synced_view", fail)
    return storage


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    return write_logs(tmp_path / "t", {})


def test_a_rollback(tmp_path: Path, unsynced: Unsynced, caplog: pytest.LogCaptureFixture) -> None:
    base = stored(tmp_path / "t", table(row("a")), table(row("b")))
    with client(base, unsynced(base, ".rollback")) as c:
        assert c.rollback(max(reader.committed(base)))
    assert [each["id"] for each in reader.rows(base)] == ["a"]
    assert "the timeline service wasn't synced: the service is away" in caplog.text


def test_a_plan(logged: Path, unsynced: Unsynced, caplog: pytest.LogCaptureFixture) -> None:
    with client(logged, unsynced(logged, ".compaction.requested"), **LOGS) as c:
        time = c.schedule_compaction()
        assert c.planned_compactions() == (time,)
    assert "the service is away" in caplog.text


def test_compactions(logged: Path, unsynced: Unsynced, caplog: pytest.LogCaptureFixture) -> None:
    """The second one is carried out, too."""
    with client(logged, **LOGS) as c:
        first = c.schedule_compaction()
        c.upsert(table(row("d", "asia")))
        c.upsert(table(row("d", "asia", ts=2)))
        second = c.schedule_compaction()
    with client(logged, unsynced(logged, ".commit"), **LOGS) as c:
        done = c.compact_planned()
    assert done is not None
    assert (done.finished, done.instant) == ((first,), second)
    assert caplog.text.count("the service is away") == 2
    assert optimized(logged) == rows(logged)

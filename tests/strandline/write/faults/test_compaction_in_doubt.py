"""Compactions planned beside a delta commit that may already have its completion time.

Its logs would belong to the slices that the plan closes, without being named by the plan, so
nothing would read their rows once the compaction was executed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.table_services.compact.planner import CompactionPlanner
from strandline.write.client import WriteClient
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.faults.fault_scenarios import LOCK
from tests.strandline.write.logged_table import LOGS, optimized, rows, write_logs
from tests.strandline.write.tables import client, row, table
from timeline.errors import (
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    StorageUnavailableError,
)
from timeline.storage.local import LocalStorage

SHARED = {
    **LOGS,
    **LOCK,
    "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "clean__failed__writes__policy": "LAZY",
}


@pytest.fixture
def base(tmp_path: Path, version: dict) -> Path:
    return write_logs(tmp_path / "t", version)


class Unanswered(HookedStorage):
    """Keeps the requests that complete a delta commit, which get no answer."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.kept: list[tuple[str, bytes]] = []

    def create(self, path: str, data: bytes = b"") -> None:
        if path.endswith(".deltacommit"):
            self.kept.append((path, data))
            raise StorageUnavailableError("no answer")
        super().create(path, data)


@pytest.mark.parametrize("call", [WriteClient.compact, WriteClient.schedule_compaction])
def test_none_is_planned_while_a_delta_commit_is_in_doubt(base: Path, call) -> None:
    unanswered = Unanswered(base)
    with (
        client(base, unanswered, **SHARED) as c,
        pytest.raises(CommitOutcomeUnknownError),
    ):
        c.upsert(table(row("a", ts=9)))
    with client(base, **SHARED) as c:
        with pytest.raises(ConcurrentWriteError, match=r"delta commit \d{17} .* is in (doubt|fli)"):
            call(c)
        assert not any("compaction" in name for name in reader.timeline_names(base))
        LocalStorage(str(base)).create(*unanswered.kept[0])
        c.compact()
    assert rows(base) == optimized(base)
    assert rows(base)[0]["ts"] == 9


def test_no_plan_lacks_the_logs_of_a_commit_made_while_it_was_planned(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing keeps the two apart: no lock that processes share."""
    plan, written = CompactionPlanner._plan, []

    def write_first(self: CompactionPlanner, *arguments: object):
        found = plan(self, *arguments)
        with client(base, **LOGS) as other:
            written.append(other.upsert(table(row("a", ts=9))))
        return found

    with client(base, **LOGS) as c:
        with monkeypatch.context() as patched:
            patched.setattr(CompactionPlanner, "_plan", write_first)
            with pytest.raises(ConcurrentWriteError, match=r"was made while a compaction was"):
                c.compact()
        c.compact()
    assert len(written) == 1
    assert rows(base) == optimized(base)
    assert rows(base)[0]["ts"] == 9

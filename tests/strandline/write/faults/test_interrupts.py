"""Writes interrupted at any step: no heartbeat goes on, and the next write repairs the table."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from strandline.table_services.rollback import execution
from strandline.write import job
from strandline.write.stages import begun
from tests.kit.concurrency.interrupts import interrupted
from tests.kit.concurrency.running_calls import running_calls
from tests.kit.storage.hooked_storage import HookedStorage, failing
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, stored, table
from timeline.errors import StorageUnavailableError

WRITE = frozenset(
    {"write", "_written_once", "_committed", "begun", "_requested", "_request", "until_committed"}
)
ROLLBACK = frozenset({"request", "carry_out", "resume", "_beating"})


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return stored(tmp_path / "t", table(row("a")))


def beating() -> set[threading.Thread]:
    return running_calls("heartbeat-")


@pytest.mark.property
def test_a_write_interrupted_at_any_step_leaves_no_beat_behind(base: Path) -> None:
    for at in itertools.count(1):
        with client(base) as c:
            rows = table(row(f"k{at}"))
            was_interrupted = interrupted(
                lambda c=c, rows=rows: c.upsert(rows), at, (job, begun), WRITE
            )
        assert beating() == set(), f"beats on after an interrupt at opcode {at}"
        if not was_interrupted:
            break
    assert at > 50
    assert {f"k{at}", "a"} <= {each["id"] for each in reader.rows(base)}
    assert reader.pending(base) == set()


@pytest.mark.property
def test_a_rollback_interrupted_at_any_step_leaves_no_beat_behind(base: Path) -> None:
    for at in itertools.count(1):
        failed = HookedStorage(base, before=failing("create", ".inflight"))
        with client(base, failed) as c, pytest.raises(StorageUnavailableError):
            c.upsert(table(row("lost")))
        with client(base) as c:
            rows = table(row("a", ts=at))
            was_interrupted = interrupted(
                lambda c=c, rows=rows: c.upsert(rows), at, (execution,), ROLLBACK
            )
        assert beating() == set(), f"beats on after an interrupt at opcode {at}"
        if not was_interrupted:
            break
    assert at > 50
    assert [each["id"] for each in reader.rows(base)] == ["a"]
    assert reader.pending(base) == set()

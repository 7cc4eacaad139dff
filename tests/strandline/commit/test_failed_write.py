"""The error of a write that failed is told, and what it says of the write holds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.commit.conflict import SIMPLE
from strandline.commit.lock.base import TableLock
from strandline.commit.others_heartbeats import HeartbeatSettings, instants_with_heartbeat
from strandline.commit.own_heartbeat import Heartbeat
from strandline.commit.transaction import Transaction
from strandline.server.marker.file import directory_path
from tests.kit.storage.hooked_storage import HookedStorage
from tests.strandline.write.tables import client, row, stored, table
from timeline.clock import SystemClock, TimeGenerator
from timeline.errors import CommitOutcomeUnknownError, StorageUnavailableError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import DEFAULT_LIMITS
from timeline.storage.local import LocalStorage


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return stored(tmp_path / "t", table(row("a")))


def pending(base: Path) -> str:
    (found,) = TableMetaClient.open(LocalStorage(str(base))).active_timeline().pending()
    return found.requested_time


def lose_the_timeline(base: Path) -> None:
    shutil.rmtree(base / ".hoodie/timeline", ignore_errors=True)


def have_too_many_markers(base: Path) -> None:
    path = base / directory_path(pending(base)) / "MARKERS0"
    path.touch()
    os.truncate(path, DEFAULT_LIMITS.markers_bytes + 1)


@pytest.mark.parametrize(
    ("damage", "logged"),
    [
        (lose_the_timeline, "the heartbeat and files of {} may stay: "),
        (have_too_many_markers, "the files of {} stay until it is rolled back: "),
    ],
)
def test_a_table_that_is_damaged_meanwhile_does_not_hide_why_a_write_failed(
    base: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    logged: str,
) -> None:
    """Neither as its files are deleted, nor as its heartbeat ends."""

    def fail(kind: str, path: str) -> None:
        if kind == "create" and ".marker." in path:
            damage(base)
            raise StorageUnavailableError("the cause")

    with (
        client(base, HookedStorage(base, before=fail)) as c,
        pytest.raises(StorageUnavailableError, match="the cause"),
    ):
        c.insert(table(row("b", "us")))
    (time,) = instants_with_heartbeat(LocalStorage(str(base)))
    assert logged.format(time) in caplog.text


@pytest.fixture
def storage(base: Path) -> HookedStorage:
    return HookedStorage(base)


@pytest.fixture
def begun(storage: HookedStorage) -> Transaction:
    meta, clock = TableMetaClient.open(storage), SystemClock()
    times = TimeGenerator(clock, meta.config.timezone)
    heartbeat = Heartbeat(storage, HeartbeatSettings(), clock)
    transaction = Transaction(meta, times, TableLock(), heartbeat, SIMPLE)
    transaction.start("INSERT")
    return transaction


def test_a_write_of_which_a_file_may_still_appear_says_that_it_is_rolled_back(
    begun: Transaction,
) -> None:
    failure = StorageUnavailableError("no answer", hint="try again")
    begun.explain_wait(failure)
    begun.fail(late=True)
    said = f"try again; storage may still create a data file of instant {begun.time}, so it is"
    assert failure.hint.startswith(f"{said} rolled back when")


def test_a_commit_in_doubt_does_not_say_that_it_is_rolled_back(
    storage: HookedStorage, begun: Transaction
) -> None:
    """Although a file of it may still appear: it may have completed, or complete yet."""

    def fail(kind: str, path: str) -> None:
        if path.endswith(".commit"):
            raise StorageUnavailableError("no answer")

    storage.hooks[0] = fail
    with pytest.raises(CommitOutcomeUnknownError) as info:
        begun.complete("INSERT", (), "")
    before = info.value.hint
    begun.explain_wait(info.value)
    begun.fail(late=True)
    assert info.value.hint == before
    assert "after that the next write rolls it back if there is none" in before

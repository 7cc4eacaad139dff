"""A commit that was pending when a write began, completes, and is archived by Hudi at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.model.archiving import archive
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock, TimeGenerator
from timeline.errors import WriteConflictError
from timeline.instant import COMMIT, ROLLBACK
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    InstantInfo,
    RollbackMetadata,
    RollbackPlan,
)

BASE = "/memory/t"
OPTIONS = {
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    # A pending write without a heartbeat is left alone.
    "clean__failed__writes__policy": "LAZY",
}


class Setting:
    """A table with one file group in ``eu``, and an earlier write of it that is pending."""

    def __init__(self, version: int) -> None:
        self.storage = MemoryStorage(BASE, now_ms=SystemClock().now_ms)
        with client(BASE, self.storage, write__table__version=version) as c:
            first = c.upsert(table(row("a"), row("b")))
        self.meta = TableMetaClient.open(self.storage)
        self.times = TimeGenerator(SystemClock(), self.meta.config.timezone)
        written = self.meta.active_timeline().find(first.instant)
        assert written is not None
        content = self.meta.read(written)
        assert isinstance(content, CommitMetadata)
        self.content = content
        requested = self.meta.create_requested(COMMIT, self.times.next())
        self.earlier = self.meta.transition_to_inflight(requested)

    def complete(self):
        return self.meta.complete(self.earlier, self.content, self.times.next())

    def archive(self) -> None:
        archive(SimpleNamespace(**vars(self), done={}, remove=self._remove), [self.complete()])

    def roll_back(self) -> None:
        target = self.earlier.requested_time
        plan = RollbackPlan(InstantInfo(target, COMMIT))
        time = self.times.next()
        rollback = self.meta.transition_to_inflight(
            self.meta.create_requested(ROLLBACK, time, plan)
        )
        self.vanish()
        done = RollbackMetadata(time, commits_rollback=(target,))
        self.meta.complete(rollback, done, self.times.next())

    def vanish(self) -> None:
        folder = self.meta.layout.folder
        for path in [*self.storage.files]:
            if path.startswith(f"{folder}/{self.earlier.requested_time}"):
                del self.storage.files[path]

    def _remove(self, instant, *states) -> None:
        for state in states:
            name = self.meta.layout.file_name(
                type(instant)(instant.requested_time, instant.action, state)
            )
            self.storage.files.pop(f"{self.meta.layout.folder}/{name}", None)

    def upsert(self, rows, meanwhile):
        """Write some rows, while something happens after the write has read the timeline."""

        def hook(kind, path):
            if kind == "create" and path.endswith(".inflight"):
                self.storage.fail.clear()
                meanwhile()

        with client(BASE, self.storage, **OPTIONS) as c:
            self.storage.fail.append(hook)
            return c.upsert(rows)


@pytest.fixture(params=[6, 9], ids=["v6", "v9"])
def setting(request):
    return Setting(request.param)


def test_rows_of_a_commit_archived_meanwhile_are_not_overwritten(setting):
    with pytest.raises(WriteConflictError, match=f"{setting.earlier.requested_time} changed file"):
        setting.upsert(table(row("b", ts=2)), setting.archive)


def test_a_write_is_compared_with_an_archived_commit_of_other_file_groups(setting):
    result = setting.upsert(table(row("x", "us")), setting.archive)
    assert result.concurrent == (setting.earlier.requested_time,)


def test_a_commit_archived_between_the_list_and_the_read_is_compared(setting):
    def complete():
        done = setting.complete()

        def hook(kind, path):
            if kind == "read" and path == setting.meta.path_of(done):
                setting.storage.fail.clear()
                remains = SimpleNamespace(**vars(setting), done={}, remove=setting._remove)
                archive(remains, [done])

        setting.storage.fail.append(hook)

    with pytest.raises(WriteConflictError, match=f"{setting.earlier.requested_time} changed file"):
        setting.upsert(table(row("b", ts=2)), complete)


def test_a_commit_that_was_rolled_back_is_not_compared(setting):
    assert setting.upsert(table(row("b", ts=2)), setting.roll_back).concurrent == ()


def test_a_commit_that_left_no_trace_conflicts(setting):
    with pytest.raises(WriteConflictError, match=r"can't be compared with .*isn't in the archive"):
        setting.upsert(table(row("x", "us")), setting.vanish)


def test_a_pending_rollback_tells_nothing(setting):
    """Its writer died before it saw that the commit had completed."""

    def archive_beside_a_rollback():
        plan = RollbackPlan(InstantInfo(setting.earlier.requested_time, COMMIT))
        setting.meta.create_requested(ROLLBACK, setting.times.next(), plan)
        setting.archive()

    with pytest.raises(WriteConflictError, match=f"{setting.earlier.requested_time} changed file"):
        setting.upsert(table(row("b", ts=2)), archive_beside_a_rollback)

"""Three writers and one rollback without a lock: who carries it out, and who withdraws it.

The commit's writer completes it, the rollback's writer has seen it pending, and a third one finds
the rollback requested. A commit that was acknowledged keeps its files in every order.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from strandline.commit.completion_outcome import complete_surely, withdraw_if_rolled_back
from strandline.commit.lock.base import TableLock
from strandline.commit.others_heartbeats import HeartbeatSettings
from strandline.table_services.rollback.execution import WITHDRAWN, RollbackExecution
from strandline.table_services.rollback.plan import plan_rollback
from tests.kit.concurrency.every_order import every_order
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.storage.memory_storage import MemoryStorage
from tests.strandline.table_services.rollback.setting import Setting
from timeline.clock import SystemClock, TimeGenerator
from timeline.errors import ConcurrentWriteError
from timeline.instant import ROLLBACK, Instant, State
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat

FILE = "eu/a.parquet"


class Died(BaseException):
    """The process ended."""


@pytest.fixture(params=[6, 9], ids=["v6", "v9"])
def setting(request):
    return Setting(MemoryStorage(now_ms=SystemClock().now_ms), request.param)


class Three:
    """A commit that is about to complete, and a rollback of it whose writer saw it pending."""

    def __init__(self, setting) -> None:
        self.setting = setting
        self.meta = setting.meta
        self.storage = setting.storage
        self.commit = setting.pending_commit(FILE)
        self.path = setting.path(FILE)
        self.seen = self.meta.active_timeline()
        self.plan = plan_rollback(self.commit, [self.path], self.storage.base_path)
        time = self._times().next(self.commit.requested_time)
        self.rollback = self.meta.create_requested(ROLLBACK, time, self.plan)
        self.files = dict(self.storage.files)

    def _times(self):
        return TimeGenerator(self.setting.clock, self.meta.config.timezone, wait=self.setting._pass)

    def execution(self):
        clock = self.setting.clock
        return RollbackExecution(self.meta, self._times(), clock, TableLock(), HeartbeatSettings())

    def complete(self):
        stats = (WriteStat(path=self.path, partition_path="eu"),)
        metadata = CommitMetadata({"eu": stats}, operation_type="UPSERT")
        time = self._times().next(self.rollback.requested_time)
        done = complete_surely(self.meta, self.commit, metadata, time, lambda: None)
        withdraw_if_rolled_back(self.meta, done, self.seen)
        return "acknowledged"

    def carry_out(self):
        """Go on as the rollback's writer does that has seen the commit pending."""
        execution = self.execution()
        inflight = execution._decided(self.rollback)
        if inflight is not None:
            execution._undo(inflight, self.plan, self.commit)
            execution._complete(inflight, self.plan, 0)
        return inflight

    def resume(self):
        """Go on as a writer does that finds the rollback requested."""
        return self.execution().resume(self.rollback, self.plan)

    def resume_later(self):
        """Go on as another writer does, whose clock is ahead."""
        clock = ManualClock(self.setting.clock.now_ms() + 5)
        times = TimeGenerator(clock, self.meta.config.timezone, wait=self.setting._pass)
        execution = RollbackExecution(self.meta, times, clock, TableLock(), HeartbeatSettings())
        return execution.resume(self.rollback, self.plan)

    def start(self, before):
        """Return the actors; what counts are looks at the timeline and changes of its files."""
        return self._start(before, [self.complete, self.carry_out, self.resume])

    def start_both(self, before):
        """Return two actors that find the rollback inflight, each as its writer's successor."""
        return self._start(before, [self.resume, self.resume_later])

    def _start(self, before, actors):
        folder = self.meta.layout.folder
        self.storage.files.clear()
        self.storage.files.update(self.files)

        def hook(kind, path):
            name = path.removeprefix(f"{folder}/")
            if (
                path == folder
                or name.startswith(self.rollback.requested_time)
                or (kind == "create" and path.endswith(".commit"))
            ):
                before(kind, path)

        self.storage.fail[:] = [hook]
        return actors

    def is_committed(self):
        self.storage.fail.clear()
        found = self.meta.active_timeline().find(self.commit.requested_time)
        return found is not None and found.is_completed and self.setting.exists(FILE)


@pytest.mark.property
@pytest.mark.parametrize(
    "setting", [pytest.param(6, id="v6", marks=pytest.mark.product), 9], indirect=True
)
def test_every_order_of_three_writers(setting):
    three = Three(setting)
    outcomes = set()
    for choices, results in every_order(three.start, preemptions=3):
        errors = [each for each in results if isinstance(each, Exception)]
        assert all(isinstance(each, ConcurrentWriteError) for each in errors), (choices, results)
        is_acknowledged = results[0] == "acknowledged"
        assert three.is_committed() == is_acknowledged, (choices, results)
        setting.repair()
        assert three.is_committed() == is_acknowledged, (choices, results)
        assert setting.exists(FILE) == is_acknowledged, (choices, results)
        assert set(setting.states(ROLLBACK).values()) <= {"COMPLETED"}, (choices, results)
        _, carried_out, resumed = results
        outcomes.add((is_acknowledged, isinstance(carried_out, Instant), isinstance(resumed, str)))
    # Whoever carries the rollback out, the commit isn't acknowledged; both may withdraw.
    assert outcomes == {
        (True, False, False),
        (False, True, False),
        (False, False, True),
        (False, True, True),
        (False, False, False),
    }


@pytest.mark.property
def test_two_that_finish_one_rollback_complete_it_once(setting):
    """From version 8 on the completed file's name has the completion time."""
    three = Three(setting)
    three.rollback = three.meta.transition_to_inflight(three.rollback)
    three.files = dict(three.storage.files)
    completed = 0
    for choices, results in every_order(three.start_both, preemptions=2):
        setting.storage.fail.clear()
        assert len(three.meta.completions(three.rollback)) == 1, choices
        errors = [each for each in results if isinstance(each, Exception)]
        assert all(isinstance(each, ConcurrentWriteError) for each in errors), (choices, results)
        completed = max(completed, len(results) - len(errors))
        assert not setting.exists(FILE)
    assert completed == 2


@pytest.mark.parametrize("calls", range(1, 12))
def test_a_writer_that_dies_while_it_withdraws_leaves_an_acknowledged_commit(setting, calls):
    """The rollback was requested after the commit's writer had looked for rollbacks."""
    three = Three(setting)
    setting.complete(three.commit, FILE)
    left = [calls]

    def die(kind, path):
        left[0] -= 1
        if left[0] == 0:
            setting.storage.fail.clear()
            raise Died

    setting.storage.fail.append(die)
    with suppress(Died):
        three.resume()
    assert three.is_committed()
    setting.repair()
    assert three.is_committed()
    assert setting.states(ROLLBACK) == {}


def test_a_withdrawal_is_on_the_timeline_before_the_plan_goes(setting):
    three = Three(setting)
    setting.complete(three.commit, FILE)
    inflight = replace(three.rollback, state=State.INFLIGHT)
    found = []

    def look(kind, path):
        if kind == "delete" and path == setting.meta.path_of(three.rollback):
            found.append(setting.storage.files[setting.meta.path_of(inflight)][0])

    setting.storage.fail.append(look)
    assert three.resume() is None
    assert found == [WITHDRAWN]


def test_an_inflight_file_created_after_the_plan_is_gone_carries_nothing_out(setting):
    """Two writers withdraw; the rollback's own creates the file after the first one has ended."""
    three = Three(setting)
    setting.complete(three.commit, FILE)
    setting.meta.transition_to_inflight(three.rollback)
    setting.meta.delete_instant_file(three.rollback)
    assert three.resume() is None
    assert three.is_committed()
    assert setting.states(ROLLBACK) == {}

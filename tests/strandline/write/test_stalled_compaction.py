"""A compaction whose writer stalls, and wakes up while another one executes its plan, or after."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.commit.others_heartbeats import read_beat
from strandline.write.engine.base import TaskAttempt
from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.faults.fault_scenarios import LOCK
from tests.strandline.write.logged_table import LOGS, VERSION_6, optimized, rows, write_logs
from tests.strandline.write.tables import client
from timeline.errors import ConcurrentWriteError, StorageUnavailableError
from timeline.storage.local import LocalStorage

OPTIONS = {**LOGS, **LOCK}


class NewProcess(LocalEngine):
    """Numbers its attempts like a process in which nothing has run."""

    def __init__(self) -> None:
        super().__init__(2, task_retries=1, cores=1)
        self._numbers: dict[int, int] = {}

    def attempt(self) -> TaskAttempt:
        """Return the attempt running in this context."""
        found = LocalEngine.attempt()
        number = self._numbers.setdefault(found.attempt, len(self._numbers))
        return replace(found, attempt=number)


class StallingClock(LaterClock):
    """The machine's clock until the writer stalls."""

    def __init__(self) -> None:
        super().__init__(0)

    def stall(self) -> None:
        self._ahead_ms = 3_600_000


class Stalled:
    """A compaction that stalls before it creates its last marker.

    Args:
        base: The table, with two groups to compact.
        fault: ``retried``: its first marker can't be created at first; ``away``: it finds its
            storage away when it wakes up.
    """

    def __init__(self, base: Path, fault: str = "") -> None:
        self._base = base
        self._clock = StallingClock()
        self._stalls, self._goes_on = threading.Event(), threading.Event()
        self._left = 2
        self._fails, self._is_away = fault == "retried", fault == "away"
        pool = ThreadPoolExecutor(1)
        self._ended = pool.submit(self._compact)
        pool.shutdown(wait=False)
        assert self._stalls.wait(PATIENCE_S)

    def wake(self) -> BaseException | None:
        """Let it go on to its end; return its error."""
        self._goes_on.set()
        return self._ended.exception(PATIENCE_S)

    def _compact(self) -> None:
        hooked = HookedStorage(self._base, self._before)
        with client(self._base, hooked, NewProcess(), self._clock, **OPTIONS) as c:
            c.compact()

    def _before(self, kind: str, path: str) -> None:
        if kind != "create" or not path.endswith(".MERGE"):
            return
        if self._fails:
            self._fails = False
            raise StorageUnavailableError("injected")
        self._left -= 1
        if not self._left:
            self._clock.stall()
            self._stalls.set()
            assert self._goes_on.wait(PATIENCE_S)
        if self._is_away and self._left <= 0:
            raise StorageUnavailableError("injected")


@pytest.fixture(scope="module", params=[{}, VERSION_6], ids=["v9", "v6"])
def written(request, tmp_path_factory) -> Path:
    return write_logs(tmp_path_factory.mktemp("written") / "t", request.param)


@pytest.fixture
def planned(written, tmp_path) -> tuple[Path, str]:
    """A table with logs, and the time of a planned compaction."""
    base = shutil.copytree(written, tmp_path / "t")
    with client(base, **OPTIONS) as c:
        return base, c.schedule_compaction()


def compact(base: Path, before=None):
    """Execute the plan in another process, later."""
    hooked = HookedStorage(base, before)
    with client(base, hooked, NewProcess(), LaterClock(), **OPTIONS) as c:
        return c.compact()


def check_whole(base: Path, time: str, before: list[dict]) -> None:
    """Check that the table has its rows, and of the compaction only the files that it reports."""
    assert rows(base) == optimized(base) == before
    assert reader.leftovers(base) == []
    assert len(list(base.rglob(f"*_{time}.parquet"))) == 2


@pytest.mark.property
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("", ConcurrentWriteError),
        ("retried", ConcurrentWriteError),
        ("away", StorageUnavailableError),
    ],
)
def test_one_that_wakes_up_beside_its_successor_leaves_its_files(planned, fault, error):
    base, time = planned
    before = rows(base)
    stalled, seen = Stalled(base, fault), []

    def wake_between(kind, path):
        if kind == "create" and path.endswith(".MERGE"):
            seen.append(path)
            if len(seen) == 2:
                assert isinstance(stalled.wake(), error)
                beat = read_beat(LocalStorage(str(base)), time)
                assert (beat.ended, beat.completing) == (False, False)

    done = compact(base, wake_between)
    assert (done.instant, done.file_groups) == (time, 2)
    check_whole(base, time, before)


@pytest.mark.property
def test_one_that_wakes_up_after_its_successor_leaves_its_files(planned):
    base, time = planned
    before = rows(base)
    stalled = Stalled(base)
    done = compact(base)
    assert isinstance(stalled.wake(), ConcurrentWriteError)
    assert (done.instant, done.file_groups) == (time, 2)
    # Its markers are swept with the next compaction.
    with client(base, clock=LaterClock(), **OPTIONS) as c:
        assert c.compact() is None
    check_whole(base, time, before)

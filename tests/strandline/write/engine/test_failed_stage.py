"""A stage fails after another writer has rolled its write back: no task's file is left.

The writer is suspended between a marker and its file. The rollback deletes the marker, so that
nobody else knows of the file, which would count as committed once its instant were archived.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager

import pytest

from strandline.commit.others_heartbeats import instants_with_heartbeat
from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.engines.far_engine import FarEngine
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.errors import (
    ConcurrentWriteError,
    InputError,
    StorageUnavailableError,
    WriteConflictError,
)
from timeline.storage.local import LocalStorage

ON_EXECUTORS = {"strandline.write.driver.max.rows": 0}


_SUSPENSIONS: list[Suspension] = []


def _suspension(number):
    return _SUSPENSIONS[number]


class Suspension:
    """Another writer's repair before the first data file, and the failure of the second.

    Copies of tasks share it. ``repaired`` is what the other writer rolled back.
    """

    def __init__(self, base, error):
        self._base = base
        self._error = error
        self._numbers = itertools.count()
        self._first_is_written = threading.Event()
        self.repaired = ()
        self._number = len(_SUSPENSIONS)
        _SUSPENSIONS.append(self)

    def __reduce__(self):
        return _suspension, (self._number,)

    @contextmanager
    def around_file(self):
        number = next(self._numbers)
        if number == 0:
            with client(self._base, clock=LaterClock()) as other:
                self.repaired = other.upsert(table(row("a", ts=5))).rolled_back
        elif number == 1:
            assert self._first_is_written.wait(PATIENCE_S)
            raise self._error("injected")
        yield
        self._first_is_written.set()


class SuspendedStorage(LocalStorage):
    """The storage of a writer that is suspended."""

    def __init__(self, base, suspension):
        super().__init__(str(base))
        self.suspension = suspension

    def __reduce__(self):
        return SuspendedStorage, (self.base_path, self.suspension)

    @contextmanager
    def create_stream(self, path):
        with self.suspension.around_file(), super().create_stream(path) as stream:
            yield stream


class OneThreadEngine(FarEngine):
    """Executors whose driver writes small batches on one thread, so that one task has all files."""

    driver_cores = 1


ENGINES = {
    "one task": (lambda: LocalEngine(1, cores=1), {}),
    "two tasks": (lambda: LocalEngine(2, cores=2), {}),
    "repeated task": (lambda: LocalEngine(1, 1, cores=1), {}),
    "executors": (lambda: FarEngine(1), ON_EXECUTORS),
    "driver, then executors": (lambda: OneThreadEngine(1), {}),
}
REPEATED = {"repeated task", "driver, then executors"}
ERRORS = (StorageUnavailableError, InputError, WriteConflictError, KeyboardInterrupt)
SHORT = (StorageUnavailableError, KeyboardInterrupt)
"""One that a task repeats, and one that none does, are for every run."""


def expected(engine, error):
    """Return the error of the write: an attempt that is repeated finds that its instant ended."""
    is_repeated = engine in REPEATED and getattr(error, "retryable", False)
    return ConcurrentWriteError if is_repeated else error


@pytest.mark.parametrize(
    ("engine", "error"),
    [
        pytest.param(engine, error, marks=() if error in SHORT else pytest.mark.property)
        for engine in ENGINES
        for error in ERRORS
        # An interrupt comes to the driver.
        if (engine, error) != ("executors", KeyboardInterrupt)
    ],
)
def test_no_file_of_a_rolled_back_write_is_left(base, engine, error):
    make, options = ENGINES[engine]
    suspension = Suspension(base, error)
    with (
        client(base, SuspendedStorage(base, suspension), make(), **options) as c,
        pytest.raises(expected(engine, error)),
    ):
        c.insert(table(row("ghost", "asia"), row("other", "africa")))
    assert len(suspension.repaired) == 1
    with client(base, clock=LaterClock(2)) as c:
        c.upsert(table(row("a", ts=6)))
    assert reader.leftovers(base) == []
    assert instants_with_heartbeat(LocalStorage(str(base))) == ()
    assert [(each["id"], each["ts"]) for each in reader.rows(base)] == [("a", 6), ("b", 1)]

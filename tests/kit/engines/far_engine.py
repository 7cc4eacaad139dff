"""An engine whose tasks work on copies, as executors do: only their tallies come back."""

from __future__ import annotations

import pickle
from collections import Counter

import pyarrow as pa

from strandline.write.engine.base import Tally, Task
from strandline.write.engine.local import LocalEngine, LocalRows

_TALLIES: list[FarTally] = []


class FarTally(Tally):
    """A counter that pickles as its number; used by one thread."""

    def __init__(self) -> None:
        self._total: Counter[tuple[str, str]] = Counter()
        self._number = len(_TALLIES)
        _TALLIES.append(self)

    def __reduce__(self):
        return _tally, (self._number,)

    def add(self, calls) -> None:
        """Add counts."""
        self._total.update(calls)

    @property
    def total(self):
        """The sum."""
        return dict(self._total)


def _tally(number: int) -> FarTally:
    return _TALLIES[number]


class FarEngine(LocalEngine):
    """The executors of a write, in this process; tasks and their storages are pickled.

    Args:
        tasks: Number of tasks.
        task_retries: Maximum number of retries of a task.

    Attributes:
        steps: The classes of the tasks that have run.
    """

    in_process = False

    def __init__(self, tasks: int = 2, task_retries: int = 0) -> None:
        super().__init__(tasks, task_retries, cores=1)
        self.steps: list[str] = []

    def transform(self, data: LocalRows, task: Task, schema: pa.Schema) -> LocalRows:
        """Run a copy of the task."""
        self.steps.append(type(task).__name__)
        return super().transform(data, pickle.loads(pickle.dumps(task)), schema)

    def tally(self) -> FarTally:
        """Return a counter that copies of tasks add to."""
        return FarTally()

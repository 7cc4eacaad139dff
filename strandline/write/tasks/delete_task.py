"""``delete_on``: deletes many files in tasks of a cluster, few on threads of the driver.

Source: Hudi 1.2.0 ``CleanActionExecutor.clean``, which deletes in Spark tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from strandline.table_services.clean.execution import Delete, Done, File, delete_files
from strandline.write.engine.base import EngineContext
from timeline.storage.base import Storage

_FILES: Final = pa.schema([("partition", pa.string()), ("name", pa.string())])
A_THREAD: Final = 1000
"""Files for each of the driver's threads, above which tasks delete them."""
_A_TASK: Final = 10_000
"""Files for each core that tasks delete in one job."""


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Deletes the files that are its rows; yields those that it couldn't delete.

    A task that is run again counts the files that are missing by then as deleted.

    Attributes:
        storage: The table's storage, for the cause ``clean``.
    """

    storage: Storage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the files that couldn't be deleted."""
        for batch in batches:
            columns = (column.to_pylist() for column in batch.columns)
            failed = delete_files(self.storage, [*zip(*columns, strict=True)], 1)
            yield from _table(sorted(failed)).to_batches()


def delete_on(
    engine: EngineContext[Any],
    storage: Storage,
    parallelism: int,
    proceed: Callable[[], object] = lambda: None,
    a_thread: int = A_THREAD,
) -> Delete:
    """Return the function that deletes files for the cleaner.

    Args:
        engine: Runs tasks.
        storage: The table's storage, for the cause ``clean``.
        parallelism: Maximum number of threads of the driver.
        proceed: Called before each job, and each ``a_thread`` files for each thread of the driver;
            what it raises ends the deletion.
        a_thread: Files for each thread up to which the driver deletes them: a job costs more than
            it saves.
    """

    def delete(files: Sequence[File], done: Done) -> Collection[File]:
        in_driver = engine.in_process or len(files) <= parallelism * a_thread
        step = parallelism * a_thread if in_driver else max(engine.cores, 1) * _A_TASK
        failed: list[File] = []
        for first in range(0, len(files), step):
            proceed()
            part = files[first : first + step]
            if in_driver:
                failed += delete_files(storage, part, parallelism, done)
            else:
                failed += in_tasks(part)
                done(len(part))
        return failed

    def in_tasks(files: Sequence[File]) -> list[File]:
        step = max(a_thread, -(-len(files) // engine.cores))
        parts = [_table(files[first : first + step]) for first in range(0, len(files), step)]
        failed = engine.collect(
            engine.transform(engine.from_driver(parts), DeleteTask(storage), _FILES)
        )
        return [(row["partition"], row["name"]) for row in failed.to_pylist()]

    return delete


def _table(files: Sequence[File]) -> pa.Table:
    partitions, names = zip(*files, strict=True) if files else ((), ())
    return pa.table([pa.array(partitions, pa.string()), pa.array(names, pa.string())], _FILES)

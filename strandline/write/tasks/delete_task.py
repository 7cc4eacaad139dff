"""``delete_on``: deletes many files in tasks of a cluster, few on threads of the driver.

Source: Hudi 1.2.0 ``CleanActionExecutor.clean``, which deletes in Spark tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from strandline.table_services.clean.execution import Delete, Done, File, delete_files
from strandline.write.engine.base import EngineContext
from timeline.storage.base import Storage

_FILES: Final = pa.schema([("partition", pa.string()), ("name", pa.string())])
_A_THREAD: Final = 1000
"""Files for each of the driver's threads, above which tasks delete them."""


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


def delete_on(engine: EngineContext[Any], storage: Storage, parallelism: int) -> Delete:
    """Return the function that deletes files for the cleaner.

    Args:
        engine: Runs tasks.
        storage: The table's storage, for the cause ``clean``.
        parallelism: Maximum number of threads of the driver.

    Up to 1,000 files for each thread are deleted by the driver: a job costs more than it saves.
    """

    def delete(files: Sequence[File], done: Done) -> Collection[File]:
        if engine.in_process or len(files) <= parallelism * _A_THREAD:
            return delete_files(storage, files, parallelism, done)
        step = max(_A_THREAD, -(-len(files) // engine.cores))
        parts = [_table(files[first : first + step]) for first in range(0, len(files), step)]
        failed = engine.collect(
            engine.transform(engine.from_driver(parts), DeleteTask(storage), _FILES)
        )
        done(len(files))
        return [(row["partition"], row["name"]) for row in failed.to_pylist()]

    return delete


def _table(files: Sequence[File]) -> pa.Table:
    partitions, names = zip(*files, strict=True) if files else ((), ())
    return pa.table([pa.array(partitions, pa.string()), pa.array(names, pa.string())], _FILES)

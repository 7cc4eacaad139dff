"""Shortens PySpark's work before and after each task in a reused Python process.

*Before*: ``importlib.invalidate_caches``. Spark puts ``pyspark.zip`` and the jar of its core on
Python's path. ``sys.path_importer_cache`` has a finder for each archive, and for each folder inside
one where Python searched for modules. Before Python 3.13 this call makes every such finder read its
archive's directory again (python/cpython#103200): 70 to 90 ms per task. Without finders there is
nothing to read; the next import makes a new finder, from the directory that ``zipimport`` has in
memory.

*After*: ``gc.collect``, which takes 25 ms or more, as it visits the objects of all modules, unless
they are frozen.

Source: PySpark 3.5 ``pyspark/worker.py``, ``pyspark/daemon.py``.
"""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from zipimport import zipimporter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InWorker:
    """A function of a part's rows that isn't unpickled if the part is empty.

    Unpickling imports its modules, which takes a new process as long as some 100,000 rows. Empty
    parts are common: a file of one row group, as pandas and pyarrow write, fills one of several
    parts.

    Attributes:
        run: The pickled function.
        added_files: Returns the argument of ``prepare_reuse``.
    """

    run: bytes
    added_files: Callable[[], str]

    def __call__(self, given: Iterator[Any]) -> Iterator[Any]:
        """Run it, then prepare the process so that its next task begins without delay."""
        return prepare_reuse(self._made(iter(given)), self.added_files())

    def _made(self, given: Iterator[Any]) -> Iterator[Any]:
        for first in given:
            run = pickle.loads(self.run)  # noqa: S301 - the driver's, as PySpark's own
            yield from run(chain([first], given))


def prepare_reuse(rows: Iterator[T], added_files: str) -> Iterator[T]:
    """Yield a task's output, then forget finders and freeze modules.

    Args:
        rows: The task's output.
        added_files: As in ``forget_finders``.
    """
    try:
        yield from rows
    finally:
        forget_finders(added_files)
        freeze_modules()


def forget_finders(added_files: str) -> None:
    """Forget the finders of all archives, except those that may be replaced while Spark runs.

    Loaded modules stay, and others can still be imported.

    Args:
        added_files: Folder of the files of ``SparkContext.addPyFile``, whose finders stay.
    """
    folder = Path(added_files)
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and folder not in Path(path).parents:
            sys.path_importer_cache.pop(path, None)


@cache
def freeze_modules() -> None:
    """Exempt all objects that exist at the first call from garbage collection.

    Later calls do nothing: they would freeze objects of each task, and those in reference cycles
    would never be collected.
    """
    gc.collect()
    gc.freeze()

"""Shortens what PySpark does before and after each task in a Python process that it uses again.

*Before*: ``importlib.invalidate_caches``. Spark puts ``pyspark.zip`` and the jar of its core on
Python's path, and Python keeps a finder for each archive, and for each folder of one that it looked
for modules in, in ``sys.path_importer_cache``. Before Python 3.13 every such finder then reads its
archive's directory anew (python/cpython#103200): 70 to 90 ms a task. Without finders there is
nothing to read, and the next import makes one again, from the directory that ``zipimport`` has in
memory.

*After*: ``gc.collect``, which takes 25 ms or more, as it visits all objects of all modules, unless
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
    """A function of a part's rows, which isn't unpickled for a part without any.

    Its modules, whose import takes a new process as long as some 100,000 rows, come with it. A file
    of one row group, as of any pandas or pyarrow, gives rows to one part of several.

    Attributes:
        run: The pickled function.
        added_files: Returns the folder of ``prepare_reuse``.
    """

    run: bytes
    added_files: Callable[[], str]

    def __call__(self, given: Iterator[Any]) -> Iterator[Any]:
        """Run it, and leave the process so that its next task begins without delay."""
        return prepare_reuse(self._made(iter(given)), self.added_files())

    def _made(self, given: Iterator[Any]) -> Iterator[Any]:
        for first in given:
            run = pickle.loads(self.run)  # noqa: S301 - the driver's, as PySpark's own
            yield from run(chain([first], given))


def prepare_reuse(rows: Iterator[T], added_files: str) -> Iterator[T]:
    """Yield what a task yields, and then forget finders and freeze modules.

    Args:
        rows: What the task yields.
        added_files: See ``forget_finders``.
    """
    try:
        yield from rows
    finally:
        forget_finders(added_files)
        freeze_modules()


def forget_finders(added_files: str) -> None:
    """Forget the finders of all archives, except those that may be replaced while Spark runs.

    Modules that are loaded stay, and others can still be imported.

    Args:
        added_files: Folder of the files of ``SparkContext.addPyFile``, whose finders stay.
    """
    folder = Path(added_files)
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and folder not in Path(path).parents:
            sys.path_importer_cache.pop(path, None)


@cache
def freeze_modules() -> None:
    """Exempt all objects from garbage collection that exist at the first call.

    Later calls do nothing: objects of each task would be frozen, and never be collected if they
    refer to each other.
    """
    gc.collect()
    gc.freeze()

"""Classifies a Spark task's failure: a Strandline error, a missing module, a lost worker."""

from __future__ import annotations

import re
from typing import Any, Final

from timeline import errors
from timeline.errors import ConfigError, StrandlineError, TaskFailedError

_ABORTED: Final = "Job aborted due to stage failure: "
_GIVEN_UP: Final = re.compile(
    rf"{_ABORTED}(?P<failed>Task \d+ in (?P<stage>stage [\d.]+) failed \d+ times), most recent"
    r" failure: Lost task [^\n]*?: (?P<cause>[^\n]*)"
)
"""Spark's message for a stage that it gave up: its task, the stage, the last cause."""
_ROWS_LOST: Final = re.compile(
    rf"{_ABORTED}(?:ShuffleMap|Result)(?P<stage>Stage \d+) \([^\n]*\) has (?P<failed>failed the"
    r" maximum allowable number of times: \d+)\. Most recent failure reason:\s*(?P<cause>[^\n]*)"
)
"""The same for a stage whose input rows were lost with their executors."""
_ENDED: Final = re.compile(r"Python worker|ExecutorLostFailure")
"""Causes that state that a process has ended."""
_CUT: Final = re.compile(r"java\.(net\.SocketException|io\.(EOF|IO)Exception)\b")
"""Causes that mean a lost connection, if Spark was talking to a Python worker."""
_TALKING: Final = re.compile(r"\bat org\.apache\.spark\.(api|sql\.execution)\.python\.")


def own_error(failure: Exception) -> StrandlineError | None:
    """Return the Strandline error that made a task fail; ``None`` if it was another error.

    An exception of a Python worker reaches the driver as the text of its traceback, whose last line
    is ``timeline.errors.<class>: <message>``.
    """
    found = re.findall(r"^timeline\.errors\.(\w+): (.*)$", str(failure), re.MULTILINE)
    if not found:
        return None
    kind: Any = getattr(errors, found[-1][0], None)
    if not (isinstance(kind, type) and issubclass(kind, StrandlineError)):
        return None
    return kind(found[-1][1])


def import_error(failure: Exception) -> ConfigError | None:
    """Return the error for a task that can't import a module; ``None`` for other failures.

    Spark unpickles a task in the executor's Python, which imports the modules of its classes.
    """
    found = re.findall(
        r"^(?:\w+\.)*(?:ModuleNotFoundError|\w*ImportError): (.*)$", str(failure), re.MULTILINE
    )
    if not found:
        return None
    return ConfigError(
        f"a task can't import what it needs: {found[-1]}",
        hint="install it in the Python that PYSPARK_PYTHON names on the executors, or ship it by"
        " SparkContext.addPyFile",
    )


def lost_worker(failure: Exception) -> TaskFailedError | None:
    """Return the error for a stage whose Python workers or executors ended; ``None`` otherwise.

    Spark tries such a task again, on any executor, up to ``spark.task.maxFailures`` times, and a
    stage whose input was lost with executors up to ``spark.stage.maxConsecutiveAttempts`` times.
    """
    text = str(failure)
    found = _GIVEN_UP.search(text)
    if found is not None and not _is_lost(found["cause"], text):
        return None
    found = found or _ROWS_LOST.search(text)
    if found is None:
        return None
    cause = found["cause"].removeprefix("org.apache.spark.SparkException: ").strip()
    return TaskFailedError(
        f"Spark gave up {found['stage'].lower()} of this write, and nothing was committed:"
        f" {found['failed']}, at last by: {cause}",
        hint="workers are killed where memory is short: give executors more memory overhead, or"
        " rows more partitions, and repeat the write",
    )


def _is_lost(cause: str, text: str) -> bool:
    """Whether a task's last failure was the end of its process."""
    return bool(_ENDED.search(cause) or (_CUT.match(cause) and _TALKING.search(text)))

"""What the failure of a Spark task means: a Strandline error, a missing module, a lost worker."""

from __future__ import annotations

import re
from typing import Any, Final

from timeline import errors
from timeline.errors import ConfigError, StrandlineError, TaskFailedError

_GIVEN_UP: Final = re.compile(
    r"Job aborted due to stage failure: (Task \d+ in (stage [\d.]+) failed \d+ times), most recent"
    r" failure: Lost task [^\n]*?: ([^\n]*)"
)
"""A stage that Spark has given up: what failed, the stage, the last cause."""
_ENDED: Final = re.compile(r"Python worker|ExecutorLostFailure")
"""Causes that say themselves that a process has ended."""
_CUT: Final = re.compile(r"java\.(net\.SocketException|io\.(EOF|IO)Exception)\b")
"""Causes in which its connection did, if Spark was talking to a Python worker."""
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
    """Return the error for a task that failed as it can't import a module; ``None`` otherwise.

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
    """Return the error for a task whose Python worker or executor ended; ``None`` otherwise.

    Spark tries such a task again, on any executor, up to ``spark.task.maxFailures`` times.
    """
    text = str(failure)
    found = _GIVEN_UP.search(text)
    if found is None:
        return None
    failed, stage, cause = found.groups()
    if not (_ENDED.search(cause) or (_CUT.match(cause) and _TALKING.search(text))):
        return None
    return TaskFailedError(
        f"Spark gave up {stage} of this write, and nothing was committed: {failed}, at last by:"
        f" {cause.removeprefix('org.apache.spark.SparkException: ').strip()}",
        hint="workers are killed where memory is short: give executors more memory overhead, or"
        " rows more partitions, and repeat the write",
    )

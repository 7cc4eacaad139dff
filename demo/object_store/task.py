"""What a task of a job does: asks for the files of some partitions, and times that.

Each task is a fresh Python worker that imports this module, so it imports what a task needs alone.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from executor_proxy.report import LookupReport
from executor_proxy.view_location import ViewLocation
from fsview.model.file_system_view import LookupQuery

_DRIVER: Final = "s3fs"


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """What one task was answered, and what it waited for.

    Attributes:
        pid: Of its Python process.
        driver_s: Seconds in which it loaded the S3 driver, before it asked; 0 with a service.
        waited_s: Seconds until the answer.
        calls: Storage calls that it counted itself.
        lists: Those of them that list a folder.
        files: Number of files in the answer.
        digest: SHA-256 of their paths.
        fallbacks: Reason of each view that stopped using the service.
    """

    pid: int
    driver_s: float
    waited_s: float
    calls: int
    files: int
    digest: str
    fallbacks: tuple[str, ...] = ()
    lists: int = 0

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TaskAnswer:
        """Return the answer of ``dataclasses.asdict``."""
        return cls(**dict(values) | {"fallbacks": tuple(values["fallbacks"])})


def ask(where: ViewLocation, partitions: Sequence[str]) -> TaskAnswer:
    """Ask for the newest base files of some partitions, in a task."""
    begin = time.perf_counter()
    if not where.urls:
        # Apart from what is waited for: a task that then reads would load it in any case.
        importlib.import_module(_DRIVER)
    loaded, report = time.perf_counter(), LookupReport()
    with closing(where.open(report)) as view:
        (found,) = view.look_up([LookupQuery("latest_base_files", tuple(partitions))])
    waited_s = time.perf_counter() - loaded
    calls = report.storage_calls()
    paths = sorted(file.path for files in found for file in files)
    return TaskAnswer(
        pid=os.getpid(),
        driver_s=loaded - begin,
        waited_s=waited_s,
        calls=sum(calls.values()),
        lists=sum(count for (kind, _), count in calls.items() if kind == "list"),
        files=len(paths),
        digest=hashlib.sha256("\n".join(paths).encode()).hexdigest(),
        fallbacks=tuple(fallback.reason for fallback in report.fallbacks),
    )

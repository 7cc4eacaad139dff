"""Strandline: a timeline service and a PySpark writer for tables in Apache Hudi's format.

The classes are imported on first access: importing ``strandline`` loads neither Flask nor
pyspark, so that executors can import its tasks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline.version import __version__

if TYPE_CHECKING:
    from strandline.server.process.timeline_service import TimelineService
    from strandline.table_api.table import Table
    from strandline.write.client import WriteClient
    from strandline.write.engine.local import LocalEngine

__all__ = ["LocalEngine", "Table", "TimelineService", "WriteClient", "__version__"]

_HOMES = {
    "LocalEngine": "strandline.write.engine.local",
    "Table": "strandline.table_api.table",
    "TimelineService": "strandline.server.process.timeline_service",
    "WriteClient": "strandline.write.client",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The file-system view of an executor: the timeline service first, listing storage as fallback.

Executors import this package and those below it, so it depends on nothing but the standard library,
pyarrow, numpy and fsspec.
"""

from executor_proxy.connection import Timeouts
from executor_proxy.locate import ViewLocation, connect
from executor_proxy.report import LookupReport
from executor_proxy.service import Patience

__all__ = ["LookupReport", "Patience", "Timeouts", "ViewLocation", "connect"]

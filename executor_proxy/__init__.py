"""The file-system view of an executor: the timeline service first, listing storage as fallback.

Executors import this package and those below it, so it depends on nothing but the standard library,
pyarrow, numpy and fsspec.
"""

from executor_proxy.exchange import Timeouts
from executor_proxy.failover import Patience
from executor_proxy.report import LookupReport
from executor_proxy.view_location import ViewLocation, connect

__all__ = ["LookupReport", "Patience", "Timeouts", "ViewLocation", "connect"]

"""The file-system view as an executor asks for it: remote, with a local fallback."""

from executor_proxy.locate import ViewLocation, connect
from executor_proxy.report import LookupReport

__all__ = ["LookupReport", "ViewLocation", "connect"]

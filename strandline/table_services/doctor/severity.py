"""``Severity``: how bad a finding of the doctor is."""

from __future__ import annotations

from enum import Enum


class Severity(str, Enum):
    """How bad a finding is; members are in ascending order."""

    INFO = "info"
    """Nothing to do."""
    WARNING = "warning"
    """Readers get right rows; it costs space or time, or will do harm later."""
    ERROR = "error"
    """Readers or writers fail, or rows are wrong or missing."""

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for error."""
        return [*Severity].index(self)

"""``DriverLimits``: the largest batch that the driver writes itself."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.settings.setting import Settings
from strandline.write.options import settings


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """What the driver writes itself at most.

    Attributes:
        rows: Rows of the batch; 0: the executors write every batch.
        bytes: Size of the batch in memory.
        rewrite_bytes: Total size of the stored files that are to be rewritten.
    """

    rows: int = 0
    bytes: int = 0
    rewrite_bytes: int = 0

    @classmethod
    def of(cls, values: Settings) -> DriverLimits:
        """Read the limits from settings."""
        return cls(
            values.get(settings.DRIVER_MAX_ROWS),
            values.get(settings.DRIVER_MAX_BYTES),
            values.get(settings.DRIVER_MAX_REWRITE),
        )

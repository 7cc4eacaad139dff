"""``DriverLimits``: the largest batch that the driver writes itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.settings.setting import Settings
from strandline.write.engine.base import RESULT_BYTES
from strandline.write.options import settings

UNMATCHED: Final = 10
"""Factor by which the driver writes more rows in the same time if it looks up no keys."""
_ESTIMATE: Final = 2 << 20
_UNMATCHED_ESTIMATE: Final = 10 << 20
"""Spark's default limit, in estimated bytes, for a join side that the driver broadcasts."""


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """The largest batch that the driver writes itself.

    Attributes:
        rows: Rows of the batch; 0: the executors write every batch.
        bytes: Size of the batch in memory.
        rewrite_bytes: Total size of the stored files that must be rewritten.
        estimated_bytes: An engine's estimate of the size of a batch that it may send to the driver
            before it knows the rows. It may be wrong, as files are compressed.
        result_bytes: As in ``EngineContext.result_bytes``.
    """

    rows: int = 0
    bytes: int = 0
    rewrite_bytes: int = 0
    estimated_bytes: int = 0
    result_bytes: int = RESULT_BYTES

    @classmethod
    def of(cls, values: Settings, *, matches: bool, result_bytes: int) -> DriverLimits:
        """Read the limits from settings.

        Args:
            values: The client's settings.
            matches: Whether the keys of the batch are looked up.
            result_bytes: The engine's limit.
        """
        most = values.get(settings.DRIVER_MAX_BYTES)
        return cls(
            values.get(settings.DRIVER_MAX_ROWS) * (1 if matches else UNMATCHED),
            most,
            values.get(settings.DRIVER_MAX_REWRITE),
            min(most, _ESTIMATE if matches else _UNMATCHED_ESTIMATE),
            result_bytes,
        )

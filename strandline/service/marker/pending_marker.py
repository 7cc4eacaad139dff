"""``PendingMarker``: a marker that waits for its flush, and who waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Created(Protocol):
    """Who waits for a marker, such as a ``concurrent.futures.Future``; told once, by any thread."""

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the marker is still wanted."""

    def set_result(self, result: bool, /) -> None:
        """Hear that the marker is new, or that it isn't."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Hear why there is no marker."""


@dataclass(frozen=True, slots=True)
class PendingMarker:
    """A marker that waits for its flush, and who waits for it.

    Attributes:
        refusable: Whether who waits takes ``false`` for a conflict.
        clustering: The instant of another write's log that it names, which must be a clustering
            beside this one; ``None``: it names a file of its own.
    """

    name: str
    created: Created
    refusable: bool
    clustering: str | None = None

"""``PendingMarker``: a marker that waits for its flush, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Check = Callable[[], None]
"""Raises when a marker may not be written; may ask the table's storage."""


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
        check: Is asked by the flush; ``None``: the name was enough.
    """

    name: str
    created: Created
    refusable: bool
    check: Check | None = None

    def admitted(self) -> bool:
        """Return whether the marker may be written; who waits for one that may not hears why."""
        if self.check is None:
            return True
        try:
            self.check()
        except Exception as exc:  # noqa: BLE001 - handed to the waiting request
            self.created.set_exception(exc)
            return False
        return True

"""What other servers that share a table's store have recorded: read, and shown; without a lock.

``TableState`` has the lock. ``fsview.state.adoption`` has what is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fsview.state.adoption import Adopted, Told, adopted
from fsview.state.held_table import HeldTable
from timeline.completion import CompletionTimes
from timeline.errors import StoreBehindError, StrandlineError
from timeline.timeline import Timeline

_DAMAGED: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What rows may raise that aren't as this release writes them."""


def told(table: HeldTable, *, whole: bool) -> Told | None:
    """Return what other servers that share the store have recorded since.

    ``None`` if that is nothing, or if it doesn't follow from the history.

    Args:
        table: What is held.
        whole: Whether the record is to be read whole in that case, and the history given up.

    Raises:
        StoreError: It can't be read.
    """
    record = table.shared
    if record is None:
        return None
    if not table.status.goes_on or table.current.value is None:
        return None
    try:
        changes = record.changes()
        return None if changes is None else record.told(changes, table.history.newest)
    except (StoreBehindError, *_DAMAGED) as exc:
        if whole:
            table.fall_behind(exc)
        return None


def adopt(
    table: HeldTable, told: Told, completion: Callable[[Timeline], CompletionTimes], *, whole: bool
) -> Adopted | None:
    """Show the snapshots that others have recorded; ``None`` if that isn't possible.

    Args:
        table: What is held, from which they follow.
        told: What ``told`` returned.
        completion: Completion times seen from an active timeline.
        whole: As for ``told``.
    """
    record = table.shared
    if record is None or not table.status.goes_on:
        return None
    if not record.is_next(told.changes):  # another thread has adopted it
        return None
    try:
        found = adopted(
            table.history,
            told,
            completion,
            unfinished=record.unfinished,
            kept=table.current.most_links,
            chunk_at=table.store.chunk,
        )
    except (StrandlineError, *_DAMAGED) as exc:
        if whole:
            table.fall_behind(exc)
        return None
    newest = found.history.newest
    newest.files.versions, newest.files.known = found.files.versions, found.files.known
    record.adopt(told, newest, found.unshown)
    table.current.show(found.history)
    record.keep(*found.versions)
    return found

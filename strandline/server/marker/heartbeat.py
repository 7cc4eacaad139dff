"""Heartbeats of writers, which show which writes are still under way.

A Hudi writer touches ``<base>/.hoodie/.heartbeat/<instant>`` while it lives, and deletes the file
when it is done. Only the file's modification time counts; Strandline's writers also note in it that
they have failed (``strandline.commit.own_heartbeat``).

Source: Hudi 1.2.0 ``HoodieHeartbeatClient``, ``HoodieHeartbeatUtils``.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from timeline.errors import CorruptMetadataError, StorageError
from timeline.storage.base import FileKind, Storage

HEARTBEAT_FOLDER: Final = ".hoodie/.heartbeat"
ENDED: Final = "ended"
"""Member of a heartbeat's JSON that is true once the writer has failed."""
LATE: Final = "late"
"""Member that is true if files of a failed writer may still appear until its heartbeat expires."""


def alive(
    storage: Storage, instants: Collection[str], now_ms: int, max_age_ms: float
) -> tuple[str, ...]:
    """Return the instants with a fresh heartbeat, in the given order.

    A heartbeat may be as far in the future as in the past: the storage's clock and ours differ, and
    a clock that was set back must not keep a dead writer alive forever.

    Cost: one list call, none without instants.
    """
    if not instants:
        return ()
    beats = {info.name: info.mtime_ms for info in storage.list(HEARTBEAT_FOLDER)}
    return tuple(i for i in instants if i in beats and abs(now_ms - beats[i]) <= max_age_ms)


def has_ended(storage: Storage, instant: str) -> bool:
    """Return whether a writer of Strandline has recorded that it failed. Cost: one read."""
    try:
        content = json.loads(storage.read(f"{HEARTBEAT_FOLDER}/{instant}", FileKind.PROPERTIES))
    except (ValueError, RecursionError, StorageError, CorruptMetadataError):
        return False  # Hudi's are empty
    return isinstance(content, dict) and content.get(ENDED) is True

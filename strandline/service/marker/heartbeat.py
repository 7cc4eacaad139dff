"""Heartbeats of writers: whose write is still under way.

A Hudi writer touches ``<base>/.hoodie/.heartbeat/<instant>`` as long as it lives, and deletes the
file when it is done. All that counts is when the file was modified.

Source: Hudi 1.2.0 ``HoodieHeartbeatClient``, ``HoodieHeartbeatUtils``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from timeline.storage.base import Storage

HEARTBEAT_FOLDER: Final = ".hoodie/.heartbeat"


def alive(
    storage: Storage, instants: Collection[str], now_ms: int, max_age_ms: float
) -> tuple[str, ...]:
    """Return those instants whose writer has shown itself of late, in their order.

    A heartbeat from the future counts as long as it is no further away than an old one may be: the
    storage's clock and ours differ, and a clock that was set back proves no life for ever.

    Args:
        storage: The table's.
        instants: Their requested times.
        now_ms: The time, milliseconds since the epoch.
        max_age_ms: How old a heartbeat may be.

    Cost: one list call if there are instants.
    """
    if not instants:
        return ()
    beats = {info.name: info.mtime_ms for info in storage.list(HEARTBEAT_FOLDER)}
    return tuple(i for i in instants if i in beats and abs(now_ms - beats[i]) <= max_age_ms)

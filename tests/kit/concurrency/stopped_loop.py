"""``StoppedLoop``: an event loop whose time is set by hand."""

from __future__ import annotations

import asyncio


class StoppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is set by ``at``, in seconds."""

    at = 1000.0

    def time(self) -> float:
        return self.at

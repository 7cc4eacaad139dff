"""``StoppedLoop``: an event loop whose time is set by hand."""

from __future__ import annotations

import asyncio


class StoppedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands where it is set, in seconds."""

    at = 1000.0

    def time(self) -> float:
        return self.at

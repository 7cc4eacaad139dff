"""``LeaderUpkeep``: garbage collection in the databases of views, by the first of each group.

``fsview.store.sql.upkeep`` defines what is deleted. The other servers delete nothing.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from fsview.store.sql.upkeep import Upkeep
from strandline.fleet.current import CurrentFleet

logger = logging.getLogger(__name__)

PAUSE_S: Final = 10.0
"""Between two passes over all tables, of some milliseconds each."""


class LeaderUpkeep:
    """A thread; ``status`` is for any other.

    Args:
        current: The fleet.
        upkeep: Deletes.
        pause_s: Seconds between two passes.
    """

    def __init__(self, current: CurrentFleet, upkeep: Upkeep, pause_s: float = PAUSE_S) -> None:
        self._current, self._upkeep = current, upkeep
        self._pause_s = pause_s
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin; to be called once."""
        # Not joined: the database may hang.
        threading.Thread(target=self._run, name="strandline-upkeep", daemon=True).start()

    def stop(self) -> None:
        """End after the transaction that is under way; may be repeated."""
        self._stopped.set()
        self._upkeep.stop()

    def status(self) -> dict[str, Any]:
        """Return whether this server leads, and what it has deleted, in a form for JSON."""
        return {"leads": self._current.leads, "deleted": self._upkeep.deleted}

    def _run(self) -> None:
        while not self._stopped.wait(self._pause_s):
            if not self._current.leads:
                continue
            try:
                self._upkeep.run(lambda: self._current.leads)
            except Exception:
                # Garbage only takes room; the next pass may succeed.
                logger.exception("garbage collection in the databases of views failed")

"""``SqliteState``: the state store of servers on one machine, in an SQLite file.

``StateFile`` lets one transaction write at a time. A thread that compares keys finds the changes of
other processes within ``POLL_S``, and those of this one at once.

Leases end by the machine's monotonic clock, which all its processes share. So setting the wall
clock moves nothing, and while the machine is suspended neither leases nor their holders get older.
A restart sets it to zero: a lease whose renewal lies ahead is of an earlier run, and has ended; one
may also look alive by chance, but not for longer than its time to live. Processes in time
namespaces of their own, and other machines, have other clocks: they must not share a file.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from strandline.fleet.state.sql import Looking, SqlState
from strandline.fleet.state.sqlite_file import FileLooks, StateFile
from strandline.fleet.state.watches import Poller, Watches
from timeline.clock import Clock, SystemClock

POLL_S: Final = 0.1
BUSY_S: Final = 5.0


class SqliteState(SqlState):
    """A client; see ``SqlState``.

    Args:
        path: The file, made if it isn't there; one for each fleet.
        clock: Its monotonic time must be that of all processes of the machine.
        poll_s: Seconds between two looks for changes of other processes.
        busy_s: How long a transaction waits for those of others.
        make: Whether a state store is made where there is none.

    Raises:
        ConfigError: The file can't be opened, isn't a state store, or has another schema.
        StateUnavailableError: Other processes keep it locked.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock | None = None,
        poll_s: float = POLL_S,
        busy_s: float = BUSY_S,
        *,
        make: bool = True,
    ) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._poll_s = poll_s
        self._busy_s = busy_s
        super().__init__(StateFile(path, self._now_ms, busy_s, make=make))

    def _look_for(self, watches: Watches) -> Looking:
        with ExitStack() as unless_begun:
            looks = FileLooks(self._path, self._now_ms, self._busy_s)
            unless_begun.callback(looks.close)
            poller = Poller(looks.look, watches, self._poll_s, str(self._path))
            unless_begun.callback(poller.stop)
            return Looking(poller, unless_begun.pop_all().close)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

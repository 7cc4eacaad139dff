"""``TableLoads``: the CPU that requests for each table took, as the peak of five minutes.

Plans of moves between groups of servers use it (``strandline.fleet.planning.plan``). A table's CPU
time so far is the measured one of the threads that compute its answers, and for each of its ready
answers the mean of ``benchmarks.view``: to measure them would take as long as they do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

WINDOW_S: Final = 300.0
"""Peaks are of this time, as the paper's (DH-HDFS, section 5)."""
READY_CPU_S: Final = 53e-6
"""CPU seconds of an answer that is ready, with its request."""
_STEP_S: Final = 10.0
"""Least time between two samples that are kept."""


class TableLoads:
    """CPU seconds a second by table, over the last ``WINDOW_S`` and at their peak.

    ``_lock`` guards the samples and the peaks. A table that is missing in a sample was closed. Its
    peak is forgotten, so it starts at zero if the table is opened again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, Mapping[str, float]]] = deque()
        self._peaks: dict[str, float] = {}
        self._now: dict[str, float] = {}

    def note(self, now_s: float, cpu_s: Mapping[str, float]) -> None:
        """Take a sample.

        Args:
            now_s: A time that never goes back.
            cpu_s: Table → CPU seconds that its requests took so far; less than before means that
                it was closed meanwhile.
        """
        with self._lock:
            samples = self._samples
            if samples and now_s - samples[-1][0] < _STEP_S:
                return
            # One that is older stays, so that the first is at least as old as the window.
            while len(samples) > 1 and now_s - samples[1][0] >= WINDOW_S:
                samples.popleft()
            began_s, before = samples[0] if samples else (now_s, {})
            window_s = max(now_s - began_s, WINDOW_S)
            samples.append((now_s, dict(cpu_s)))
            self._now = {
                # The counter of a table that was closed meanwhile began at zero again.
                table: (total - (had if had <= total else 0.0)) / window_s
                for table, total in cpu_s.items()
                for had in [before.get(table, 0.0)]
            }
            self._peaks = {
                table: max(load, self._peaks.get(table, 0.0)) for table, load in self._now.items()
            }

    def figures(self, table: str) -> dict[str, Any]:
        """Return a table's load now and at its peak, in CPU seconds a second."""
        with self._lock:
            return {
                "cpu": round(self._now.get(table, 0.0), 6),
                "peak_cpu": round(self._peaks.get(table, 0.0), 6),
            }

"""``Timed``: a solver of plans that notes how long it takes."""

from __future__ import annotations

import time
from statistics import median

from strandline.fleet.planning.placement import Placement, Weights
from strandline.fleet.planning.plan import Answer, Solver


class Timed:
    """A solver.

    Attributes:
        took_s: CPU seconds of each program, in order; wall time depends on other work.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self.took_s: list[float] = []

    def __call__(self, placement: Placement, weights: Weights) -> Answer:
        began = time.process_time()
        found = self._solver(placement, weights)
        self.took_s.append(time.process_time() - began)
        return found

    def text(self) -> str:
        """Return a line with what was measured."""
        took = [1000 * each for each in self.took_s]
        fast = sum(each < 100 for each in took)
        return (
            f"solver: {len(took)} programs, {fast} of them in less than 100 ms of CPU (the paper's"
            f" take less than 100 ms); median {median(took):.0f} ms, longest {max(took):.0f} ms"
        )

"""The random walks that real Hudi takes, and a run of one of them, watched.

python -m tests.oracle.walks RELEASE FOLDER     all walks of a release, a table each in FOLDER
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.kit.hudi import HUDI, HUDI_0, Hudi, hudi_session
from tests.kit.java_view import JavaView
from tests.kit.random_walk import (
    BUCKETS,
    CHANGE_DATA,
    COPY_ON_WRITE,
    MERGE_ON_READ,
    Walk,
    Walker,
)
from tests.kit.watcher import Watcher
from timeline.errors import StrandlineError

WALKS: Final = {
    HUDI: (
        Walk("copy on write, version 6, change data", 61, 34, 6, COPY_ON_WRITE, CHANGE_DATA),
        Walk("copy on write, version 9, change data", 95, 34, 9, COPY_ON_WRITE, CHANGE_DATA),
        Walk("merge on read, version 6", 67, 34, 6, MERGE_ON_READ),
        Walk("merge on read, version 9", 98, 34, 9, MERGE_ON_READ),
        Walk("merge on read, version 6, buckets", 64, 34, 6, MERGE_ON_READ, BUCKETS),
        Walk("merge on read, version 9, buckets", 93, 34, 9, MERGE_ON_READ, BUCKETS | CHANGE_DATA),
    ),
    HUDI_0: (
        Walk("copy on write", 6, 24, 6, COPY_ON_WRITE),
        Walk("merge on read", 4, 24, 6, MERGE_ON_READ),
    ),
}
"""Release → its walks; together they are more than 200 steps."""

MOVING: Final = Walk(
    "upgraded and downgraded", 1, 16, 6, MERGE_ON_READ, moves={4: 8, 7: 9, 10: 8, 13: 6}
)
"""A table that changes its version while it is watched."""

REFUSED: Final = 0.2
"""The share of steps that Hudi may refuse, else a walk goes nowhere."""

ANSWERED: Final = 0.75
"""The share of questions of clients that are behind that must be answered."""


class StrayedError(AssertionError):
    """Our view isn't as Hudi's; says the walk, its seed, the step, what was done, what differs."""


def take(hudi: Hudi, walk: Walk, path: Path) -> tuple[Watcher, Counter[str]]:
    """Take a walk, watched at every step; return the watcher, and what was done how often.

    Raises:
        StrayedError: Something differs.
    """
    started = time.monotonic()
    walker = Walker(hudi, path, walk)
    watcher = Watcher(
        JavaView(hudi, str(path)),
        path,
        random.Random(walk.seed),
        is_1=hudi.is_1,
        moves=bool(walk.moves),
    )
    trail = []
    for number in range(walk.steps):
        trail.append(walker.step(number))
        try:
            differing = watcher.check(number)
        except StrandlineError as error:
            raise StrayedError(_told(walk, trail, [repr(error)])) from error
        if differing:
            raise StrayedError(_told(walk, trail, differing))
    differing = watcher.ask_again()
    if differing:
        raise StrayedError(_told(walk, [*trail, "all clients come back"], differing))
    refused = sum(n for n, _ in walker.refused.values())
    assert refused <= REFUSED * walk.steps, walker.refused
    sys.stdout.write(
        f"{walk.name}: {walk.steps} steps, {refused} refused by Hudi, clients that were behind "
        f"{dict(watcher.outcome)}, {dict(watcher.reloads)} loaded anew, "
        f"{time.monotonic() - started:.0f} s; {dict(walker.done)}\n"
    )
    return watcher, walker.done


def _told(walk: Walk, trail: list[str], differing: list[str]) -> str:
    lines = [
        f"{walk.name}, seed {walk.seed}, step {len(trail) - 1}: after {trail[-1]!r:.500}",
        *(f"  {one}" for one in differing[:5]),
        f"  and {len(differing) - 5} more" if len(differing) > 5 else "",
        f"  before: {', '.join(one.partition(':')[0] for one in trail[:-1])}",
    ]
    return "\n".join(lines)


def main(release: str, folder: str) -> None:
    """Take all walks of a release."""
    with hudi_session(Path(folder) / "warehouse", release) as hudi:
        for walk in WALKS[release]:
            watcher, _ = take(hudi, walk, Path(folder) / str(walk.seed))
            assert watcher.share > ANSWERED, watcher.outcome


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A run of one random walk of real Hudi, watched.

python -m tests.oracle.view.taking RELEASE FOLDER     all walks of a release, a table each in FOLDER
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from pathlib import Path

from tests.oracle.hudi import Hudi, hudi_session
from tests.oracle.view.java_view import JavaView
from tests.oracle.view.random_walk import Walker
from tests.oracle.view.walk import Walk
from tests.oracle.view.walks import ANSWERED, REFUSED, WALKS
from tests.oracle.view.watcher import Watcher
from timeline.errors import StrandlineError


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

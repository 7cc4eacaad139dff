"""A run of a walk in turns, checked after each step.

python -m tests.oracle.turns.taking RELEASE FOLDER [TIMES [SEED [NAME]]]

takes all walks of a release, or the one with this name, each as often as ``TIMES`` says; ``SEED``
replaces their own. The tables stay in ``FOLDER``. The last line counts what was done.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.oracle.hudi import Hudi, hudi_session
from tests.oracle.turns.checks import Readers
from tests.oracle.turns.table_form import OURS, THEIRS, Walk
from tests.oracle.turns.walker import Walker
from tests.oracle.turns.walks import WALKS

SHOWN = 6000
"""Characters of an error that are told."""
FEWEST = 12
"""At least one step in so many is a commit of ours, and one is Hudi's."""


class StrayedError(AssertionError):
    """The table isn't as the model; says the walk, its seed, and all that was done."""


def take(hudi: Hudi, walk: Walk, path: Path, report: Callable[[str], None]) -> Counter[str]:
    """Take a walk; return what was done how often.

    Raises:
        StrayedError: Something differs, or failed.
    """
    started = time.monotonic()
    assert not path.exists(), f"{path} has a table of another run"
    walker, readers = Walker(hudi, path, walk), Readers(hudi, path, walk)
    trail: list[str] = []
    with closing(walker.ours):
        for number in range(walk.steps):
            differing = _step(walker, readers, trail, number)
            if differing:
                raise StrayedError(_told(walk, trail, differing))
    assert min(walker.commits[OURS], walker.commits[THEIRS]) * FEWEST >= walk.steps, walker.commits
    report(
        f"{walk.name}, seed {walk.seed}: {walk.steps} steps in {time.monotonic() - started:.0f} s,"
        f" commits {dict(walker.commits)}, rows left {len(walker.model.rows)}"
    )
    return walker.done


def _step(walker: Walker, readers: Readers, trail: list[str], number: int) -> list[str]:
    """Do a step, add it to the trail, and return what differs or failed, in words."""
    trail.append("?")
    try:
        trail[-1] = walker.step(number)
        return list(readers.differing(number, walker.model.rows))
    except Exception:  # whatever it is, the trail must be told
        trail[-1] += f" {walker.doing}"
        return [traceback.format_exc()[-SHOWN:]]


def _told(walk: Walk, trail: list[str], differing: list[str]) -> str:
    return "\n".join(
        [
            f"{walk.name}, seed {walk.seed}, {walk.form}:",
            *(f"  {number:2} {one}" for number, one in enumerate(trail)),
            *(f"  ! {one}" for one in differing),
        ]
    )


def take_all(
    hudi: Hudi, walks: Iterable[Walk], folder: Path, times: int, report: Callable[[str], None]
) -> Counter[str]:
    """Take walks several times, with other seeds each time; return what was done how often."""
    total: Counter[str] = Counter()
    for walk in walks:
        for number in range(times):
            seeded = replace(walk, seed=walk.seed + 1000 * number)
            total += take(hudi, seeded, folder / f"{walk.name} {seeded.seed}", report)
    return total


def main(release: str, folder: str, times: str = "1", seed: str = "", name: str = "") -> None:
    """Take the walks of a release."""
    walks = [walk for walk in WALKS[release] if name in ("", walk.name)]
    if seed:
        walks = [replace(walk, seed=int(seed)) for walk in walks]
    with hudi_session(Path(folder) / "warehouse", release) as hudi:
        done = take_all(hudi, walks, Path(folder), int(times), _say)
    _say(json.dumps(done))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A run of one random walk of real Hudi, with both readers' rows compared after each step.

python -m tests.oracle.rows.taking RELEASE FOLDER [SEED [NAME]]

takes all walks of a release, or the one of this name; ``SEED`` replaces their own. The tables stay
in ``FOLDER``.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.oracle.hudi import Hudi, hudi_session
from tests.oracle.rows.reads import Reads
from tests.oracle.rows.row_walker import RowWalker
from tests.oracle.rows.walks import ANSWERED, REFUSED, WALKS, RowsWalk

EVERY: Final = 3
"""One earlier time, and one range, are read after every so many steps."""
_SHOWN: Final = 6000
"""Characters of an error that are told."""


class StrayedError(AssertionError):
    """Rows differ; says the walk, its seed, the step, what was done, what differs."""


def take(hudi: Hudi, walk: RowsWalk, path: Path) -> tuple[Counter[str], Reads]:
    """Take a walk; return what was done how often, and what was read.

    Raises:
        StrayedError: Rows differ, or can't be read.
    """
    started = time.monotonic()
    walker = RowWalker(hudi, path, walk)
    reads = Reads(hudi, path, walk.version, random.Random(walk.seed))
    trail: list[str] = []
    for number in range(walk.steps):
        trail.append(walker.step(number))
        try:
            differing = list(_differing(reads, walk, number))
        except Exception as error:  # whatever it is, the trail must be told
            raise StrayedError(_told(walk, trail, [traceback.format_exc()[-_SHOWN:]])) from error
        if differing:
            raise StrayedError(_told(walk, trail, differing))
    refused = sum(n for n, _ in walker.refused.values())
    assert refused <= REFUSED * walk.steps, walker.refused
    sys.stdout.write(
        f"{walk.name}: {walk.steps} steps, {refused} refused by Hudi, answered"
        f" {dict(reads.answered)} of {dict(reads.asked)}, {time.monotonic() - started:.0f} s;"
        f" {dict(walker.done)}\n"
    )
    sys.stdout.flush()
    return walker.done, reads


def take_all(hudi: Hudi, walks: tuple[RowsWalk, ...], folder: Path) -> Counter[str]:
    """Take walks; return what was done how often.

    Raises:
        StrayedError: As ``take``.
    """
    done: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for walk in walks:
        # Without blanks, by which Hudi 1.2.0 doesn't find a table that SQL names.
        did, reads = take(hudi, walk, folder / f"{walk.name} {walk.seed}".replace(" ", "_"))
        done += did
        asked += reads.asked
        answered += reads.answered
    assert all(answered[kind] >= ANSWERED * asked[kind] for kind in asked), (answered, asked)
    return done


def _differing(reads: Reads, walk: RowsWalk, number: int) -> Iterator[str]:
    yield from reads.newest()
    # Of a partial update whose row is outside of the range Hudi's reader shows foreign memory.
    if number % EVERY == 1 and not walk.has_partial_updates:
        yield from reads.range()
    if number % EVERY == 2:
        yield from reads.earlier()


def _told(walk: RowsWalk, trail: list[str], differing: list[str]) -> str:
    return "\n".join(
        [
            f"{walk.name}, seed {walk.seed}:",
            *(f"  {number:2} {one:.300}" for number, one in enumerate(trail)),
            *(f"  ! {one}" for one in differing),
        ]
    )


def main(release: str, folder: str, seed: str = "", name: str = "") -> None:
    """Take the walks of a release."""
    walks = tuple(walk for walk in WALKS[release] if name in ("", walk.name))
    if seed:
        walks = tuple(replace(walk, seed=int(seed)) for walk in walks)
    with hudi_session(Path(folder) / "warehouse", release) as hudi:
        take_all(hudi, walks, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])

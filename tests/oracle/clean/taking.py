"""Makes random histories with real Hudi, and compares its plans of cleans with ours.

python -m tests.oracle.clean.taking FOLDER [NAME...]     some histories, or all; a table each
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from strandline.table_services.clean.policy import (
    EMPTY_HOURS,
    KEEP_LATEST_BY_HOURS,
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    MAX_TO_CLEAN,
)
from tests.oracle.clean.histories import histories
from tests.oracle.clean.history_walker import HistoryWalker
from tests.oracle.clean.plans import Asked, HudiPlanner, OurPlanner, differences
from tests.oracle.hudi import HUDI, Hudi, hudi_session
from tests.oracle.view.walk import Walk

EVERY = 6
"""Steps after which plans are compared; they are at the end, too."""


def take(hudi: Hudi, history: Walk, path: Path) -> Counter[str]:
    """Make a history and compare plans; return what was done, and compared, how often.

    Raises:
        AssertionError: A plan differs.
    """
    walker = HistoryWalker(hudi, path, history)
    rng = random.Random(history.seed)
    trail: list[str] = []
    compared: Counter[str] = Counter()
    for number in range(history.steps):
        trail.append(walker.step(number))
        if number + 1 == history.steps or number % EVERY == EVERY - 1:
            differing = _compare(hudi, walker, rng, compared)
            assert not differing, f"{history}\n{_told(trail, differing)}"
    return compared + walker.done


def _compare(
    hudi: Hudi, walker: HistoryWalker, rng: random.Random, compared: Counter[str]
) -> list[str]:
    theirs, ours = HudiPlanner(hudi, walker.path, walker.options), OurPlanner(walker.path)
    differing = []
    for asked in _asked(walker, rng):
        hudis = theirs.plan(asked)
        found, expected = ours.plan(asked), ours.expected(asked, hudis)
        if found != expected:
            differing.extend(f"{asked}: {text}" for text in differences(found, expected))
        if any(ours.groups_in(partition) for partition in hudis.gone):
            differing.append(f"{asked}: Hudi deletes {hudis.gone}, where we know of files")
        compared[asked.policy] += 1
        planned = 0 if expected is None else expected.size
        compared["planned files"] += planned
        compared["plans with files"] += planned > 0
        compared["files of pending compactions"] += hudis.plan.size - planned
        compared["capped by a pending write"] += hudis.is_capped
        compared["partitions to delete"] += len(hudis.gone)
        compared["empty cleans"] += found is not None and not found.files
    return differing


def _asked(walker: HistoryWalker, rng: random.Random) -> Iterator[Asked]:
    for retain in (1, 2, 4):
        yield Asked(KEEP_LATEST_COMMITS, retain)
    yield Asked(KEEP_LATEST_COMMITS, 1, {MAX_TO_CLEAN.name: "1", EMPTY_HOURS.name: "1"})
    for retain in (1, 2):
        yield Asked(KEEP_LATEST_FILE_VERSIONS, retain)
    writes = walker.timeline().completed().write_timeline().instants
    for instant in rng.sample(writes, min(2, len(writes))):
        since = instant.requested_time
        yield Asked(KEEP_LATEST_BY_HOURS, rng.randint(1, 5), since=since)


def _told(trail: list[str], differing: list[str]) -> str:
    return "\n".join([", ".join(one.partition(":")[0] for one in trail), *differing])


def main(folder: str, *names: str) -> None:
    """Make some histories, or all."""
    total: Counter[str] = Counter()
    with hudi_session(Path(folder) / "warehouse", HUDI) as hudi:
        for history in histories():
            if names and history.name not in names:
                continue
            started = time.monotonic()
            try:
                found = take(hudi, history, Path(folder) / history.name)
            except AssertionError as error:
                print(f"{history.name}: {error}", flush=True)
                continue
            total += found
            print(f"{history.name}: {time.monotonic() - started:.1f} s, {found}", flush=True)
    print(total)


if __name__ == "__main__":
    main(*sys.argv[1:])

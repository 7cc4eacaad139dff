"""Takes the turns of the tests of logs and compactions beside a release of Hudi, on version 6.

``python -m tests.oracle.logs_of_version_6 RELEASE FOLDER [NAME...]``; one process has one release.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.oracle import test_compaction as compactions
from tests.oracle import test_merge_on_read as logs
from tests.oracle.hudi import Hudi, hudi_session

BUCKETS: Final = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
PARQUET: Final = {"hoodie.logfile.data.block.format": "parquet"}
TURNS: Final[dict[str, Callable[[Hudi, Path], None]]] = {
    "left pending": lambda hudi, path: logs.test_each_rolls_back_what_the_other_left_pending(
        hudi, path, 6
    ),
    "rolled back": lambda hudi, path: logs.test_completed_delta_commits_are_rolled_back(
        hudi, path, 6
    ),
    "plans": lambda hudi, path: compactions.test_each_executes_the_others_plan(hudi, path, 6),
    "logs": lambda hudi, path: logs.test_on_a_table_that_hudi_made(hudi, path, 6),
    "logs of Parquet": lambda hudi, path: compactions.test_taking_turns(hudi, path, 6, PARQUET),
    "buckets": lambda hudi, path: compactions.test_taking_turns(hudi, path, 6, BUCKETS),
    "left inflight": lambda hudi, path: compactions.test_each_resumes_what_the_other_left_inflight(
        hudi, path, 6
    ),
}


def main(release: str, folder: str, *names: str) -> None:
    """Take the turns, or those of some names."""
    with hudi_session(Path(folder) / "warehouse", release) as hudi:
        for each, take in TURNS.items():
            if not names or each in names:
                started = time.monotonic()
                path = Path(folder) / each
                path.mkdir()
                take(hudi, path)
                sys.stdout.write(f"{each}: {time.monotonic() - started:.0f} s\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

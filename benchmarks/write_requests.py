"""Requests of a daily upsert to an S3 API server, counted on the server's side.

``python -m benchmarks.write_requests`` prints each request of one upsert of 900 rows into one
partition of a table with some commits, in order, with the cause under which the storage counted
it; then the requests of a commit by S3's verbs and its seconds when each request takes 30 ms more,
with the timeline service and without. ``--hudi`` adds this package on Spark, and Hudi 1.2.0 on the
same session by S3A, with its metadata table and without.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.object_store.delay import delayed
from benchmarks.object_store.s3_server import s3_process
from benchmarks.write.request_count import Commit, counted, in_turns
from benchmarks.write.request_figures import sides_of

VERBS: Final = ("LIST", "HEAD", "GET", "PUT", "DELETE")
"""S3's names of ``KINDS``; a ``POST`` that deletes is a DELETE."""


def table(found: Mapping[str, Sequence[Commit]]) -> str:
    """Return the requests and seconds of a commit of each side as a Markdown table."""
    head = ("side", "requests", *VERBS, "round trips", "s a commit")
    lines = [head, ("---",) * len(head)]
    for name, commits in found.items():
        counts = counted(commits)
        trips = statistics.mean(each.round_trips for each in commits)
        numbers = [sum(counts.values()), *counts.values(), trips]
        seconds = statistics.median(each.seconds for each in commits)
        lines.append((name, *(f"{each:.1f}" for each in numbers), f"{seconds:.2f}"))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.write_requests")
    add = parser.add_argument
    add("--days", type=int, default=10, help="commits counted (default 10)")
    add("--ms", type=float, default=30.0, help="delay of a request (default 30)")
    add(
        "--hudi",
        action="store_true",
        help="on Spark, too, and real Hudi; needs Java, gets its jars",
    )
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        s3_process() as endpoint,
        delayed(endpoint, options.ms / 1000, Path(name, "requests.jsonl")) as proxy,
    ):
        sides = sides_of(proxy, Path(name), endpoint, hudi=options.hudi)
        try:
            found = in_turns(sides, options.days)
        finally:
            for side in sides:
                side.close()
    for side, commits in found.items():
        print(f"\n{side}: the requests of one commit")
        for each in commits[0].requests:
            print(f"  {each.who:8}{each.cause:24}{each.line}")
    print(f"\n{options.ms:g} ms a request, load average {os.getloadavg()[0]:.1f}\n\n{table(found)}")


if __name__ == "__main__":
    main()

"""CPU of a fresh Python worker until its first answer, imports included.

Each figure is the CPU of a process that imports, opens a view and asks one question, beside that of
one that imports numpy and pyarrow, started in alternation.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.results.ratios import Bound, Ratio
from benchmarks.servers.big_table import BigTable, Shape
from strandline.server.process.timeline_service import TimelineService

IMPORTS: Final = "import numpy, pyarrow"
ASK: Final = """
import sys
from executor_proxy import connect
view = connect(sys.argv[1], sys.argv[2], token=sys.argv[3], fallback=sys.argv[5] == "listing")
assert view.latest_base_files(sys.argv[4])
"""
GOAL: Final = Bound(ratio=1.3)


def first_look_ups(folder: Path, rounds: int) -> Iterator[Ratio]:
    """Measure first look-ups through a service and, if there is none, by listing."""
    big = BigTable.create(folder / "table", Shape(1, 1))
    with TimelineService([str(folder)]) as service:
        token = str(service.token)
        asked = (service.url, str(big.path), token, big.partitions[0], "service")
        listed = ("http://127.0.0.1:9", *asked[1:4], "listing")
        for what, arguments, bound in (
            ("first look-up of a fresh worker", asked, GOAL),
            ("the same, listing a local table", listed, None),
        ):
            pairs = [(cpu_of(ASK, *arguments), cpu_of(IMPORTS)) for _ in range(rounds)]
            values, partners = zip(*pairs, strict=True)
            yield Ratio(what, values, "s", IMPORTS, partners, bound)


def cpu_of(code: str, *arguments: str) -> float:
    """Return the CPU seconds of a Python process that runs some code."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"a fresh worker ended with status {process.returncode}")
    return used.ru_utime + used.ru_stime

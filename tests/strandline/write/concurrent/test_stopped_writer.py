"""A writer that is stopped while another one repairs it comes back and fails cleanly.

The stopped writer is a process of its own. It stops itself at a storage call, so no test has to
guess where it is. In one case the other writer waits for the expiry of its heartbeat; in the
others its clock is ahead, so that the heartbeat has expired.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.commit.others_heartbeats import instants_with_heartbeat
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

ROOT = Path(__file__).parents[4]
BEATS = {"client__heartbeat__interval_in_ms": 1000, "client__heartbeat__tolerable__misses": 5}
POINTS = {
    "it is requested": ("create", ".inflight"),
    "files are written": ("create", ".marker.MERGE"),
    "all is checked": ("create", ".commit"),
}
"""Where a writer stops → the storage call before which it does."""


@contextmanager
def stopped(base, operation, point):
    """Run a writer until it has stopped itself; kill it at the end of the block."""
    arguments = (str(base), operation, *point, json.dumps(BEATS))
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.strandline.write.concurrent.stopping_writer", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield child
    finally:
        child.kill()
        child.communicate()


def resumed(child):
    """Let a stopped writer go on to its end; return what it printed."""
    child.send_signal(signal.SIGCONT)
    out, _ = child.communicate(timeout=PROCESS_S)
    return json.loads(out)


def ids(base):
    return [(each["id"], each["ts"]) for each in reader.rows(base)]


CASES = [
    (9, "upsert", "it is requested", False),
    (9, "upsert", "files are written", True),
    (9, "upsert", "all is checked", False),
    (9, "insert", "all is checked", False),
    (6, "insert", "files are written", False),
    (6, "upsert", "all is checked", False),
]


@pytest.mark.parametrize(("version", "operation", "point", "waits"), CASES)
def test_a_stopped_writer_fails_and_leaves_nothing_of_its_own(
    tmp_path, version, operation, point, waits
):
    base, clock = tmp_path / "t", SystemClock() if waits else LaterClock()
    with client(base, write__table__version=version) as c:
        c.upsert(table(row("a"), row("b", "us")))
    with stopped(base, operation, POINTS[point]) as child:
        with client(base, clock=clock, **BEATS) as c:
            repaired = c.upsert(table(row("b", "us", ts=7)))
        assert len(repaired.rolled_back) == 1
        answer = resumed(child)
    assert answer["code"] == "concurrent_write", answer
    assert answer["retryable"]
    assert ids(base) == [("a", 1), ("b", 7)]
    with client(base, clock=clock, **BEATS) as c:
        c.upsert(table(row("b", "us", ts=8)))
    assert ids(base) == [("a", 1), ("b", 8)]
    assert reader.leftovers(base) == []
    assert instants_with_heartbeat(LocalStorage(str(base))) == ()

"""Writes whose packets to the service are dropped, in a network namespace.

    unshare --user --map-root-user --net python -m tests.spark.faults.black_hole_job FOLDER

Packets to an address that is routed to the loopback device, but isn't an address of it, are
dropped without an answer. So an address is a black hole before it is added, and again once it is
deleted.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from demo.spark import start_session
from strandline.write.engine.local import LocalEngine
from strandline.write.tasks.key_task import KeyProfileTask
from tests.spark.faults import job
from tests.spark.faults.engines import Interrupted
from tests.spark.faults.lookup_task import look_up_at, names_in
from tests.spark.faults.own_process import tell

SERVICE, NOWHERE = "10.99.0.1", "10.99.0.2"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def figures(report) -> dict:
    """Return fallbacks by (cause, whether their task waited), and sources of answers."""
    waited = Counter(
        (each.cause, "is not asked until" not in each.reason) for each in report.fallbacks
    )
    return {
        "fallbacks": sorted([cause, waits, n] for (cause, waits), n in waited.items()),
        "sources": job.sources(report),
    }


def main(folder: Path) -> None:
    """Write with the service well, unreachable, unreachable at one of two addresses, and lost."""
    ip("link", "set", "lo", "up")
    ip("route", "add", "10.99.0.0/24", "dev", "lo")
    ip("address", "add", f"{SERVICE}/32", "dev", "lo")
    session = start_session("black-hole", "local[2]")
    session.conf.set("spark.sql.shuffle.partitions", job.TASKS)
    session.conf.set("spark.sql.adaptive.enabled", "false")
    job.prepare(folder / "prepared")
    options = {
        "strandline.embed.timeline.server.host": SERVICE,
        "strandline.embed.timeline.server.bind.address": SERVICE,
        "strandline.remote.first.answer.secs": "3",
        "strandline.remote.read.timeout.secs": "2",
    }

    def write(name: str, engine) -> None:
        base = folder / name
        shutil.copytree(folder / "prepared", base)
        with job.client(engine, base, options) as c:
            assert c.service is not None  # it runs before its address is lost
            found[name] = figures(c.upsert(job.frame(session, job.changes())))
        left = job.left_in(base)
        found[name]["left"] = [left.rows, left.groups, left.leftovers]

    def look_up(name: str, *urls: str) -> None:
        with job.client(LocalEngine(), folder / "prepared", options) as other:
            every = tuple(other.service.url if url == SERVICE else url for url in urls)
            answers = look_up_at(session, other, job.PARTITIONS, every)
        right = answers.names == names_in(folder / "prepared", job.PARTITIONS)
        found[name] = {**figures(answers.report), "right": right}

    found: dict[str, dict] = {}
    write("well", session)
    hole = f"http://{NOWHERE}:26754"
    look_up("nowhere", hole)
    look_up("one of two", hole, SERVICE)
    # Before the look-up: the service runs, and its port is open, but no packet arrives.
    lost = Interrupted(
        session, KeyProfileTask, lambda: ip("address", "delete", f"{SERVICE}/32", "dev", "lo")
    )
    write("lost", lost)
    session.stop()
    tell(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Many tasks over half as many partitions on two cores, with no service at its address.

    python -m tests.spark.faults.many_tasks_job FOLDER TASKS true|false

The last argument is whether Spark reuses its Python workers. Tells what each worker listed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from demo.spark import start_session
from executor_proxy import connect
from strandline.server.process.timeline_service import TimelineService
from tests.spark.faults import job
from tests.spark.faults.counting_daemon import FOLDER, listings
from tests.spark.faults.own_process import tell


def look_up(view, partition: str) -> tuple[int, str, tuple[str, ...]]:
    """Return the process, the partition, and the names of its files."""
    return os.getpid(), partition, tuple(each.name for each in view.latest_base_files(partition))


def main(folder: Path, tasks: int, reuse: str) -> None:
    """Look up in the driver with a service, then in tasks where nobody listens."""
    base, notes = folder / "t", folder / "listings"
    notes.mkdir()
    partitions = [f"p{number:03}" for number in range(tasks // 2)]
    job.prepare(base, tuple(partitions))
    with TimelineService([str(base)]) as service:
        view = connect(service.url, base, token=service.token)
        well = [look_up(view, partition) for partition in partitions]
    os.environ[FOLDER] = str(notes)
    conf = {
        "spark.python.worker.reuse": reuse,
        "spark.python.daemon.module": "tests.spark.faults.counting_daemon",
    }
    session = start_session("many-tasks", "local[2]", conf)
    started = time.monotonic()
    numbers = session.sparkContext.parallelize(range(tasks), tasks)
    down = numbers.map(lambda n: look_up(view, partitions[n % len(partitions)])).collect()
    minutes = int((time.monotonic() - started) / 60)
    session.stop()
    tell({"well": well, "down": down, "listed": listings(notes, base), "minutes": minutes})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

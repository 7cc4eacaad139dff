"""A write on two executors of which one is killed, and one with a task that hangs.

python -m tests.spark.faults.cluster_job FOLDER MASTER
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from demo.spark import start_session
from strandline.write.engine.base import Task
from strandline.write.tasks.write_task import WriteTask
from tests.spark.faults import job
from tests.spark.faults.engines import SEARCH, Interrupted, Kind, created
from tests.spark.faults.own_process import tell


def hang() -> None:
    """Wait until Spark kills the task, for a copy of it has ended."""
    threading.Event().wait()


def kill_executor() -> None:
    """Kill the JVM that this worker works for: the parent of its daemon."""
    daemon = os.getppid()
    status = Path(f"/proc/{daemon}/status").read_text("utf-8")
    executor = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    os.kill(int(executor), signal.SIGKILL)
    hang()


@dataclass(frozen=True)
class AtEnd:
    """A task of which the first that has done its work, in any process, does something more."""

    task: Task
    act: Callable[[], None]
    flag: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = list(self.task(batches))
        if done and created(self.flag):
            self.act()
        yield from done


def main(folder: Path, master: str) -> None:
    """Write with no fault, then with each."""
    conf = {
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.sql.shuffle.partitions": str(job.TASKS),
        "spark.sql.adaptive.enabled": "false",
    }
    session = start_session("cluster", master, conf)
    tables, found = folder / "COPY_ON_WRITE", {}
    logged = folder / "MERGE_ON_READ"
    for table in (tables, logged):
        job.prepare(table, table_type=table.name)

    def write(
        name: str,
        kind: Kind = SEARCH,
        act: Callable[[], None] | None = None,
        prepared: Path = tables,
    ) -> None:
        base, flag = folder / name, folder / f"{name}.flag"
        shutil.copytree(prepared, base)
        wrap = (lambda task: task) if act is None else partial(AtEnd, act=act, flag=str(flag))
        with job.client(Interrupted(session, kind, wrap=wrap), base) as c:
            assert c.service is not None  # waited for, so that it answers
            result = c.upsert(job.frame(session, job.changes()))
        left = job.left_in(base)
        found[name] = {
            "happened": flag.exists(),
            "causes": sorted(job.causes(result)),
            "sources": sorted(job.sources(result)),
            "left": [left.rows, left.groups, left.leftovers],
        }

    write("well")
    write("well, logs", prepared=logged)
    stages = ("the search", SEARCH, tables), ("writes", WriteTask, tables)
    for stage, kind, prepared in (*stages, ("writes of logs", WriteTask, logged)):
        write(f"speculated {stage}", kind, hang, prepared)
        write(f"executor lost in {stage}", kind, kill_executor, prepared)
    session.stop()
    tell(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

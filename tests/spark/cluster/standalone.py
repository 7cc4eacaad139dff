"""A Spark standalone cluster, a master and two workers, from the jars of the installed PySpark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

STARTS_WITHIN_S = 120


@contextmanager
def cluster(
    folder: Path,
    environ: Mapping[str, str],
    address: str,
    inside: Sequence[str] = (),
    second_address: str | None = None,
) -> Iterator[str]:
    """Run a cluster, and return its master's URL once both workers are registered.

    Args:
        folder: For logs and the files of applications.
        environ: The environment of its processes.
        address: That they bind.
        inside: What runs the command that follows it, on the cluster's host.
        second_address: That the second worker binds, if another: Spark runs no speculative copy
            of a task on a host that runs the task.
    """
    ports = ("--port", "0", "--webui-port", "0")
    place = ("--host", address, *ports)
    other = ("--host", second_address or address, *ports)
    with _daemon(folder, environ, inside, "Master", *place) as master:
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
        with (
            _daemon(folder, environ, inside, "Worker", *place, *size, url) as one,
            _daemon(folder, environ, inside, "Worker", *other, *size, url) as two,
        ):
            for worker in (one, two):
                worker.wait_for(r"(Successfully registered with master)")
            yield url


class _Daemon:
    """A process whose log is read as it is written, so that it never waits for its reader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def wait_for(self, pattern: str) -> str:
        """Return the group of the first line that has ``pattern``."""

        def found() -> str | None:
            matches = (re.search(pattern, line) for line in self._lines)
            match = next(filter(None, matches), None)
            return None if match is None else match[1]

        with self._changed:
            self._changed.wait_for(lambda: self._ended or found(), STARTS_WITHIN_S)
            text = found()
            assert text is not None, "".join(self._lines[-30:])
            return text

    def end(self) -> None:
        # The whole group: `nsenter` and `spark-class` replace themselves, executors don't.
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@contextmanager
def _daemon(
    folder: Path, environ: Mapping[str, str], inside: Sequence[str], kind: str, *arguments: str
) -> Iterator[_Daemon]:
    spark_class = str(Path(environ["SPARK_HOME"]) / "bin" / "spark-class")
    name = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
    process = subprocess.Popen(
        [*inside, spark_class, name, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(environ),
        cwd=folder,
        start_new_session=True,
    )
    with process:
        daemon = _Daemon(process)
        try:
            yield daemon
        finally:
            daemon.end()

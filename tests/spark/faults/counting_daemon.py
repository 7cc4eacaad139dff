"""PySpark's daemon, whose workers write down each directory that they list.

Set as ``spark.python.daemon.module``. The audit hook of the interpreter sees every listing of the
process, whichever code makes it. Workers are forked from the daemon and keep the hook.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.daemon import manager

FOLDER = "STRANDLINE_TEST_LISTINGS"
"""Environment variable: the folder for the listings, one file a process."""


def note(event: str, arguments: tuple) -> None:
    """Append the directory of a listing to this process's file."""
    if event not in ("os.scandir", "os.listdir"):
        return
    (place,) = arguments
    path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.fspath(place)
    file = os.path.join(os.environ[FOLDER], str(os.getpid()))
    with open(file, "a", encoding="utf-8") as lines:
        lines.write(os.path.abspath(path or ".") + "\n")


def listings(folder: Path, below: Path) -> dict[int, list[str]]:
    """Return the listings of each process at and below a directory, in order."""
    found = {}
    for file in folder.iterdir():
        places = map(Path, file.read_text("utf-8").splitlines())
        found[int(file.name)] = [
            place.relative_to(below).as_posix() for place in places if place.is_relative_to(below)
        ]
    return found


if __name__ == "__main__":
    sys.addaudithook(note)
    manager()

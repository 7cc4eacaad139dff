"""``ViewDatabase``: the database that the servers of a benchmark share, and the CPU time it takes.

SQLite runs in the servers' own processes. PostgreSQL is Debian's, installed if it is missing, and
has processes of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kit.servers.postgres_server import postgres_server


@dataclass(frozen=True, slots=True)
class ViewDatabase:
    """A database for views.

    Attributes:
        url: Its URL.
        cpu_s: Returns the CPU seconds of its own processes so far; 0 if it has none.
    """

    url: str
    cpu_s: Callable[[], float]


@contextmanager
def _sqlite(folder: Path) -> Iterator[ViewDatabase]:
    yield ViewDatabase(f"sqlite://{folder}/views.db", lambda: 0.0)


@contextmanager
def _postgres(_: Path) -> Iterator[ViewDatabase]:
    with postgres_server() as server:
        first = int((server.data / "postmaster.pid").read_text().split()[0])
        yield ViewDatabase(server.url(), lambda: _cpu_s(first))


KINDS: Final[Mapping[str, Callable[[Path], AbstractContextManager[ViewDatabase]]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgres,
}
"""Kind → runs such a database, with its files in a folder if it is one of files."""


def _cpu_s(first: int) -> float:
    """Return the CPU seconds of a process, and of its children that run or have ended."""
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    ticks = sum(_ticks(first)) + sum(sum(_ticks(int(pid))[:2]) for pid in children)
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> tuple[int, ...]:
    """Return clock ticks in user and kernel mode: of a process, and of its ended children.

    One that has ended meanwhile is counted with its parent the next time.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return (0, 0, 0, 0)
    fields = text.rpartition(")")[2].split()
    return tuple(int(each) for each in fields[11:15])

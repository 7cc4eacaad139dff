"""Processes that share a store in SQLite: ``python -m ... STEP DIRECTORY``."""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from fsview.store.base import Handle
from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.store import SharedStore
from tests.fsview.store.rocks_child import TABLE, Numbered, say
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.servers.stores import blobs_of
from timeline.errors import StoreBehindError, StoreError

KEPT = 20
COMMITS = 60


def opened(database: SqliteDatabase) -> Numbered:
    """Return the newest state, in a store that was opened anew."""
    return Numbered(SharedStore(database, TABLE, KEPT))


def database_in(directory: Path) -> SqliteDatabase:
    return SqliteDatabase(directory / "views.db", lock_timeout_s=PROCESS_S)


def work(directory: Path, commits: int = sys.maxsize) -> None:
    """Commit so often, each time on the newest state; print its number."""
    database = database_in(directory)
    state = opened(database)
    conflicts, done = 0, 0
    for _ in count():
        if done == commits:
            break
        try:
            state.commit()
        except StoreBehindError:
            conflicts += 1
            state = opened(database)
        else:
            done += 1
            say(state.number)
    assert state.check_blobs() == []
    database.close()


def race(directory: Path) -> None:
    """Begin once the others are there, too."""
    say("ready")
    sys.stdin.readline()
    work(directory, COMMITS)


def sweep(directory: Path) -> None:
    """Delete what no row names."""
    database = database_in(directory)
    state = opened(database)
    state.store.sweep([Handle(handle) for handle, _, _ in state.names.values()])
    database.close()


def hold(directory: Path) -> None:
    """Have the turn to read, and not end it before it is told to."""
    database = database_in(directory)
    with database.turn(TABLE) as is_had:
        say(int(is_had))
        sys.stdin.readline()
    database.close()


def fork(directory: Path) -> None:
    """Fork with the store open; print how many calls of the fork were refused."""
    database = database_in(directory)
    store = SharedStore(database, TABLE)
    (chunk,) = store.commit(blobs_of([b"blob"]), lambda _: {"a": b"1"})
    child = os.fork()
    if not child:
        refused = 0
        for call in (chunk.read, store.rows, store.clear, store.head):
            try:
                call()
            except StoreError as exc:
                refused += f"belongs to process {os.getppid()}" in str(exc)
        del chunk
        store.collect()
        store.status()
        store.close()
        database.close()
        os._exit(refused)
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    store.commit([], lambda _: {"a": b"2"})
    assert store.rows() == {"a": b"2"}
    assert chunk.read() == b"blob"
    database.close()


if __name__ == "__main__":
    {step.__name__: step for step in (work, race, hold, fork)}[sys.argv[1]](Path(sys.argv[2]))

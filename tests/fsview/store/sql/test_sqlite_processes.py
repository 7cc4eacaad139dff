"""Processes that share a store in SQLite, that are killed or forked."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.fsview.store.sql import sqlite_child
from tests.fsview.store.sql.sqlite_child import COMMITS, KEPT, TABLE, database_in, opened, sweep
from tests.kit.servers.processes import Forked


def said_by(child: Forked) -> list[int]:
    said, _ = child.communicate()
    return [int(word) for word in said.split()]


@pytest.mark.property
def test_processes_race(tmp_path: Path) -> None:
    """The file is made in a race, too; each number is committed once, and blobs read back."""
    children = [Forked(sqlite_child.race, tmp_path) for _ in range(3)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    numbers = [said_by(child) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    total = len(children) * COMMITS
    assert sorted(n for said in numbers for n in said) == list(range(1, total + 1))
    assert all(said == sorted(said) for said in numbers)
    database = database_in(tmp_path)
    state = opened(database)
    assert state.number == total
    assert state.check_blobs() == []
    sweep(tmp_path)
    for _ in range(KEPT):
        state.kept_older = 0
        state.commit()
    state.store.collect()
    assert state.store.status()["blobs"] <= len(state.names) + 3 * (KEPT + 1)
    database.close()


@pytest.mark.property
def test_processes_are_killed(tmp_path: Path) -> None:
    """Two work on a table until one is killed; the other goes on, and nothing is torn."""
    order = random.Random(1)
    other, number = Forked(sqlite_child.work, tmp_path), 0
    for _ in range(15):
        child = Forked(sqlite_child.work, tmp_path)
        for _ in range(1 + order.choice((0, 0, 5, 20))):
            assert child.stdout.readline()
        child.kill()
        said_by(child)
        assert other.stdout.readline()
        database = database_in(tmp_path)
        state = opened(database)
        assert state.number > number
        number = state.number
        database.close()
    other.kill()
    last = said_by(other)[-1]
    database = database_in(tmp_path)
    state = opened(database)
    assert state.number >= last
    assert state.check_blobs() == []
    state.commit()
    assert state.check_blobs() == []
    database.close()


@pytest.mark.property
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_turn_ends_though_its_process_does_not_end_it(tmp_path: Path, how: int) -> None:
    child = Forked(sqlite_child.hold, tmp_path)
    assert child.stdout.readline() == "1\n"
    child.send_signal(how)
    database = database_in(tmp_path)
    had = False
    while not had:
        with database.turn(TABLE) as had:
            pass
    database.close()
    child.send_signal(signal.SIGCONT)
    assert child.communicate() == ("", None)
    assert child.returncode == (0 if how == signal.SIGSTOP else -how)


def test_a_fork_can_do_nothing_and_does_no_harm(tmp_path: Path) -> None:
    child = Forked(sqlite_child.fork, tmp_path)
    assert said_by(child) == [4]
    assert child.returncode == 0

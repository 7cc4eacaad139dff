"""A running client starts from what its last write left, and sees whoever was here since."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from strandline.commit.markers import CREATE, create_marker, marker_name
from strandline.write.result import MANY_INSTANTS
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.engines.far_engine import FarEngine
from tests.kit.short_runs import quick_runs
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import change_properties, client, row, table
from timeline.errors import UnsupportedTableError
from timeline.storage.local import LocalStorage

LOOKS = ("list", "rollback")


def upsert(c, ts, key="a"):
    return c.upsert(table(row(key, ts=ts)))


@pytest.fixture
def running(base):
    """A client that has just written."""
    with client(base) as c:
        upsert(c, 2)
        assert LOOKS not in upsert(c, 3).storage_calls
        yield c


def names(base):
    return {each["name"] for each in reader.rows(base)}


@pytest.mark.property
def test_another_writers_rows_are_built_upon(base, running):
    with client(base) as other:
        upsert(other, 4, "b")
        result = upsert(running, 5)
        assert LOOKS in result.storage_calls
        assert LOOKS in upsert(other, 6, "c").storage_calls
        assert LOOKS in upsert(other, 7, "c").storage_calls
    assert {"a@5", "b@4", "c@7"} <= names(base)
    assert len(reader.committed(base)) == 7
    assert not reader.pending(base)
    assert reader.leftovers(base) == []
    heartbeats = base / ".hoodie" / ".heartbeat"
    assert list(heartbeats.iterdir()) == []


def test_another_writers_failed_write_is_rolled_back(base):
    with client(base, clock=LaterClock()) as running:
        upsert(running, 2)
        dying = FaultyStorage(LocalStorage(str(base)), [Fault(20, Effect.CRASH_BEFORE)])
        with pytest.raises(Crash), client(base, dying) as other:
            upsert(other, 3, "dead")
        assert reader.pending(base)
        assert len(upsert(running, 4).rolled_back) == 1
    assert "dead@3" not in names(base)
    assert reader.leftovers(base) == []


def test_changed_properties_are_looked_at(base, running):
    change_properties(base, populate__meta__fields="false")
    with pytest.raises(UnsupportedTableError):
        upsert(running, 4)


def test_a_rollback_by_another_client_is_seen(base, running):
    with client(base) as other:
        other.rollback(max(reader.committed(base)))
    assert "a@2" in names(base)
    result = upsert(running, 4)
    assert LOOKS in result.storage_calls
    assert "a@4" in names(base)


def test_a_write_with_a_clean_is_followed(base):
    with client(base, clean__automatic=True, clean__commits__retained=1) as c:
        results = [upsert(c, ts) for ts in range(2, 7)]
    assert all(result.clean for result in results[2:])
    assert all(LOOKS not in result.storage_calls for result in results[2:])


def test_markers_are_swept_before_anything_is_looked_up(base, running):
    """A task of another writer outlived its commit, and died before it looked for its instant."""
    (*_, completed) = sorted(reader.committed(base))
    stray = f"eu/00000000-0000-0000-0000-000000000000-0_9-9-9_{completed}.parquet"
    create_marker(LocalStorage(str(base)), completed, marker_name(stray, CREATE))
    (base / stray).write_bytes(b"half a file")
    assert LOOKS in upsert(running, 4).storage_calls
    assert not (base / stray).exists()
    assert reader.leftovers(base) == []
    # Markers that can't be resolved stay, so each write would begin twice.
    assert LOOKS in upsert(running, 5).storage_calls


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        pytest.param(
            FarEngine(),
            {"strandline__write__driver__max__rows": 0},
            id="tasks that may outlive their stage",
        ),
    ],
)
def test_a_client_that_cannot_know_looks_each_time(tmp_path, engine, options):
    with client(tmp_path / "t", engine=engine, **options) as c:
        for ts in range(1, 4):
            assert LOOKS in upsert(c, ts).storage_calls


@pytest.mark.property
@pytest.mark.parametrize("clean", [False, True], ids=["", "clean"])
@pytest.mark.parametrize("version", quick_runs([9], [6, 9]))
def test_a_commit_lists_the_timeline_thrice_a_clean_once_more_and_a_long_one_is_warned_of(
    tmp_path: Path, clean: bool, version: int
) -> None:
    """A look-up's view, the sync and a clean's plan take what the writer has just read (#32)."""
    few = 4 if clean else 3  # the clean looks again once it is requested
    base = tmp_path / "t"
    options: dict[str, Any] = {"write__table__version": version, "clean__commits__retained": 1}
    options["clean__automatic"] = str(clean).lower()
    options["archive__automatic"] = "false"
    with client(base, **options) as c:
        for ts in range(3):
            c.upsert(table(row("a", ts=ts)))
    folder = base / (".hoodie" if version == 6 else ".hoodie/timeline")
    done = sorted(folder.glob("*.commit"))[0]
    lists: list[str] = []

    def look(kind: str, path: str) -> None:
        if kind == "list" and base / path == folder:
            lists.append(path)

    with client(base, HookedStorage(base, before=look), **options) as c:
        c.upsert(table(row("a", ts=4)))
        lists.clear()
        assert c.upsert(table(row("a", ts=5))).warnings == ()
        assert len(lists) == few
    for number in range(MANY_INSTANTS):
        time = f"{20200101000000000 + number}"
        os.link(done, folder / f"{time}{'' if version == 6 else f'_{time[:-3]}999'}.commit")
    with client(base, HookedStorage(base, before=look), **options) as c:
        (warning,) = c.upsert(table(row("a", ts=6))).warnings
        assert f"more than {MANY_INSTANTS}" in warning
        lists.clear()
        assert c.upsert(table(row("a", ts=7))).warnings != ()
        assert len(lists) == few
    assert [each["ts"] for each in reader.rows(base)] == [7]

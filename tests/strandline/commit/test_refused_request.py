"""A write whose instant was requested by another writer leaves that writer's instant alone."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from strandline.commit.others_heartbeats import heartbeat_path, read_beat, writer_is_gone
from strandline.server.marker.heartbeat import HEARTBEAT_FOLDER
from tests.kit.storage.hooked_storage import Hook, HookedStorage
from tests.strandline.write.tables import client, row, table
from timeline.errors import AlreadyExistsError, ConcurrentWriteError, StorageUnavailableError
from timeline.storage.local import LocalStorage


@pytest.fixture
def base(tmp_path: Path) -> Path:
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a")))
    return tmp_path / "t"


def refused(base: Path, before: Hook | None = None, after: Hook | None = None) -> str:
    """Write with hooks that refuse the request; return the instant's time."""
    seen: list[str] = []

    def follow(kind: str, path: str) -> None:
        if kind == "create" and path.startswith(HEARTBEAT_FOLDER):
            seen.append(Path(path).name)
        if before is not None:
            before(kind, path)

    with (
        client(base, HookedStorage(base, follow, after)) as c,
        pytest.raises(ConcurrentWriteError, match="was created by another writer"),
    ):
        c.upsert(table(row("b")))
    return seen[0]


def is_request(kind: str, path: str) -> bool:
    return kind == "create" and path.endswith(".commit.requested")


def take(base: Path, kind: str, path: str) -> None:
    """Before a first beat is written, request its instant, as a writer of Hudi's does."""
    if kind == "create" and path.startswith(HEARTBEAT_FOLDER):
        taken = base / f".hoodie/timeline/{Path(path).name}.commit.requested"
        taken.touch()
        os.utime(taken, (taken.stat().st_mtime - 1,) * 2)


def test_an_instant_of_a_hudi_writer_without_heartbeats_gets_none(base: Path) -> None:
    time = refused(base, before=partial(take, base))
    assert read_beat(LocalStorage(str(base)), time) is None
    with client(base) as c, pytest.raises(ConcurrentWriteError, match=f"{time} .*no heartbeat"):
        c.upsert(table(row("b")))


def test_its_refusal_is_told_although_the_heartbeat_stays(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def request(kind: str, path: str) -> None:
        take(base, kind, path)
        if kind == "delete" and path.startswith(HEARTBEAT_FOLDER):
            raise StorageUnavailableError("no connection")

    time = refused(base, before=request)
    assert f"the heartbeat of {time} stays: no connection" in caplog.text
    # As if its writer lived, also for this process: nobody rolls it back before the expiry.
    beat = read_beat(LocalStorage(str(base)), time)
    assert beat is not None
    assert not beat.ended
    assert not writer_is_gone(beat)


def test_the_heartbeat_of_a_hudi_writer_stays(base: Path) -> None:
    storage = LocalStorage(str(base))

    def request(kind: str, path: str) -> None:
        if is_request(kind, path):
            # Hudi writes its heartbeat without looking, and then requests.
            storage.replace(heartbeat_path(Path(path).name[:17]), b"")
            storage.create(path)

    time = refused(base, before=request)
    beat = read_beat(storage, time)
    assert beat is not None
    assert beat.owner is None


def test_its_own_instant_whose_answer_was_lost_is_rolled_back(base: Path) -> None:
    def lose(kind: str, path: str) -> None:
        if is_request(kind, path):
            raise AlreadyExistsError(path)

    time = refused(base, after=lose)
    with client(base) as c:
        assert c.upsert(table(row("b"))).rolled_back == (time,)

"""A writer is killed while it completes its commit, and its request takes effect later, or never.

The killed writer is a process of its own, which leaves its completing request to the test: that one
carries it out while another writer waits, as an object store does. Nothing of a commit that appears
may be lost, and nothing of one that doesn't may stay.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.commit.others_heartbeats import announcement_path, heartbeat_path, read_beat
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.processes import Forked
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.faults import killed_in_doubt
from tests.strandline.write.faults.killed_in_doubt import WIDER
from tests.strandline.write.tables import client, row, stored, table
from timeline.clock import SystemClock
from timeline.errors import PathNotFoundError, WriteConflictError
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

PACKAGE = "org.apache.hudi.client.transaction.lock."
LOCKED = {"write__lock__provider": PACKAGE + "FileSystemBasedLockProvider"}
TIMEOUT_S = 120


@pytest.fixture(params=[6, 9], ids=["v6", "v9"])
def base(request, tmp_path: Path) -> Path:
    rows = table(row("a"), row("b", "us"))
    return stored(tmp_path / "t", rows, write__table__version=request.param)


class Request:
    """The completing request of a writer that was killed when it had sent it."""

    def __init__(self, base: Path, options: dict[str, str], write: str = "upsert") -> None:
        arguments = (str(base), json.dumps(options), write)
        with Forked(killed_in_doubt.main, *arguments) as killed:
            path, _, self._data = killed.stdout.buffer.read().partition(b"\n")
        assert killed.returncode == -signal.SIGKILL
        self._path = path.decode()
        self._storage = LocalStorage(str(base))
        self.instant = Path(self._path).name[:17]
        # As an operator does; a lease would have run out.
        (base / ".hoodie/lock").unlink(missing_ok=True)
        self.beat = base / heartbeat_path(self.instant)
        assert read_beat(self._storage, self.instant).completing

    def move_elsewhere(self) -> None:
        """Let the heartbeat be that of a process on another machine."""
        content = json.loads(self.beat.read_text())
        self.beat.write_text(json.dumps({**content, "namespace": "another machine"}))

    def take_effect(self) -> None:
        self._storage.create(self._path, self._data)


def waiting(base: Path, act: Callable[[], None], **options: str):
    """Return a client whose first wait runs ``act``; each wait lets the time pass."""
    clock = ManualClock(SystemClock().now_ms())
    left = [act]
    c = client(base, clock=clock, **options)

    def wait(seconds: float) -> None:
        while left:
            left.pop()()
        clock.advance(round(seconds * 1000))

    c._context = replace(c._context, wait=wait)
    return c, clock


def rows(base: Path) -> list[tuple[str, int]]:
    return [(each["id"], each["ts"]) for each in reader.rows(base)]


@pytest.mark.parametrize("options", [{}, LOCKED], ids=["no lock", "lock"])
def test_a_request_that_takes_effect_late_is_a_commit(base: Path, options: dict) -> None:
    request = Request(base, options)
    c, _ = waiting(base, request.take_effect, **options)
    with c:
        result = c.upsert(table(row("a", ts=7), row("new")))
        assert result.rolled_back == ()
        assert rows(base) == [("a", 7), ("b", 1), ("killed", 1), ("new", 1)]
        c.upsert(table(row("killed", ts=2)))
    assert rows(base) == [("a", 7), ("b", 1), ("killed", 2), ("new", 1)]
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("options", [{}, LOCKED], ids=["no lock", "lock"])
def test_a_request_that_takes_no_effect_is_rolled_back_after_the_expiry(
    base: Path, options: dict
) -> None:
    request = Request(base, options)
    c, clock = waiting(base, lambda: None, **options)
    began = clock.monotonic()
    with c:
        assert c.upsert(table(row("a", ts=7))).rolled_back == (request.instant,)
    assert TIMEOUT_S - 30 < clock.monotonic() - began <= TIMEOUT_S + 1
    assert rows(base) == [("a", 7), ("b", 1)]
    assert reader.leftovers(base) == []


def test_under_a_lock_a_commit_that_another_machine_left_in_doubt_conflicts(base: Path) -> None:
    """Whether its process has ended isn't known here, so nobody waits for it."""
    request = Request(base, LOCKED)
    request.move_elsewhere()
    with client(base, **LOCKED) as c:
        message = f"may conflict with .* in doubt: UPSERT .*{request.instant} changed file group"
        with pytest.raises(WriteConflictError, match=message):
            c.upsert(table(row("a", ts=7)))
        c.upsert(table(row("b", "us", ts=7)))
        request.take_effect()
        assert rows(base) == [("a", 5), ("b", 7), ("killed", 1)]
        c.upsert(table(row("a", ts=7)))
    assert rows(base) == [("a", 7), ("b", 7), ("killed", 1)]
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("policy", ["EAGER", "LAZY"])
def test_a_writer_stopped_before_its_request_conflicts_even_if_it_expired(
    base: Path, policy: str
) -> None:
    """Its lock was taken from it, and the other writer began before the expiry."""
    options = {**LOCKED, "clean__failed__writes__policy": policy}
    stopped: list[str] = []

    def stop(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight") and not stopped:
            request = Request(base, LOCKED)
            request.move_elsewhere()
            for path in (heartbeat_path, announcement_path):
                os.utime(base / path(request.instant), (0, 0))
            stopped.append(request.instant)

    with client(base, HookedStorage(base, after=stop), **options) as c:
        with pytest.raises(WriteConflictError, match="completion is in doubt: UPSERT"):
            c.upsert(table(row("a", ts=7)))
        assert c.upsert(table(row("a", ts=8))).rolled_back == (stopped[0],)
    assert rows(base) == [("a", 8), ("b", 1)]
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("policy", ["EAGER", "LAZY"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_an_overwrite_in_doubt_conflicts_with_a_change_of_what_it_replaces(
    base: Path, when: str, policy: str
) -> None:
    """It has compared itself already, although its instant is pending, so nobody else does."""
    options = {**LOCKED, "clean__failed__writes__policy": policy}
    requests: list[Request] = []

    def overwrite(kind: str = "create", path: str = ".inflight") -> None:
        if kind == "create" and path.endswith(".inflight") and not requests:
            requests.append(Request(base, LOCKED, "overwrite"))
            requests[0].move_elsewhere()

    if when == "before":
        overwrite()
    with client(base, HookedStorage(base, after=overwrite), **options) as c:
        with pytest.raises(WriteConflictError, match="INSERT_OVERWRITE of replacecommit"):
            c.upsert(table(row("a", ts=7)))
        c.upsert(table(row("b", "us", ts=7)))
        requests[0].take_effect()
        assert rows(base) == [("b", 7), ("killed", 1)]
        c.upsert(table(row("a", ts=8)))
    assert rows(base) == [("a", 8), ("b", 7), ("killed", 1)]
    assert reader.leftovers(base) == []


def test_a_column_added_in_doubt_conflicts_with_a_commit_without_it(base: Path) -> None:
    """No file group is changed by both. Readers and the next merge would lose the column."""
    request = Request(base, LOCKED, "add a column")
    request.move_elsewhere()
    with client(base, **LOCKED) as c:
        with pytest.raises(WriteConflictError, match=f"{request.instant}.* another schema"):
            c.upsert(table(row("b", "us", ts=7)))
        request.take_effect()
    filling = {**LOCKED, "write__set__null__for__missing__columns": "true"}
    with client(base, **filling) as c:
        c.upsert(table(row("b", "us", ts=7), row("c", "asia")))
    kept = {each["id"]: each.get("extra") for each in reader.rows(base)}
    assert kept == {"a": None, "b": None, "c": None, "killed": "kept"}
    assert reader.leftovers(base) == []


def test_a_commit_that_adds_a_column_conflicts_with_one_in_doubt_without_it(base: Path) -> None:
    request = Request(base, LOCKED)
    request.move_elsewhere()
    wider = table({**row("b", "us", ts=7), "extra": "new"}, schema=WIDER)
    with client(base, **LOCKED) as c:
        with pytest.raises(WriteConflictError, match=f"{request.instant}.* another schema"):
            c.upsert(wider)
        request.take_effect()
        c.upsert(wider)
    kept = {each["id"]: each.get("extra") for each in reader.rows(base)}
    assert kept == {"a": None, "b": "new", "killed": None}


@pytest.mark.parametrize("content", [b"", b'{"version": 2}', None], ids=["empty", "later", "gone"])
def test_a_commit_in_doubt_that_does_not_tell_what_it_changes_conflicts_with_all(
    base: Path, content: bytes | None
) -> None:
    """Its announcement is another release's, or is gone by the time that it is read."""
    request = Request(base, LOCKED)
    request.move_elsewhere()
    path = announcement_path(request.instant)

    class Announced(LocalStorage):
        def read(self, name: str, *args: object) -> bytes:
            if name == path and content is None:
                raise PathNotFoundError(name)
            return super().read(name, *args)

    if content is not None:
        (base / path).write_bytes(content)
    with (
        client(base, Announced(str(base)), **LOCKED) as c,
        pytest.raises(
            WriteConflictError, match=f"{request.instant}.* doesn't describe its changes"
        ),
    ):
        c.upsert(table(row("b", "us", ts=7)))
    assert read_beat(LocalStorage(str(base)), request.instant) is not None


def test_a_commit_in_doubt_is_compared_without_its_markers(base: Path) -> None:
    request = Request(base, LOCKED)
    request.move_elsewhere()
    LocalStorage(str(base)).delete_tree(f".hoodie/.temp/{request.instant}")
    with client(base, **LOCKED) as c:
        with pytest.raises(WriteConflictError, match=request.instant):
            c.upsert(table(row("a", ts=7)))
        c.upsert(table(row("b", "us", ts=7)))

"""Hudi's restore, requested after a write first looked at the table: the write isn't committed.

A restore undoes commits without a rollback of their own on the timeline.
"""

from __future__ import annotations

import pytest

from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.errors import ConcurrentWriteError, WriteConflictError

OPTIONS = {
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
}
RESTORE = "20260101000000000.restore"


@pytest.fixture(params=[6, 9], ids=["v6", "v9"])
def version(request):
    return request.param


def made(base, version):
    """Make a table with two commits to one file group; return the second."""
    with client(base, write__table__version=version) as c:
        c.upsert(table(row("a")))
        return c.upsert(table(row("a", ts=2))).instant


def restore(base, instant, version):
    """Undo a commit as Hudi does."""
    timeline = reader.timeline_folder(base)
    for path in [*timeline.glob(f"{instant}*"), *base.glob(f"*/*_{instant}.parquet")]:
        path.unlink()
    for state in ("requested", "inflight"):
        (timeline / f"{RESTORE}.{state}").unlink(missing_ok=True)
    time = "20260101000000000"
    (timeline / f"{time if version == 6 else f'{time}_20260101000000001'}.restore").touch()


def write(base, at, act):
    """Write rows while ``act`` runs once, before or after the first call that ``at`` accepts."""
    done = []

    def hook(kind, path):
        if not done and at(kind, path):
            done.append(path)
            act()

    with client(base, HookedStorage(base, before=hook), **OPTIONS) as c:
        return c.upsert(table(row("b")))


def request(base):
    timeline = reader.timeline_folder(base)
    (timeline / f"{RESTORE}.requested").touch()
    (timeline / f"{RESTORE}.inflight").touch()


def before_the_request(kind, path):
    return kind == "create" and ".heartbeat/" in path


def after_the_files(base):
    """Accept the first look at the timeline after the write's only file was written."""
    folder = str(reader.timeline_folder(base).relative_to(base))
    return lambda kind, path: (kind, path) == ("list", folder) and len([*base.glob("eu/*.p*")]) == 3


def before_the_commit_point(kind, path):
    return kind == "create" and path.endswith(".commit")


def test_a_restore_that_is_pending_after_the_request_is_refused(tmp_path, version):
    base = tmp_path / "t"
    made(base, version)
    with pytest.raises(ConcurrentWriteError, match=r"restore \d+ of .* is undoing"):
        write(base, before_the_request, lambda: request(base))
    assert not list(base.rglob("*.marker*"))


@pytest.mark.parametrize("finished", [False, True], ids=["pending", "finished"])
def test_a_restore_after_the_first_look_conflicts(tmp_path, version, finished):
    base = tmp_path / "t"
    second = made(base, version)
    act = (lambda: restore(base, second, version)) if finished else (lambda: request(base))
    with pytest.raises(WriteConflictError, match="restore 20260101000000000 may undo"):
        write(base, after_the_files(base), act)
    if finished:
        assert [(each["id"], each["ts"]) for each in reader.rows(base)] == [("a", 1)]


@pytest.mark.parametrize("finished", [False, True], ids=["pending", "finished"])
def test_a_commit_beside_a_restore_is_withdrawn(tmp_path, version, finished):
    base = tmp_path / "t"
    second = made(base, version)
    act = (lambda: restore(base, second, version)) if finished else (lambda: request(base))
    with pytest.raises(ConcurrentWriteError, match="what restore 20260101000000000 may undo"):
        write(base, before_the_commit_point, act)
    assert "b" not in {each["id"] for each in reader.rows(base)}


def test_a_restore_that_was_finished_before_the_write_changes_nothing(tmp_path, version):
    base = tmp_path / "t"
    second = made(base, version)
    restore(base, second, version)
    with client(base, **OPTIONS) as c:
        c.upsert(table(row("a", ts=3)))
    assert [(each["id"], each["ts"]) for each in reader.rows(base)] == [("a", 3)]

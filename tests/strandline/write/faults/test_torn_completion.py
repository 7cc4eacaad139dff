"""The disk is full when a write completes, on a file system that doesn't write files as a whole."""

from __future__ import annotations

import pytest

from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, stored, table
from timeline.errors import CommitOutcomeUnknownError, StorageUnavailableError


def tearing(base, ending, content):
    """Return a storage whose creates of files that end so leave a part of the content, and fail."""

    def hook(kind, path):
        if kind == "create" and path.endswith(ending):
            (base / path).write_bytes(content)
            raise StorageUnavailableError("No space left on device")

    return HookedStorage(base, before=hook)


def rows(base):
    return [(each["id"], each["ts"]) for each in reader.rows(base)]


@pytest.mark.parametrize("content", [b"", b"{"], ids=["empty", "cut"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_commit_with_a_torn_file_is_rolled_back_by_the_next_write(tmp_path, version, content):
    base = stored(tmp_path / "t", table(row("a")), write__table__version=version)
    with (
        client(base, tearing(base, ".commit", content)) as c,
        pytest.raises(CommitOutcomeUnknownError, match="No space left on device") as info,
    ):
        c.upsert(table(row("a", ts=5), row("b")))
    assert rows(base) == [("a", 1)]
    with client(base, clock=LaterClock()) as c:
        assert info.value.instant in c.upsert(table(row("c"))).rolled_back
    assert rows(base) == [("a", 1), ("c", 1)]
    assert reader.leftovers(base) == []


@pytest.mark.parametrize("content", [b"", b"{"], ids=["empty", "cut"])
@pytest.mark.parametrize("version", [6, 9])
def test_a_clean_with_a_torn_file_is_finished_by_the_next(tmp_path, version, content):
    """All later cleans and archivals failed: a clean goes on from the last one."""
    updates = [table(row("a", ts=ts)) for ts in range(3)]
    base = stored(tmp_path / "t", *updates, write__table__version=version)
    retained = {"clean__commits__retained": "1"}
    with (
        client(base, tearing(base, ".clean", content), **retained) as c,
        pytest.raises(StorageUnavailableError, match="No space left on device"),
    ):
        c.clean()
    with client(base, **retained) as c:
        c.clean()
        c.upsert(table(row("a", ts=4)))
        assert c.clean() is not None
        c.archive()
    assert rows(base) == [("a", 4)]

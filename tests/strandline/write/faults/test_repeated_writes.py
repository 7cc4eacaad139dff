"""A client that repeats a write only if its error is ``retryable`` never loses or doubles rows.

Each storage call of each operation fails before its effect, or after it, or is answered like a
request that an object store's client repeated. Then the client does what its error says. Inserts
tell most: repeating a committed one doubles its rows. The client repeats at once, by the machine's
clock; ``test_s3_faults`` does so on S3.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from strandline.commit.others_heartbeats import announcement_path, heartbeat_path
from strandline.write.engine.local import LocalEngine
from tests.kit.storage.faulty_storage import Effect, Fault, FaultyStorage, calls_in_turns
from tests.kit.storage.full_disk import file_size_limit
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    StorageUnavailableError,
    StrandlineError,
)
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

NEW = table(row("a", ts=3), row("new"), row("far", "asia"))
OPERATIONS = {
    "insert": table(row("new"), row("far", "asia")),
    "bulk_insert": table(row("new"), row("far", "asia")),
    "upsert": NEW,
    "delete": table(row("a"), row("c", "us")),
}
ERRORS = (Effect.ERROR_BEFORE, Effect.ERROR_AFTER, Effect.EXISTS_AFTER)


class Place:
    """Tables that are copies of one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.prepared = folder / "prepared"
        self._folder = folder
        with client(self.prepared) as c:
            c.upsert(table(row("a"), row("b"), row("c", "us")))

    def copy(self) -> Storage:
        """Return the storage of a new copy."""
        base = self._folder / "copy"
        shutil.rmtree(base, ignore_errors=True)
        shutil.copytree(self.prepared, base)
        return LocalStorage(str(base))

    def local(self, storage: Storage) -> Path:
        """Return a copy's folder, for the reader."""
        return Path(storage.base_path)


@pytest.fixture(scope="module")
def place(memory):
    return Place(memory / "local")


def learned(place: Place, operation: str) -> tuple[list[tuple[str, str]], list[dict]]:
    """Return the storage calls of an operation without faults, and the rows after it."""
    storage = place.copy()
    faulty = FaultyStorage(storage)
    with client(storage.base_path, faulty) as c:
        getattr(c, operation)(OPERATIONS[operation])
    rows = reader.rows(place.local(storage))
    assert rows != reader.rows(place.prepared)
    return faulty.log, rows


def completing_call(log: list[tuple[str, str]]) -> int:
    return next(
        n for n, (kind, at) in enumerate(log, 1) if kind == "create" and at[-7:] == ".commit"
    )


def write_until_done(place: Place, storage: Storage, faults, operation: str) -> list[str]:
    """Repeat a write as long as its errors allow it; return the errors' codes."""
    errors = []
    with client(storage.base_path, FaultyStorage(storage, faults)) as c:
        while len(errors) < 4:
            try:
                getattr(c, operation)(OPERATIONS[operation])
            except CommitOutcomeUnknownError as error:
                errors.append(error.code)
                base = place.local(storage)
                if error.instant in reader.committed(base):
                    break
                # What the error says: it can't become visible after its heartbeat has expired.
                long_ago = time.time() - 3600
                for path in (heartbeat_path, announcement_path):
                    os.utime(base / path(error.instant), (long_ago, long_ago))
            except StrandlineError as error:
                if not error.retryable:
                    raise
                errors.append(error.code)
            else:
                break
    return errors


def leftovers(place: Place, storage: Storage) -> list[str]:
    """Return what is left after one more write, which sweeps what a failed deletion left."""
    if reader.leftovers(place.local(storage)):
        with client(storage.base_path, storage) as c:
            c.upsert(table())
    return reader.leftovers(place.local(storage))


@pytest.mark.parametrize("effect", ERRORS, ids=lambda effect: effect.value)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_write_is_repeated_after_any_failed_call(place, operation, effect):
    log, rows = learned(place, operation)
    calls = calls_in_turns(log, effect, [*OPERATIONS].index(operation))
    assert calls
    for at in calls:
        storage = place.copy()
        where = f"{effect.value} call {at}, {' '.join(log[at - 1])}"
        errors = write_until_done(place, storage, [Fault(at, effect)], operation)
        assert errors in ([], ["storage_unavailable"], ["concurrent_write"]), where
        assert reader.rows(place.local(storage)) == rows, where
        assert leftovers(place, storage) == [], where


@pytest.mark.parametrize("effect", ERRORS, ids=lambda effect: effect.value)
@pytest.mark.parametrize("operation", ["insert", "upsert"])
def test_the_completing_call_and_another_one_fail(memory, operation, effect):
    """Here storage may not tell whether the write is committed."""
    folder = memory / f"{operation} {effect.value}"
    place = Place(folder)
    log, rows = learned(place, operation)
    first = completing_call(log)
    codes = set()
    for second in range(first + 1, first + 12):
        for other in (Effect.ERROR_BEFORE, Effect.ERROR_AFTER):
            storage = place.copy()
            faults = [Fault(first, effect), Fault(second, other)]
            errors = write_until_done(place, storage, faults, operation)
            codes |= set(errors)
            assert reader.rows(place.local(storage)) == rows, (second, other, errors)
            assert leftovers(place, storage) == [], (second, other, errors)
    assert codes <= {"commit_outcome_unknown", "storage_unavailable"}
    assert ("commit_outcome_unknown" in codes) == (effect is Effect.ERROR_BEFORE)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_storage_is_gone_from_the_completing_call_on(memory, operation):
    """Nothing can be seen any more, so nothing is claimed."""
    folder = memory / f"{operation} gone"
    place = Place(folder)
    log, rows = learned(place, operation)
    first = completing_call(log)
    for effect in (Effect.ERROR_BEFORE, Effect.ERROR_AFTER):
        storage = place.copy()
        faults = [
            Fault(first, effect),
            *(Fault(n, Effect.ERROR_BEFORE) for n in range(first + 1, first + 40)),
        ]
        with (
            pytest.raises(CommitOutcomeUnknownError) as info,
            client(storage.base_path, FaultyStorage(storage, faults)) as c,
        ):
            getattr(c, operation)(OPERATIONS[operation])
        base = place.local(storage)
        committed = info.value.instant in reader.committed(base)
        assert committed == (effect is Effect.ERROR_AFTER)
        assert (reader.rows(base) == rows) == committed


@pytest.mark.parametrize("version", [6, 9])
def test_a_rollback_or_clean_succeeds_though_its_completing_request_was_repeated(
    tmp_path: Path, version: int
) -> None:
    """An object store's client is then refused because of its own success. (#32)"""
    repeated = []

    def repeat(kind: str, path: str) -> None:
        if kind == "create" and path.endswith((".rollback", ".clean")):
            repeated.append(path)
            raise AlreadyExistsError(path)

    storage = HookedStorage(tmp_path / "t", after=repeat)
    options = {"clean__commits__retained": 1, "write__table__version": version}
    with client(tmp_path / "t", storage, **options) as c:
        for ts in range(1, 5):
            last = c.upsert(table(row("a", ts=ts)))
        assert c.rollback(last.instant)
        cleaned = c.clean()
        assert cleaned is not None
        assert cleaned.files_deleted == 1
        c.upsert(table(row("b")))
    assert len(repeated) == 2
    assert [each["ts"] for each in reader.rows(tmp_path / "t")] == [3, 1]
    assert reader.leftovers(tmp_path / "t") == []


@pytest.mark.parametrize("cores", [1, 4])
def test_a_write_that_has_no_room_leaves_no_file_in_the_way_of_the_next(
    tmp_path: Path, cores: int
) -> None:
    """Neither the file that failed nor those before it: the rollback writes a plan first (#32)."""
    base = tmp_path / "t"
    large = [row(f"l{n}", "us", name=os.urandom(1000).hex()) for n in range(300)]
    with client(base, engine=LocalEngine(cores=cores)) as c:
        c.upsert(table(row("a")))
        before = sorted(base.rglob("*.parquet"))
        with file_size_limit(100_000):
            with pytest.raises(StorageUnavailableError, match="File too large") as failed:
                c.upsert(table(row("b", "eu"), row("c", "asia"), *large))
            assert failed.value.retryable
            assert sorted(base.rglob("*.parquet")) == before
            assert len(c.upsert(table(row("b"))).rolled_back) == 1
    assert sorted(each["id"] for each in reader.rows(base)) == ["a", "b"]
    assert reader.leftovers(base) == []

"""Whether an instant has completed is known, or reported as unknown, whatever its last call did."""

from __future__ import annotations

import pytest

from strandline.commit.completion_outcome import (
    complete_or_find,
    complete_surely,
    withdraw_if_rolled_back,
)
from tests.kit.storage.hooked_storage import HookedStorage, failing
from timeline.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    StorageUnavailableError,
)
from timeline.instant import COMMIT, ROLLBACK
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    InstantInfo,
    RollbackMetadata,
    RollbackPlan,
    WriteStat,
)
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config

T, DONE, R = "20250101000000000", "20250101000000001", "20250101000000002"


@pytest.fixture(params=[6, 9])
def base(request, tmp_path):
    config = TableConfig.create(name="t", version=request.param, record_key_fields=("id",))
    write_table_config(LocalStorage(str(tmp_path)), config, create=True)
    return tmp_path


def begun(base, before=None, after=None):
    """Return client and inflight instant, with the hooks in place."""
    storage = HookedStorage(base)
    meta = TableMetaClient.open(storage)
    instant = meta.transition_to_inflight(meta.create_requested(COMMIT, T))
    storage.hooks[:] = [before, after]
    return meta, instant


def finish(meta, instant, check=lambda: None):
    return complete_surely(meta, instant, CommitMetadata(), DONE, check)


def completed_files(base):
    return sorted(path.name for path in base.rglob("2025*.commit"))


def already_exists(kind, path):
    """An object store's client that repeats a request whose answer it has lost."""
    if kind == "create" and path.endswith(".commit"):
        raise AlreadyExistsError(path)


def foreign_error(kind, path):
    """An error that the storage doesn't map, as some clients of object stores have."""
    if kind == "create" and path.endswith(".commit"):
        raise RuntimeError("read timeout")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, failing("create", ".commit")),
        (None, already_exists),
        (None, foreign_error),
        (failing("create", ".commit", times=1), None),
        (failing("stat", ".inflight", times=1), None),
    ],
    ids=["lost answer", "412 after success", "unmapped", "not sent", "not looked"],
)
def test_one_failed_call_leaves_one_completed_file(base, before, after):
    meta, instant = begun(base, before, after)
    completed = finish(meta, instant)
    assert completed.is_completed
    assert completed_files(base) == [meta.layout.file_name(completed)]


def test_a_lost_answer_is_looked_for_twice(base):
    fails = failing("list", "", times=1)
    meta, instant = begun(base, after=failing("create", ".commit"))
    armed = []

    def before(kind, path):
        if (kind, path.endswith(".commit")) == ("create", True):
            armed.append(True)
        elif armed:
            fails(kind, path)

    meta.storage.hooks[0] = before
    assert finish(meta, instant).is_completed


@pytest.mark.parametrize("happened", [False, True])
def test_what_can_not_be_seen_is_in_doubt(base, happened):
    fail = failing("create", ".commit")
    meta, instant = begun(base, None if happened else fail, fail if happened else None)
    blind = failing("list", "")
    meta.storage.hooks[0] = blind if happened else fail
    with pytest.raises(CommitOutcomeUnknownError, match=f"whether commit {T} of .* took") as info:
        finish(meta, instant)
    assert not info.value.retryable
    assert info.value.instant == T
    assert f"{meta.layout.folder} has a file {T}" in info.value.hint
    assert len(completed_files(base)) == happened


def test_a_completion_is_not_repeated_once_another_writer_may_have_taken_over(base):
    meta, instant = begun(base, failing("create", ".commit", times=1))

    def taken_over():
        raise ConcurrentWriteError("expired")

    with pytest.raises(CommitOutcomeUnknownError, match="expired"):
        finish(meta, instant, taken_over)
    assert completed_files(base) == []


def test_an_instant_rolled_back_before_is_not_completed(base):
    meta, instant = begun(base)
    meta.delete_instant_file(instant)
    with pytest.raises(ConcurrentWriteError, match="not on the timeline") as info:
        finish(meta, instant)
    assert info.value.retryable
    assert completed_files(base) == []


def test_an_instant_rolled_back_between_two_attempts_is_in_doubt(base):
    """The first attempt's request may still be under way."""
    meta, instant = begun(base, failing("create", ".commit", times=1))
    with pytest.raises(CommitOutcomeUnknownError):
        finish(meta, instant, lambda: meta.delete_instant_file(instant))


def undoing(base):
    """Return client and inflight rollback."""
    meta = TableMetaClient.open(HookedStorage(base))
    plan = RollbackPlan(InstantInfo(T, COMMIT))
    return meta, meta.transition_to_inflight(meta.create_requested(ROLLBACK, R, plan))


def find(meta, rollback):
    metadata = RollbackMetadata(R, commits_rollback=(T,))
    return complete_or_find(meta, rollback, metadata, f"{int(R) + 1}")


@pytest.mark.parametrize(
    "error",
    [StorageUnavailableError("no answer"), AlreadyExistsError("412"), RuntimeError("unmapped")],
    ids=["lost answer", "412 after success", "unmapped"],
)
def test_a_rollback_that_took_effect_is_completed_whatever_its_answer_was(base, error):
    """A storage's error was raised: the rollback was reported as failed."""
    meta, rollback = undoing(base)

    def fail(kind, path):
        if kind == "create":
            raise error

    meta.storage.hooks[1] = fail
    completed = find(meta, rollback)
    assert completed.is_completed
    assert meta.active_timeline().find(R, ROLLBACK) == completed


@pytest.fixture(params=[b"", b"{"], ids=["empty", "cut"])
def torn(request):
    """What a create that fails may leave: on a full disk mostly an empty file."""
    return request.param


def tear(base, content, error=None):
    """Return a hook with which a create leaves a part of its content, and fails."""

    def hook(kind, path):
        if kind == "create":
            (base / path).write_bytes(content)
            raise error or StorageUnavailableError("No space left on device")

    return hook


def test_a_commit_whose_file_is_torn_is_in_doubt_and_the_file_is_deleted(base, torn):
    """It counted as completed, although nobody could read what it had written."""
    meta, instant = begun(base, before=tear(base, torn))
    with pytest.raises(CommitOutcomeUnknownError, match="No space left on device") as info:
        finish(meta, instant)
    assert f"{meta.layout.folder} has a file {T}" in info.value.hint
    assert completed_files(base) == []
    assert meta.active_timeline().find(T, COMMIT) == instant


def test_a_torn_file_stays_once_another_writer_may_have_taken_over(base, torn):
    """That one may have executed the plan, and be writing the file."""
    meta, instant = begun(base, before=tear(base, torn, AlreadyExistsError("412")))

    def taken_over():
        raise ConcurrentWriteError("expired")

    with pytest.raises(CommitOutcomeUnknownError) as info:
        finish(meta, instant, taken_over)
    (name,) = completed_files(base)
    assert f"{base}/{meta.layout.folder}/{name} is there and damaged, delete it" in info.value.hint


def test_of_a_torn_file_that_can_not_be_deleted_the_hint_says_what_to_do(base, torn):
    tears, refuses = tear(base, torn), failing("delete", "")

    def before(kind, path):
        tears(kind, path)
        refuses(kind, path)

    meta, instant = begun(base, before)
    with pytest.raises(CommitOutcomeUnknownError) as info:
        finish(meta, instant)
    (name,) = completed_files(base)
    assert f"{base}/{meta.layout.folder}/{name} is there and damaged, delete it" in info.value.hint


def test_a_rollback_whose_file_is_torn_has_failed_and_can_be_carried_out_again(base, torn):
    meta, rollback = undoing(base)
    meta.storage.hooks[0] = tear(base, torn)
    with pytest.raises(StorageUnavailableError, match="No space left on device"):
        find(meta, rollback)
    assert meta.active_timeline().find(R, ROLLBACK) == rollback
    meta.storage.hooks[0] = None
    assert find(meta, rollback).is_completed


def test_the_file_that_another_writer_of_a_rollback_is_writing_stays(base, torn):
    meta, rollback = undoing(base)
    meta.storage.hooks[0] = tear(base, torn, AlreadyExistsError("taken"))
    with pytest.raises(ConcurrentWriteError, match="created by another writer"):
        find(meta, rollback)
    assert meta.active_timeline().find(R, ROLLBACK).is_completed


@pytest.mark.parametrize("is_blind", [False, True])
def test_a_rollback_of_which_nothing_is_seen_has_failed_for_its_own_reason(base, is_blind):
    meta, rollback = undoing(base)
    fail, blind = failing("create", ""), failing("list", "")

    def before(kind, path):
        fail(kind, path)
        if is_blind:
            blind(kind, path)

    meta.storage.hooks[0] = before
    with pytest.raises(StorageUnavailableError, match="injected: create"):
        find(meta, rollback)


def roll_back(meta, target, *, completed):
    plan = RollbackPlan(InstantInfo(target, COMMIT))
    rollback = meta.create_requested(ROLLBACK, R, plan)
    if completed:
        rollback = meta.transition_to_inflight(rollback)
        meta.complete(rollback, RollbackMetadata(R, commits_rollback=(target,)), f"{int(R) + 1}")


@pytest.mark.parametrize("done", [False, True], ids=["pending", "completed"])
def test_a_commit_that_is_being_rolled_back_is_withdrawn(base, done):
    meta, instant = begun(base)
    seen = meta.active_timeline()
    completed = finish(meta, instant)
    roll_back(meta, T, completed=done)
    with pytest.raises(ConcurrentWriteError, match=f"{T} of .* was rolled back by {R}"):
        withdraw_if_rolled_back(meta, completed, seen)
    assert completed_files(base) == []


@pytest.mark.parametrize("done", [False, True], ids=["pending", "completed"])
def test_another_instant_s_rollback_changes_nothing(base, done):
    meta, instant = begun(base)
    seen = meta.active_timeline()
    completed = finish(meta, instant)
    roll_back(meta, "20240101000000000", completed=done)
    withdraw_if_rolled_back(meta, completed, seen)
    assert len(completed_files(base)) == 1


@pytest.mark.parametrize("kind", ["list", "delete"])
def test_a_withdrawal_that_fails_is_in_doubt(base, kind):
    meta, instant = begun(base)
    seen = meta.active_timeline()
    completed = finish(meta, instant)
    roll_back(meta, T, completed=False)
    meta.storage.hooks[0] = failing(kind, "")
    with pytest.raises(CommitOutcomeUnknownError):
        withdraw_if_rolled_back(meta, completed, seen)


def test_a_compaction_that_another_writer_has_completed_is_not_taken_for_its_own(base):
    """Its writer stalled before the create, and another one has executed the plan since."""
    of_other, own = (
        CommitMetadata({"": (WriteStat("f", path),)}, compacted=True) for path in ("f_2", "f_1")
    )
    meta, instant = begun(base, after=failing("create", ".commit", times=1))
    assert complete_surely(meta, instant, of_other, DONE, lambda: None).is_completed
    others = completed_files(base)
    meta = TableMetaClient.open(HookedStorage(base, failing("create", ".commit")))
    with pytest.raises(ConcurrentWriteError, match="completed by another writer"):
        complete_surely(meta, instant, own, DONE, lambda: None)
    assert completed_files(base) == others
    assert complete_surely(meta, instant, of_other, DONE, lambda: None).is_completed

import itertools
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.kit.storage.memory_storage import MemoryStorage
from timeline.errors import (
    ConcurrentWriteError,
    CorruptMetadataError,
    IllegalTransitionError,
    InstantNotFoundError,
    TableNotFoundError,
    UnsupportedTableError,
)
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CleanerPlan,
    CleanMetadata,
    CommitMetadata,
    RequestedReplaceMetadata,
    RollbackMetadata,
    RollbackPlan,
    WriteStat,
)
from timeline.storage.base import FileInfo, FileKind, Storage
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config
from timeline.table.property_name import TIMELINE_PATH

T, C = "20261121080616345", "20261121080617000"
STATS = {"p": (WriteStat(file_id="f", path="p/f_0-0-0_1.parquet", num_writes=1),)}
COMMIT = CommitMetadata(STATS, {"schema": "{}"}, "INSERT")


@pytest.fixture(params=[6, 8, 9])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> TableMetaClient:
    storage = LocalStorage(str(tmp_path / "table"))
    write_table_config(storage, TableConfig.create(name="t", version=request.param), create=True)
    storage.calls._counts.clear()
    return TableMetaClient.open(storage)


def names(client: TableMetaClient) -> list[str]:
    return [f.name for f in client.storage.list(client.layout.folder) if f.name.startswith("2")]


def test_table_id_is_here_too() -> None:
    assert TableId.of("/t") == TableId.of("file:///t/")


def test_open_needs_a_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        TableMetaClient.open(LocalStorage(str(tmp_path)))


def test_a_commit(client: TableMetaClient) -> None:
    requested = client.create_requested("commit", T)
    assert client.active_timeline().instants == (requested,)
    inflight = client.transition_to_inflight(requested)
    assert client.active_timeline().instants == (inflight,)
    completed = client.complete(inflight, COMMIT, C)
    (found,) = client.active_timeline()
    assert found == completed == Instant(T, "commit", State.COMPLETED)
    assert client.read(found) == COMMIT
    assert client.read(requested) == CommitMetadata()
    old = client.config.version == 6
    done = f"{T}.commit" if old else f"{T}_{C}.commit"
    assert names(client) == sorted([f"{T}.commit.requested", f"{T}.inflight", done])
    assert (found.completion_time == C) is not old


def test_a_clean(client: TableMetaClient) -> None:
    plan = CleanerPlan(policy="KEEP_LATEST_COMMITS", extra_metadata={"k": "v"})
    requested = client.create_requested("clean", T, plan)
    inflight = client.transition_to_inflight(requested)
    assert client.read_plan(inflight) == plan
    assert client.read(inflight) == CleanerPlan()
    result = CleanMetadata(start_clean_time=T, total_files_deleted=3)
    completed = client.complete(inflight, result, C)
    assert client.read(client.active_timeline()[0]) == result
    assert client.read_plan(completed) == plan


def test_a_rollback(client: TableMetaClient) -> None:
    client.create_requested("commit", T)
    rollback = client.create_requested("rollback", C, RollbackPlan())
    inflight = client.transition_to_inflight(rollback)
    assert client.delete_instant_file(Instant(T, "commit", State.REQUESTED))
    assert not client.delete_instant_file(Instant(T, "commit", State.REQUESTED))
    client.complete(inflight, RollbackMetadata(commits_rollback=(T,)), "20261121080618000")
    assert [i.action for i in client.active_timeline()] == ["rollback"]


def test_a_clustering_completes_as_replacecommit(client: TableMetaClient) -> None:
    plan = RequestedReplaceMetadata("CLUSTER")
    requested = client.create_requested("clustering", T, plan)
    assert client.read_plan(client.active_timeline()[0]) == plan
    completed = client.complete(client.transition_to_inflight(requested), COMMIT, C)
    assert completed.action == "replacecommit"
    assert client.active_timeline().instants == (completed,)
    assert b"partitionToReplaceFileIds" in client.read_bytes(client.active_timeline()[0])


def test_a_savepoint_begins_inflight(client: TableMetaClient) -> None:
    with pytest.raises(IllegalTransitionError, match="savepoint"):
        client.create_requested("savepoint", T)
    client.transition_to_inflight(Instant(T, "savepoint", State.REQUESTED))
    assert names(client) == [f"{T}.savepoint.inflight"]


def test_illegal_steps(client: TableMetaClient) -> None:
    with pytest.raises(IllegalTransitionError, match="'party'"):
        client.create_requested("party", T)
    requested = client.create_requested("commit", T)
    with pytest.raises(IllegalTransitionError, match=r"is REQUESTED.*INFLIGHT"):
        client.complete(requested, COMMIT, C)
    inflight = client.transition_to_inflight(requested)
    with pytest.raises(IllegalTransitionError, match=r"is INFLIGHT.*REQUESTED"):
        client.transition_to_inflight(inflight)
    if client.config.version > 6:
        with pytest.raises(IllegalTransitionError, match="isn't later"):
            client.complete(inflight, COMMIT, T)


def test_what_was_rolled_back_does_not_go_on(client: TableMetaClient) -> None:
    requested = client.create_requested("commit", T)
    client.delete_instant_file(requested)
    with pytest.raises(IllegalTransitionError, match="not on the timeline"):
        client.transition_to_inflight(requested)
    client.create_requested("commit", T)
    inflight = client.transition_to_inflight(requested)
    client.delete_instant_file(inflight)
    with pytest.raises(IllegalTransitionError, match="rolled it back"):
        client.complete(inflight, COMMIT, C)


def test_each_state_has_one_creator(client: TableMetaClient) -> None:
    requested = client.create_requested("commit", T)
    with pytest.raises(ConcurrentWriteError, match=T):
        client.create_requested("commit", T)
    inflight = client.transition_to_inflight(requested)
    with pytest.raises(ConcurrentWriteError):
        client.transition_to_inflight(requested)
    client.complete(inflight, COMMIT, C)
    with pytest.raises(ConcurrentWriteError):
        client.complete(inflight, CommitMetadata(), C)
    assert client.read(client.active_timeline()[0]) == COMMIT


def write(storage: Storage, config: TableConfig) -> None:
    client = TableMetaClient(storage, config)
    client.complete(client.transition_to_inflight(client.create_requested("commit", T)), COMMIT, C)


@pytest.mark.parametrize("effect", [Effect.CRASH_BEFORE, Effect.CRASH_AFTER])
def test_a_writer_that_dies_anywhere_leaves_a_whole_state(
    client: TableMetaClient, effect: Effect
) -> None:
    whole = FaultyStorage(MemoryStorage())
    write(whole, client.config)
    for at in distinct_calls(whole.log, effect):
        storage = MemoryStorage()
        with pytest.raises(Crash):
            write(FaultyStorage(storage, [Fault(at, effect)]), client.config)
        left = TableMetaClient(storage, client.config)
        for instant in left.active_timeline():
            assert left.read(instant) in (CommitMetadata(), COMMIT)
            assert (left.read(instant) == COMMIT) == instant.is_completed


def test_a_file_that_is_gone_is_named(client: TableMetaClient) -> None:
    with pytest.raises(InstantNotFoundError, match=T):
        client.read(Instant(T, "clean", State.REQUESTED))
    with pytest.raises(InstantNotFoundError, match=r"clean\.requested"):
        client.read_plan(Instant(T, "clean", State.INFLIGHT))


def test_truncated_metadata_is_named(client: TableMetaClient) -> None:
    requested = client.create_requested("commit", T)
    completed = client.complete(client.transition_to_inflight(requested), COMMIT, C)
    (found,) = client.active_timeline()
    path = client.path_of(found)
    client.storage.replace(path, client.storage.read(path)[:-20])
    with pytest.raises(CorruptMetadataError, match=path) as caught:
        client.read(completed if client.config.version > 6 else found)
    assert client.storage.base_path in str(caught.value)


@pytest.mark.parametrize("client", [8, 9], indirect=True)
def test_a_legacy_commit_in_a_newer_table_reads(client: TableMetaClient) -> None:
    client.storage.create(
        f"{client.layout.folder}/{T}.commit",
        b'{"partitionToWriteStats": {}, "operationType": "INSERT"}',
    )
    (found,) = client.active_timeline()
    assert found.legacy
    assert client.read(found) == CommitMetadata(operation_type="INSERT")


def test_unreadable_actions_are_named(client: TableMetaClient) -> None:
    with pytest.raises(UnsupportedTableError, match="schemacommit"):
        client.read(Instant(T, "schemacommit", State.COMPLETED, C))


def test_calls_are_booked(client: TableMetaClient) -> None:
    client.active_timeline()
    requested = client.create_requested("clean", T, CleanerPlan())
    client.read_plan(requested)
    cleaning = client.for_cause("clean")
    cleaning.transition_to_inflight(requested)
    cleaning.active_timeline()
    assert client.storage.calls.snapshot() == {
        ("read", "table"): 1,
        ("list", "timeline"): 1,
        ("create", "commit"): 1,
        ("read", "timeline"): 1,
        ("stat", "clean"): 1,
        ("create", "clean"): 1,
        ("list", "clean"): 1,
    }


def test_nothing_archived_yet(client: TableMetaClient) -> None:
    archived = client.archived_timeline()
    assert archived.timeline.instants == ()
    assert archived.completion_times("", "~") == {}
    with pytest.raises(InstantNotFoundError):
        archived.read(Instant(T, "commit", State.COMPLETED, C))
    times = client.completion_times(client.active_timeline())
    assert times.completion_time(T) is None


@pytest.mark.parametrize("version", [8, 9])
def test_a_table_without_the_folder_of_its_timeline_is_refused(
    version: int, tmp_path: Path
) -> None:
    storage = LocalStorage(str(tmp_path))
    config = TableConfig.create(name="t", version=version)
    write_table_config(storage, config, create=True)
    assert not TableMetaClient.open(storage).active_timeline()
    elsewhere = config.with_properties({TIMELINE_PATH: "timeline2"})
    write_table_config(storage, elsewhere, create=False)
    with pytest.raises(CorruptMetadataError, match=r"no folder .hoodie/timeline2 .*='timeline2'"):
        TableMetaClient.open(storage).active_timeline()
    client = TableMetaClient.open(storage)
    (tmp_path / ".hoodie/timeline2").mkdir()
    assert not client.active_timeline()
    shutil.rmtree(tmp_path / ".hoodie")
    assert not client.active_timeline()  # the table was deleted


class MovedAt(LocalStorage):
    """A table that is renamed away, or back, before some calls; for one thread."""

    def __init__(self, base: Path, moves: Collection[int]) -> None:
        super().__init__(str(base))
        self.state = itertools.count(), moves, base

    def for_cause(self, cause: str) -> "MovedAt":
        return self

    def list(self, path: str) -> tuple[FileInfo, ...]:
        self.move()
        return super().list(path)

    def stat(self, path: str) -> FileInfo | None:
        self.move()
        return super().stat(path)

    def read(self, path: str, kind: FileKind = FileKind.INSTANT, size: int | None = None) -> bytes:
        self.move()
        return super().read(path, kind, size)

    def move(self) -> None:
        calls, moves, base = self.state
        if next(calls) in moves:
            away = base.with_name("away")
            base.rename(away) if base.exists() else away.rename(base)


def test_a_table_that_goes_or_comes_while_it_is_read_is_never_called_corrupt(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for moves in [m for n in (1, 2) for m in itertools.combinations(range(6), n)]:
        with subtests.test(moves=moves):
            for begins_away in (False, True):
                base = tmp_path / f"{moves} {begins_away}" / "t"
                base.mkdir(parents=True)
                config = TableConfig.create(name="t")
                write_table_config(LocalStorage(str(base)), config, create=True)
                if begins_away:
                    base.rename(base.with_name("away"))
                client = TableMetaClient(MovedAt(base, moves), config)
                with suppress(TableNotFoundError):
                    assert not client.active_timeline()


def test_a_table_of_another_layout_in_its_place_is_never_called_corrupt(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    client = TableMetaClient(storage, TableConfig.create(name="t", version=9))
    write_table_config(storage, TableConfig.create(name="t", version=6), create=True)
    assert not client.active_timeline()


def test_an_object_store_has_no_folder_without_files() -> None:
    storage = MemoryStorage()
    write_table_config(storage, TableConfig.create(name="t"), create=True)
    assert storage.stat(".hoodie/timeline") is None
    assert not TableMetaClient.open(storage).active_timeline()


@pytest.mark.parametrize("version", [6, 9])
def test_a_storage_that_keeps_listings_shows_what_was_added_and_removed(
    tmp_path: Path, version: int
) -> None:
    """Only names that are new are looked at and parsed (#32)."""
    plain = LocalStorage(str(tmp_path / "t"))
    config = TableConfig.create(name="t", version=version)
    write_table_config(plain, config, create=True)
    other = TableMetaClient(plain, config)
    ours = TableMetaClient(plain.keeping_listings(), config)
    plain.make_dir(ours.layout.folder)
    random = Random(32)
    pending: list[Instant] = []
    before = ours.active_timeline()
    for number in range(60):
        step = random.choice(("request", "request", "complete", "undo"))
        if step == "request":
            pending.append(other.create_requested("commit", f"{20250101000000000 + number}"))
        elif pending:
            instant = pending.pop(random.randrange(len(pending)))
            if step == "undo":
                other.delete_instant_file(instant)
            else:
                inflight = other.transition_to_inflight(instant)
                other.complete(inflight, CommitMetadata(), f"{20250201000000000 + number}")
        now = ours.active_timeline()
        assert list(map(repr, now)) == list(map(repr, other.active_timeline()))
        old = {i: i for i in before}
        assert all(old.get(i, i) is i for i in now if step != "undo" or i.is_completed)
        before = now
        with ours.storage.reusing_listing():
            calls = plain.calls.snapshot()
            assert ours.active_timeline() is now
            assert plain.calls.snapshot() == calls
            assert ours.active_timeline() == now
            assert plain.calls.snapshot() != calls

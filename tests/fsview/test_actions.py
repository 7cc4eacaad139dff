"""What actions do to a view that follows them, one case each, as the state machine found them."""

from __future__ import annotations

from contextlib import suppress

import pytest

from fsview.metrics import Metrics
from fsview.rebuilt import differences_from_rebuilt
from fsview.table_view import TableView
from tests.kit.model import archiving, cleaning, services, undoing, writes
from tests.kit.model.asking import Pin, Watcher, plan_differences, questions, shape
from tests.kit.model.table import ModelTable, Write
from timeline.errors import CorruptMetadataError, ViewBehindError
from timeline.instant import CLUSTERING, COMPACTION, REPLACE_COMMIT, ROLLBACK, Instant, State
from timeline.metadata import RollbackMetadata

GROUP = ("a", "a0-0")
VERSIONS = pytest.mark.parametrize("version", [6, 8, 9])
TYPES = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def a_table(
    version: int, table_type: str = "COPY_ON_WRITE", *, change_data: bool = False
) -> ModelTable:
    """Return a table with one group."""
    table = ModelTable(version, table_type, change_data=change_data)
    writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    return table


def watched(table: ModelTable) -> tuple[TableView, Metrics]:
    """Return a view of a table with partition a loaded."""
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.sync().load_partitions(["a"])
    return view, metrics


def assert_as_rebuilt(view: TableView, table: ModelTable) -> None:
    """Compare all that a view says after a sync with one built anew, and with the model."""
    followed, rebuilt = view.sync(), TableView(table.storage).sync()
    assert not list(plan_differences(followed, table.truth))
    assert not differences_from_rebuilt(followed.snapshot, table.storage)
    as_of = max(table.truth.completed)
    raw = ("all_file_groups", ())
    for name, arguments in (raw, *questions(as_of)):
        said = [shape(getattr(one, name)("a", *arguments)) for one in (followed, rebuilt)]
        assert said[0] == said[1], name
        if name != raw[0]:
            assert said[1] == getattr(table.truth, name)("a", *arguments), name


def reloads(metrics: Metrics) -> dict[str, int]:
    """Return by cause what was loaded anew."""
    found = metrics.counts().items()
    return {dict(labels)["cause"]: n for (name, labels), n in found if name.endswith("reloads")}


def forget(table: ModelTable, write: Write) -> None:
    """Take a write in flight away, its instant and its files, as nobody should."""
    for file in write.files:
        table.delete(file.path)
    table.remove(write.instant, State.INFLIGHT, State.REQUESTED)
    table.writes.remove(write)


def test_a_clustering_that_is_being_undone_pends_again() -> None:
    table = a_table(9)
    clustering = services.request_clustering(table, [GROUP])
    services.start(table, clustering)
    writes.complete(table, clustering)
    view = TableView(table.storage)
    assert view.sync().file_groups_in_pending_clustering() == ()
    undoing.uncomplete(table, clustering)
    (pending,) = view.sync().file_groups_in_pending_clustering()
    assert (pending.partition, pending.file_id) == GROUP


@pytest.mark.parametrize(
    ("table_type", "how"), [("COPY_ON_WRITE", "cdc"), ("MERGE_ON_READ", "grow")]
)
def test_what_the_archive_of_version_6_forgets_is_listed_again(
    table_type: str, how: writes.How
) -> None:
    table = a_table(6, table_type, change_data=how == "cdc")
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.sync().load_partitions(["a"])
    for _ in range(3):
        writes.complete(table, writes.begin(table, [(GROUP, how)]))
    for _ in range(2):
        writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    archived = archiving.to_archive(table)
    assert len(archived) == 5  # of which the view saw two
    archiving.archive(table, archived)
    rebuilt = TableView(table.storage).sync()
    assert shape(view.sync().all_file_groups("a")) == shape(rebuilt.all_file_groups("a"))
    assert metrics.get("partition_reloads", cause="files-unclear") == 1
    assert metrics.get("reloads") == 0


# What goes away without a word.


@VERSIONS
@TYPES
@pytest.mark.parametrize("loaded", ["before", "while"])
@pytest.mark.parametrize("rolled_back", [False, True], ids=["unsaid", "by-an-empty-rollback"])
def test_a_pending_write_that_goes_without_a_word_of_its_files(
    version: int, table_type: str, loaded: str, rolled_back: bool
) -> None:
    """Whoever listed its files while they lay there has them no more."""
    table = a_table(version, table_type)
    view, metrics = watched(table)
    write = writes.begin(table, [(GROUP, "log"), (("a", "a1-0"), "base")])
    if loaded == "while":
        view, metrics = watched(table)
    forget(table, write)
    if rolled_back:
        asked = table.meta.create_requested(ROLLBACK, table.tick())
        rollback = table.meta.transition_to_inflight(asked)
        said = RollbackMetadata(rollback.requested_time, commits_rollback=(write.time,))
        table.meta.complete(rollback, said, table.tick())
    assert_as_rebuilt(view, table)
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    assert_as_rebuilt(view, table)
    assert "check-failed" not in reloads(metrics)


@VERSIONS
@pytest.mark.parametrize(
    "loaded",
    [
        "before",
        "while",
    ],
)
def test_a_pending_clean_that_goes_after_it_deleted_some_files(version: int, loaded: str) -> None:
    table = a_table(version)
    for _ in range(3):
        writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    view, metrics = watched(table)
    files = cleaning.to_clean(table)
    cleaning.begin_clean(table, files)
    if loaded == "while":
        view, metrics = watched(table)
    view.sync()
    clean = table.under_way
    assert clean is not None
    table.remove(clean.instant, State.INFLIGHT, State.REQUESTED)
    table.under_way = None
    table.truth.files.pop(files[0].path)
    assert_as_rebuilt(view, table)
    assert metrics.get("reloads", cause="plan-vanished") == metrics.get("reloads") == 1


# Plans that aren't where they should be.


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("action", [COMPACTION, CLUSTERING])
def test_what_completed_between_two_syncs_and_has_no_plan_any_more(
    version: int, action: str
) -> None:
    table = a_table(version, "MERGE_ON_READ")
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    view, metrics = watched(table)
    if action == COMPACTION:
        write = services.request_compaction(table, [GROUP], logs_only=False)
    else:
        write = services.request_clustering(table, [GROUP])
    services.start(table, write)
    writes.complete(table, write)
    table.remove(Instant(write.time, action, State.REQUESTED), State.INFLIGHT, State.REQUESTED)
    assert_as_rebuilt(view, table)
    assert reloads(metrics) == ({"plan-vanished": 1} if action == COMPACTION else {})


@pytest.mark.parametrize("synced", [False, True], ids=["unseen", "seen"])
def test_a_clustering_that_was_requested_in_its_old_form(synced: bool) -> None:
    """Writers before 1.0 request a replacecommit; it may complete after an upgrade."""
    table = a_table(9)
    view, metrics = watched(table)
    clustering = services.request_clustering(table, [GROUP])
    files, path = table.storage.files, table.meta.path_of(clustering.instant)
    old = Instant(clustering.time, REPLACE_COMMIT, State.REQUESTED)
    files[table.meta.path_of(old)] = files.pop(path)
    clustering.instant = old
    if synced:
        (pending,) = view.sync().file_groups_in_pending_clustering()
        assert (pending.partition, pending.file_id) == GROUP
    services.start(table, clustering)
    writes.complete(table, clustering)
    assert_as_rebuilt(view, table)
    assert not reloads(metrics)


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("left", [0, 1])
def test_of_two_compactions_that_pend_on_a_group_one_is_taken_back(version: int, left: int) -> None:
    table = a_table(version, "MERGE_ON_READ")
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    view, metrics = watched(table)
    plans = [services.request_compaction(table, [GROUP], logs_only=False) for _ in range(2)]
    with pytest.raises(CorruptMetadataError, match=GROUP[1]):
        TableView(table.storage).sync()
    with pytest.raises(CorruptMetadataError, match=GROUP[1]):
        view.sync()
    services.drop(table, plans[1 - left])
    assert_as_rebuilt(view, table)
    services.start(table, plans[left])
    writes.complete(table, plans[left])
    assert_as_rebuilt(view, table)
    assert not reloads(metrics)


@VERSIONS
def test_what_a_failed_attempt_left_where_its_commit_wrote_nothing_goes_with_it(
    version: int,
) -> None:
    """It is listed for a load before the commit completes, and the timeline after."""
    table = a_table(version)
    watcher = Watcher(table)
    watcher.view.sync()
    write = writes.begin(table, [(GROUP, "base")], leftovers_in="b")
    watcher.storage.then["b"] = lambda: writes.complete(table, write)
    watcher.view.newest().load_partitions(["b"])
    assert not watcher.storage.then
    assert watcher.view.newest().all_file_groups("b") == ()
    assert_as_rebuilt(watcher.view, table)


@pytest.mark.parametrize(
    ("append", "unsaid"),
    [
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    ],
    ids=["new-log-said", "new-log-unsaid", "appended-said", "appended-unsaid"],
)
def test_a_log_that_was_listed_before_a_rollback_left_or_grew_it(
    append: bool, unsaid: bool
) -> None:
    """In version 6; release 0.15 says 1 for a log's size."""
    table = a_table(6, "MERGE_ON_READ")
    write = writes.begin(table, [(GROUP, "log")])
    view, metrics = watched(table)
    undoing.begin_rollback(table, write)
    undoing.finish_rollback(table, append=append, unsaid=unsaid)
    assert_as_rebuilt(view, table)
    assert metrics.get("reloads") == 0


@pytest.mark.parametrize(
    ("version", "table_type"),
    [
        (6, "MERGE_ON_READ"),
        (6, "COPY_ON_WRITE"),
        (9, "MERGE_ON_READ"),
        (9, "COPY_ON_WRITE"),
    ],
)
def test_what_was_undone_is_not_taken_back_for_who_holds_an_older_view(
    version: int, table_type: str
) -> None:
    """A restore says of logs of version 6 that they are left: they were there before, too."""
    table = a_table(version, table_type)
    (time,) = table.done
    undoing.save(table, time)
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    view = TableView(table.storage)
    held, right = view.sync(), table.truth.latest_file_slices("a")
    undoing.begin_restore(table, time)
    undoing.finish_restore(table, time)
    view.sync().load_partitions(["a"])
    with suppress(ViewBehindError):
        assert shape(held.latest_file_slices("a")) == right
    assert_as_rebuilt(view, table)


@VERSIONS
def test_who_comes_from_before_an_overwrite_that_is_being_undone_sees_its_groups(
    version: int,
) -> None:
    """The timeline is as before the overwrite again, for as long as the next commit takes."""
    table = a_table(version)
    view, _ = watched(table)
    before, right = Pin.of(table), table.truth.latest_base_files("a")
    overwrite = writes.begin_overwrite(table, [GROUP], [], "DELETE_PARTITION")
    writes.complete(table, overwrite)
    view.sync()
    undoing.uncomplete(table, overwrite)
    writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    view.sync()
    found = view.at(before.last_instant, before.timeline_hash)
    assert shape(found.latest_base_files("a")) == right


@VERSIONS
@pytest.mark.parametrize("ended", ["completed", "rolled back"])
def test_a_clustering_pends_for_who_knows_nothing_of_its_end_while_its_plan_is_there(
    version: int, ended: str
) -> None:
    """pinned.md, rule 7: plans exist as storage says now, completed is what the client knows."""
    table = a_table(version)
    view, _ = watched(table)
    clustering = services.request_clustering(table, [GROUP])
    services.start(table, clustering)
    view.sync()
    client = Pin.of(table)
    if ended == "completed":
        writes.complete(table, clustering)
    else:
        undoing.begin_rollback(table, clustering)
        undoing.finish_rollback(table)
    for server in (view, TableView(table.storage)):
        server.sync()
        found = server.at(client.last_instant, client.timeline_hash)
        pending = [(op.partition, op.file_id) for op in found.file_groups_in_pending_clustering()]
        assert pending == ([GROUP] if ended == "completed" else [])


@VERSIONS
def test_a_partition_that_was_written_to_while_a_clean_meant_to_delete_it_stays_known(
    version: int,
) -> None:
    """The clean says that it didn't delete it; its plan said that it would."""
    table = a_table(version)
    other = ("b", "b0-0")
    writes.complete(table, writes.begin(table, [(other, "base")]))
    writes.complete(table, writes.begin_overwrite(table, [GROUP], [], "DELETE_PARTITION"))
    writes.complete(table, writes.begin(table, [(other, "base")]))
    view = TableView(table.storage)
    view.sync().load_all_partitions()
    cleaning.begin_clean(table, cleaning.to_clean(table))
    clean = table.under_way
    assert clean is not None
    assert clean.partitions == ("a",)
    writes.complete(table, writes.begin(table, [(("a", "a1-0"), "base")]))
    cleaning.finish_clean(table)
    assert not differences_from_rebuilt(view.sync().snapshot, table.storage)


@pytest.mark.xfail(strict=True, reason="it is taken back as the rollback's own")
@pytest.mark.parametrize("append", [False, True])
def test_a_log_to_which_a_failed_write_appended_was_there_before(append: bool) -> None:
    """In version 6: a committed log, appended to by a write that failed, then by its rollback."""
    table = a_table(6, "MERGE_ON_READ")
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    failing = writes.begin(table, [(GROUP, "grow")])
    view = TableView(table.storage)
    held, right = view.sync(), table.truth.latest_file_slices("a")
    undoing.begin_rollback(table, failing)
    undoing.finish_rollback(table, append=append)
    view.sync().load_partitions(["a"])
    with suppress(ViewBehindError):
        assert shape(held.latest_file_slices("a")) == right

"""Effects of actions on a view that follows them, one case each; the state machine found them."""

from __future__ import annotations

from itertools import product

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.kit.tables.model import archiving, cleaning, services, undoing, writes
from tests.kit.tables.model.asking import Watcher, shape
from tests.kit.tables.model.cases import (
    GROUP,
    VERSIONS,
    a_table,
    assert_as_rebuilt,
    reloads,
    watched,
)
from tests.kit.tables.model.table import ModelTable, Write
from timeline.errors import CorruptMetadataError, ViewBehindError
from timeline.instant import CLUSTERING, COMPACTION, REPLACE_COMMIT, ROLLBACK, Instant, State
from timeline.metadata.instant_metadata import RollbackMetadata

TYPES = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def forget(table: ModelTable, write: Write) -> None:
    """Delete the instant and the files of a write in flight without a rollback."""
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
    assert LocalView.synced(view).file_groups_in_pending_clustering() == ()
    undoing.uncomplete(table, clustering)
    (pending,) = LocalView.synced(view).file_groups_in_pending_clustering()
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
    LocalView.synced(view).load_partitions(["a"])
    for _ in range(3):
        writes.complete(table, writes.begin(table, [(GROUP, how)]))
    for _ in range(2):
        writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    archived = archiving.to_archive(table)
    assert len(archived) == 5  # of which the view saw two
    archiving.archive(table, archived)
    rebuilt = LocalView.synced(TableView(table.storage))
    assert shape(LocalView.synced(view).all_file_groups("a")) == shape(rebuilt.all_file_groups("a"))
    assert metrics.get("partition_reloads", cause="files-unclear") == 1
    assert metrics.get("reloads") == 0


def test_what_is_listed_again_because_an_archive_forgot_of_it_is_counted() -> None:
    """The timeline is read after the listing, so the listing may be older."""
    table = a_table(6, change_data=True)
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.sync()
    for _ in range(3):
        writes.complete(table, writes.begin(table, [(GROUP, "cdc")]))
    archiving.archive(table, archiving.to_archive(table))
    with pytest.raises(ViewBehindError):  # of the older instant nothing is known any more
        LocalView.newest(view).load_partitions(["a"])
    assert_as_rebuilt(view, table)
    assert reloads(metrics) == {"files-unclear": 1}


@VERSIONS
def test_writes_are_followed_into_the_archive_where_savepoints_keep_all_that_are_left(
    version: int,
) -> None:
    """The timeline's start can't be told from the timeline itself then."""
    table = a_table(version)
    view, metrics = watched(table)
    for _ in range(2):
        writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    archived = archiving.to_archive(table)
    assert archived
    archiving.archive(table, archived)
    for time in list(table.done):
        undoing.save(table, time)
    assert_as_rebuilt(view, table)
    assert not reloads(metrics)


@VERSIONS
def test_writes_archived_unseen_are_followed_where_an_older_rollback_is_left(version: int) -> None:
    """Old and new timeline share the rollback, so they don't tell that writes were missed."""
    table = a_table(version)
    failed = writes.begin(table, [(GROUP, "base")])
    undoing.begin_rollback(table, failed)
    undoing.finish_rollback(table)
    view, metrics = watched(table)
    for _ in range(3):
        writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    asked = archiving.to_archive(table)
    archiving.archive(table, [each for each in asked if each.action != ROLLBACK])
    assert any(each.action == ROLLBACK for each in table.meta.active_timeline())
    assert_as_rebuilt(view, table)
    assert not reloads(metrics)


# What goes away without a word.


@VERSIONS
@TYPES
def test_a_pending_write_that_vanishes_with_its_files(
    subtests: pytest.Subtests, version: int, table_type: str
) -> None:
    """A view that listed its files while they existed has them no more."""
    for loaded, rolled_back in product(["before", "while"], [False, True]):
        with subtests.test(loaded=loaded, rolled_back=rolled_back):
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
        (pending,) = LocalView.synced(view).file_groups_in_pending_clustering()
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
    LocalView.newest(watcher.view).load_partitions(["b"])
    assert not watcher.storage.then
    assert LocalView.newest(watcher.view).all_file_groups("b") == ()
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
    """In version 6, where release 0.15 records a log's size as 1."""
    table = a_table(6, "MERGE_ON_READ")
    write = writes.begin(table, [(GROUP, "log")])
    view, metrics = watched(table)
    undoing.begin_rollback(table, write)
    undoing.finish_rollback(table, append=append, unsaid=unsaid)
    assert_as_rebuilt(view, table)
    assert metrics.get("reloads") == 0

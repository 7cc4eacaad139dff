"""Clients that are behind, one case each; the state machine found them."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.kit.tables.model import archiving, cleaning, services, undoing, writes
from tests.kit.tables.model.asking import Pin, shape
from tests.kit.tables.model.cases import GROUP, VERSIONS, a_table, assert_as_rebuilt, watched
from tests.kit.tables.rebuilt import differences_from_rebuilt
from timeline.errors import ViewBehindError
from timeline.instant import REPLACE_COMMIT


@pytest.mark.parametrize(
    ("version", "table_type"),
    [
        (6, "MERGE_ON_READ"),
        (6, "COPY_ON_WRITE"),
        (9, "MERGE_ON_READ"),
        (9, "COPY_ON_WRITE"),
    ],
)
def test_a_view_before_a_restore_that_deleted_its_files_is_refused(
    version: int, table_type: str
) -> None:
    """In version 6 a restore lists logs that it left; they were there before it, too."""
    table = a_table(version, table_type)
    (time,) = table.done
    undoing.save(table, time)
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    view = TableView(table.storage)
    held = LocalView.synced(view)
    undoing.begin_restore(table, time)
    undoing.finish_restore(table, time)
    LocalView.synced(view).load_partitions(["a"])
    with pytest.raises(ViewBehindError):
        held.latest_file_slices("a")
    assert_as_rebuilt(view, table)


@VERSIONS
def test_a_client_before_an_overwrite_being_undone_sees_its_groups(
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
    found = LocalView.at(view, before.last_instant, before.timeline_hash)
    assert shape(found.latest_base_files("a")) == right


@VERSIONS
@pytest.mark.parametrize("ended", ["completed", "rolled back"])
def test_a_clustering_pends_for_older_clients_while_its_plan_exists(
    version: int, ended: str
) -> None:
    """Plans are those on storage now; completed instants are those that the client knows."""
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
        found = LocalView.at(server, client.last_instant, client.timeline_hash)
        pending = [(op.partition, op.file_id) for op in found.file_groups_in_pending_clustering()]
        assert pending == ([GROUP] if ended == "completed" else [])


@VERSIONS
def test_a_partition_that_was_written_to_while_a_clean_meant_to_delete_it_stays_known(
    version: int,
) -> None:
    """The clean records that it didn't delete the partition, though its plan names it."""
    table = a_table(version)
    other = ("b", "b0-0")
    writes.complete(table, writes.begin(table, [(other, "base")]))
    writes.complete(table, writes.begin_overwrite(table, [GROUP], [], "DELETE_PARTITION"))
    writes.complete(table, writes.begin(table, [(other, "base")]))
    view = TableView(table.storage)
    LocalView.synced(view).load_all_partitions()
    cleaning.begin_clean(table, cleaning.to_clean(table))
    clean = table.under_way
    assert clean is not None
    assert clean.partitions == ("a",)
    writes.complete(table, writes.begin(table, [(("a", "a1-0"), "base")]))
    cleaning.finish_clean(table)
    assert not differences_from_rebuilt(view.sync(), table.storage)


@pytest.mark.parametrize("append", [False, True])
def test_a_view_before_a_failed_append_to_its_log_is_refused(append: bool) -> None:
    """In version 6: a committed log, appended to by a write that failed, then by its rollback."""
    table = a_table(6, "MERGE_ON_READ")
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    failing = writes.begin(table, [(GROUP, "grow")])
    view = TableView(table.storage)
    held = LocalView.synced(view)
    undoing.begin_rollback(table, failing)
    undoing.finish_rollback(table, append=append)
    LocalView.synced(view).load_partitions(["a"])
    with pytest.raises(ViewBehindError):
        held.latest_file_slices("a")


@pytest.mark.parametrize("append", [False, True])
def test_a_client_before_an_undone_append_is_refused(append: bool) -> None:
    """In version 6, whatever the rollback records as left."""
    table = a_table(6, "MERGE_ON_READ")
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    client = Pin.of(table)
    grown = writes.begin(table, [(GROUP, "grow")])
    writes.complete(table, grown)
    view, _ = watched(table)
    undoing.uncomplete(table, grown)
    undoing.begin_rollback(table, grown)
    undoing.finish_rollback(table, append=append)
    for server in (view, TableView(table.storage)):
        server.sync()
        with pytest.raises(ViewBehindError):
            LocalView.at(server, client.last_instant, client.timeline_hash).latest_file_slices("a")


def test_a_client_before_a_restore_that_deleted_logs_of_a_rollback_is_refused() -> None:
    """In version 6 its logs are recognised by age alone, and no step names them."""
    table = a_table(6, "MERGE_ON_READ")
    (time,) = table.done
    client = Pin.of(table)
    view = TableView(table.storage, retained_snapshots=2)
    LocalView.synced(view).load_partitions(["a"])
    undoing.save(table, time)
    view.sync()
    undoing.begin_rollback(table, writes.begin(table, [(GROUP, "log")]))
    undoing.finish_rollback(table)
    view.sync()
    undoing.begin_restore(table, time)
    undoing.finish_restore(table, time)
    view.sync()
    with pytest.raises(ViewBehindError):
        LocalView.at(view, client.last_instant, client.timeline_hash).latest_file_slices("a")


@pytest.mark.parametrize("version", [6, 9])
def test_a_client_that_knows_a_dropped_plan_is_refused(
    version: int,
) -> None:
    """Its timeline was never held, and no file has changed since."""
    table = a_table(version, "MERGE_ON_READ")
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    compaction = services.request_compaction(table, [GROUP], logs_only=False)
    client = Pin.of(table)
    writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    view, _ = watched(table)
    assert LocalView.at(view, client.last_instant, client.timeline_hash)
    services.drop(table, compaction)
    view.sync()
    with pytest.raises(ViewBehindError):
        view.at(client.last_instant, client.timeline_hash)


@VERSIONS
def test_raw_answers_to_older_clients_have_no_files_of_writes_in_flight_since(
    subtests: pytest.Subtests, version: int
) -> None:
    """Only a listing shows such files, and it was made at an instant later than the clients'."""
    for table_type, action, asked in product(
        ["COPY_ON_WRITE", "MERGE_ON_READ"],
        ["write", "overwrite", "clustering", "compaction"],
        ["all_file_groups", "latest_file_slices_including_inflight"],
    ):
        with subtests.test(table_type=table_type, action=action, asked=asked):
            table = a_table(version, table_type)
            compacts = action == "compaction" and table_type == "MERGE_ON_READ"
            if compacts:
                writes.complete(table, writes.begin(table, [(GROUP, "log")]))
            followed = TableView(table.storage)
            followed.sync()
            client, right = Pin.of(table), table.truth.all_file_slices("a")
            if compacts:
                compaction = services.request_compaction(table, [GROUP], logs_only=False)
                services.start(table, compaction, leftovers=True)
            elif action == "clustering":
                services.start(table, services.request_clustering(table, [GROUP]), leftovers=True)
            elif action == "overwrite":
                writes.begin_overwrite(table, [GROUP], ["a"], "INSERT_OVERWRITE", leftovers=True)
            else:
                wanted = [(GROUP, "log"), (("a", "a1-0"), "base"), (("a", "a2-0"), "log")]
                writes.begin(table, wanted, leftovers_in="a")
            writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
            for server in (followed, TableView(table.storage)):
                LocalView.synced(server).load_partitions(["a"])
                found = LocalView.at(server, client.last_instant, client.timeline_hash)
                refused = version == 6 and (table_type, action) == ("MERGE_ON_READ", "write")
                with pytest.raises(ViewBehindError) if refused else nullcontext():
                    assert shape(getattr(found, asked)("a")) == right


@VERSIONS
def test_a_client_before_an_archived_overwrite_sees_the_replaced_groups(
    version: int,
) -> None:
    """Its timeline was never held, and the newest has forgotten the overwrite."""
    table = a_table(version)
    writes.complete(table, writes.begin_overwrite(table, [GROUP], ["a"], "INSERT_OVERWRITE"))
    other = ("b", "b0-0")
    writes.complete(table, writes.begin(table, [(other, "base")]))
    client, right = Pin.of(table), table.truth.copy()
    overwrite = writes.begin_overwrite(table, [other], ["b"], "INSERT_OVERWRITE")
    writes.complete(table, overwrite)
    view = TableView(table.storage)
    LocalView.synced(view).load_partitions(["a"])
    cleaning.begin_clean(table, cleaning.to_clean(table))
    cleaning.finish_clean(table)
    for _ in range(3):
        writes.complete(table, writes.begin(table, [(("b", "b1-0"), "base")]))
    archived = archiving.to_archive(table)
    assert REPLACE_COMMIT in {instant.action for instant in archived}
    archiving.archive(table, archived)
    view.sync()
    found = LocalView.at(view, client.last_instant, client.timeline_hash)
    assert shape(found.latest_base_files("a")) == right.latest_base_files("a")
    with pytest.raises(ViewBehindError, match="removed since"):
        found.all_replaced_file_groups("a")

"""Plans that are damaged, lost or rolled back while they are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.fsview.faults.missing_files import a_table, names, truth
from tests.kit.storage.troubled_storage import cuts, foreign
from tests.kit.tables.small_table import SmallTable
from timeline.errors import CorruptMetadataError, InstantNotFoundError, PathNotFoundError
from timeline.instant import CLUSTERING, COMPACTION, LOG_COMPACTION, REPLACE_COMMIT, Instant, State
from timeline.metadata.instant_metadata import (
    ClusteringGroup,
    ClusteringPlan,
    CompactionPlan,
    CompactionPlanOperation,
    InstantMetadata,
    RequestedReplaceMetadata,
    SliceInfo,
)


def compaction_plan() -> InstantMetadata:
    return CompactionPlan((CompactionPlanOperation("1", "f1-0", "a", ("l",)),))


def clustering_plan() -> InstantMetadata:
    group = ClusteringGroup((SliceInfo("f1-0", "a"),))
    return RequestedReplaceMetadata("CLUSTER", ClusteringPlan((group,)))


PLANS = [
    (6, COMPACTION, compaction_plan),
    (6, LOG_COMPACTION, compaction_plan),
    (6, REPLACE_COMMIT, clustering_plan),
    (9, COMPACTION, compaction_plan),
    (9, LOG_COMPACTION, compaction_plan),
    (9, CLUSTERING, clustering_plan),
]


def pending(view: LocalView) -> list[str]:
    """Return the file ids of whatever pends."""
    return [
        operation.file_id
        for operation in (
            *view.pending_compaction_operations(),
            *view.pending_log_compaction_operations(),
            *view.file_groups_in_pending_clustering(),
        )
    ]


@pytest.mark.parametrize(("version", "action", "plan"), PLANS)
def test_a_damaged_plan_leaves_the_view_as_it_was(
    version: int, action: str, plan: Callable[[], InstantMetadata]
) -> None:
    table, view, _ = a_table(version)
    before = view.newest()
    asked = table.meta.create_requested(action, table.tick(), plan())
    path = table.meta.path_of(asked)
    good = table.storage.files[path]
    tried = 0
    for damage in (*cuts(good[0]), *foreign(path, good[0])):
        if damage.error is not None or (action == REPLACE_COMMIT and not damage.data):
            continue
        tried += 1
        table.storage.files[path] = (damage.data, good[1])
        with pytest.raises(CorruptMetadataError, match=path):
            view.sync()
        assert view.newest() is before
        with pytest.raises(CorruptMetadataError, match=path):
            TableView(table.storage).newest()
    table.storage.files[path] = good
    assert pending(LocalView.synced(view)) == ["f1-0"]
    assert tried >= 6


@pytest.mark.parametrize(("version", "action", "plan"), PLANS)
def test_a_plan_that_is_rolled_back_while_it_is_read(
    version: int, action: str, plan: Callable[[], InstantMetadata]
) -> None:
    """It is listed, gone when it is read, and gone from the next listing."""
    table, view, metrics = a_table(version)
    asked = table.meta.create_requested(action, table.tick(), plan())
    path = table.meta.path_of(asked)

    def roll_back(kind: str, wanted: str) -> None:
        if (kind, wanted) == ("read", path):
            table.storage.files.pop(path, None)

    table.storage.fail.append(roll_back)
    assert pending(LocalView.synced(view)) == []
    assert pending(LocalView.newest(TableView(table.storage))) == []
    table.storage.fail.remove(roll_back)
    assert names(LocalView.synced(view), "a") == truth(table, "a")
    assert metrics.get("reloads") == 0


@pytest.mark.parametrize(("version", "action", "plan"), PLANS)
def test_a_plan_that_is_lost_for_good_is_named(
    version: int, action: str, plan: Callable[[], InstantMetadata]
) -> None:
    """Listed each time and never there; of a clustering Hudi takes that for no plan."""
    table, view, _ = a_table(version)
    asked = table.meta.create_requested(action, table.tick(), plan())
    path = table.meta.path_of(asked)

    def hide(kind: str, wanted: str) -> None:
        if (kind, wanted) == ("read", path):
            raise PathNotFoundError(f"no file {wanted}")

    table.storage.fail.append(hide)
    if action in (REPLACE_COMMIT, CLUSTERING):
        assert pending(LocalView.synced(view)) == []
        return
    for look in (view.sync, TableView(table.storage).newest):
        with pytest.raises(InstantNotFoundError, match=path):
            look()


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("removal", ["clean", "rollback"])
def test_a_damaged_plan_of_a_removal_under_way_hinders_loads_only(
    version: int, removal: str
) -> None:
    """A listing can't be trusted without the plan; partitions already loaded are answered."""
    table, view, _ = a_table(version)
    before = names(LocalView.newest(view), "a")
    if removal == "clean":
        instant, *_ = table.begin_clean(table.to_clean())
    else:
        asked = table.meta.create_requested("rollback", table.tick(), compaction_plan())
        instant = table.meta.transition_to_inflight(asked)
    path = table.meta.path_of(Instant(instant.requested_time, removal, State.REQUESTED))
    good = table.storage.files[path]
    assert names(LocalView.synced(view), "a") == before
    for data in (good[0][: len(good[0]) // 2], b"\x00" * 99, b"{}"):
        table.storage.files[path] = (data, good[1])
        fresh = TableView(table.storage)
        with pytest.raises(CorruptMetadataError, match=path):
            LocalView.newest(fresh).all_base_files("a")
        assert names(LocalView.synced(view), "a") == before
    if removal == "clean":
        table.storage.files[path] = good
        assert names(LocalView.newest(fresh), "a") == before


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("action", ["savepoint", "indexing", "schemacommit"])
def test_what_touches_no_file_isnt_read(version: int, action: str) -> None:
    table, view, metrics = a_table(version)
    table.write(("a", "f1-0"))
    time, done = table.tick(), table.tick()
    name = f"{time}.{action}" if version == 6 else f"{time}_{done}.{action}"
    table.storage.files[f"{table.meta.layout.folder}/{name}"] = (b"\x00rubbish", 0)
    assert names(LocalView.synced(view), "a") == truth(table, "a")
    assert any(instant.action == action for instant in view.newest().timeline)
    assert metrics.get("reloads") == 0


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("damaged", ["a commit", "a plan", "an overwrite at the start"])
def test_a_damaged_file_is_decoded_again_only_once_it_has_changed(
    version: int, damaged: str
) -> None:
    """Each request needs it, and a refusal may take seconds (#32)."""
    table, view, _ = a_table(version)
    if damaged == "a plan":
        action = CLUSTERING if version == 9 else REPLACE_COMMIT
        path = table.meta.path_of(
            table.meta.create_requested(action, table.tick(), clustering_plan())
        )
    else:
        table.write(("a", "f8-0"))  # good, and read before the damaged one
        replaces = [("a", "f1-0")] if damaged == "an overwrite at the start" else []
        time = table.write(("a", "f9-0"), replaces=replaces)
        path = table.meta.path_of(completed(table, time))
    if damaged == "an overwrite at the start":
        view = TableView(table.storage)
    data, mtime = table.storage.files[path]
    reads: list[list[str]] = []
    table.storage.fail.append(lambda kind, path: reads[-1].append(path) if kind == "read" else None)
    for bad in (b"{" * len(data), b"[" * len(data)):  # of the same size
        mtime += 1
        table.storage.files[path] = bad, mtime
        messages = set()
        for _ in range(3):
            reads.append([])
            with pytest.raises(CorruptMetadataError, match=path) as refused:
                view.sync()
            messages.add(str(refused.value))
        assert len(messages) == 1
        first, *later = reads[-3:]
        assert path in first
        assert all(path not in asked for asked in later)
        assert damaged == "an overwrite at the start" or later == [[], []]
    table.storage.files[path] = data, mtime + 1
    reads.append([])
    view.sync()
    assert path in reads[-1]


def test_a_file_replaced_while_it_is_refused_is_decoded_again() -> None:
    """Its time is looked up after it was read, and may be that of the good one (#32)."""
    table, view, _ = a_table(9)
    path = table.meta.path_of(completed(table, table.write(("a", "f9-0"))))
    good = table.storage.files[path]
    table.storage.files[path] = b"{" * len(good[0]), good[1]

    def repair(kind: str, called: str) -> None:
        if (kind, called) == ("stat", path):
            table.storage.files[path] = good

    table.storage.fail.append(repair)
    with pytest.raises(CorruptMetadataError, match=path):
        view.sync()
    view.sync()
    assert view.newest().active.last == completed(table, max(table.model.committed))


def completed(table: SmallTable, time: str) -> Instant:
    """Return a completed instant."""
    found = table.meta.active_timeline().find(time)
    assert found is not None
    return found

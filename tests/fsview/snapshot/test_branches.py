"""What is kept of the steps back to a client that is behind."""

from __future__ import annotations

from dataclasses import replace

from fsview.files.group import PackedFiles
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.model.file_group import BaseFile
from fsview.record.base import NoRecord
from fsview.snapshot.delta import Delta, PartitionChange
from fsview.snapshot.history import History
from fsview.snapshot.history_link import MAX_BRANCH_ENTRIES, Branch, Link
from fsview.snapshot.snapshot import LoadedFiles, Snapshot
from fsview.snapshot.timeline_change import Step
from fsview.state.table_state import TableState
from fsview.store.budget import Share
from fsview.sync.client_behind import BranchFinder
from fsview.sync.follower import TimelineFollower
from fsview.table_view import TableView
from tests.fsview.snapshot.clients_behind import Known, calls, known_now, upsert
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.tables.model import services, writes
from tests.kit.tables.model.table import ModelTable
from tests.kit.tables.small_table import SmallTable
from timeline.instant import COMMIT, Instant, State
from timeline.storage.table_id import TableId


def written(writes: int) -> tuple[SmallTable, list[Known]]:
    """Return a table and a client's last instant and hash after each write."""
    table = SmallTable()
    seen = []
    for _ in range(writes):
        table.write(("a", "f1"))
        seen.append(table.known())
    return table, seen


def branching(table: SmallTable) -> tuple[TableState, BranchFinder]:
    """Return the state of a table that was read, and a finder of its branches."""
    table_id, share = TableId.of(table.storage.base_path), Share.unbounded()
    state = TableState(NoRecord(), table_id, retained=64, share=share)
    follower = TimelineFollower(table.storage, state, metrics=Metrics(), clock=ManualClock(0))
    follower.newest()
    return state, BranchFinder(follower)


def test_a_branch_keeps_one_snapshot_and_the_steps_since() -> None:
    table, seen = written(30)
    state, finder = branching(table)
    newest = state.history.newest
    use = finder.find(*seen[4])
    assert use is not None
    start = use.snapshot
    (branch,) = state.history.branches
    assert branch.start is start
    assert branch.onto is newest
    assert len(branch.steps) == 25
    assert {id(link.snapshot) for link in branch.links} == {id(start), id(newest)}


def test_clients_on_the_way_of_another_share_its_steps_and_read_nothing() -> None:
    table, seen = written(30)
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.newest()
    view.at(*seen[0])
    read = calls(view, "past")
    for known in seen[1:-1]:
        (file,) = LocalView.at(view, *known).latest_base_files("a")
        assert file.instant == known[0]
    assert calls(view, "past") == read
    assert metrics.get("branches", outcome="shared") == 28


def test_the_steps_that_are_shared_are_the_same_ones() -> None:
    table, seen = written(30)
    state, finder = branching(table)
    for known in seen[:-1]:
        finder.find(*known)
    branches = state.history.branches
    assert [len(branch.steps) for branch in branches] == list(range(29, 0, -1))
    assert len({id(step) for branch in branches for step in branch.steps}) == 29


def test_what_pends_on_a_shared_way_is_as_if_it_had_been_read() -> None:
    table = ModelTable(9, "MERGE_ON_READ")
    groups = [("a", f"g{n}-0") for n in range(4)]
    seen = []
    for group in groups:
        upsert(table, group)
    seen.append(known_now(table))
    plans = [
        services.request_compaction(table, groups[:1], logs_only=False),
        services.request_compaction(table, groups[1:2], logs_only=True),
        services.request_clustering(table, groups[2:3]),
    ]
    for plan in (*plans, None):
        upsert(table, ("b", "g4-0"))
        seen.append(known_now(table))
        if plan is not None:
            services.start(table, plan)
            writes.complete(table, plan)
    upsert(table, ("b", "g4-0"))
    metrics = Metrics()
    shared = TableView(table.storage, metrics=metrics)
    for known in seen:
        found = shared.at(*known).snapshot
        anew = TableView(table.storage).at(*known).snapshot
        for name in ("pending_compaction", "pending_clustering", "replaced"):
            assert getattr(found, name) == getattr(anew, name), name
        assert found.pending_log_compaction.keys() == anew.pending_log_compaction.keys()
    assert metrics.get("branches", outcome="shared") == len(seen) - 1


def test_what_all_branches_hold_is_bounded() -> None:
    table, _ = written(1)
    newest = TableView(table.storage).newest()
    history = History((Link(newest),))
    for n in range(30):
        branch = heavy_branch(newest, n, steps=10, files=200)
        history = history.with_branch(branch).keeping(1, 64)
    held = [step for branch in history.branches for step in branch.steps]
    files = sum(len(c.added) for step in held for c in step.delta.partitions.values())
    assert MAX_BRANCH_ENTRIES / 2 < len(held) + files <= MAX_BRANCH_ENTRIES
    assert history.branches[-1].steps[0].at == "29", "the oldest are dropped"


def test_branches_that_share_steps_count_once() -> None:
    table, _ = written(1)
    newest = TableView(table.storage).newest()
    longest = heavy_branch(newest, 0, steps=60, files=200)
    history = History((Link(newest),))
    for n in range(60):
        rest = Branch(replace(newest, files=LoadedFiles()), longest.steps[n:], newest)
        history = history.with_branch(rest).keeping(1, 64)
    assert len(history.branches) == 60


def test_a_branch_is_kept_however_long() -> None:
    table, _ = written(1)
    newest = TableView(table.storage).newest()
    branch = heavy_branch(newest, 0, steps=100, files=MAX_BRANCH_ENTRIES)
    history = History((Link(newest),)).with_branch(branch).keeping(1, 64)
    (kept,) = history.with_branch(branch).keeping(1, 64).branches
    assert kept.start is branch.start


def heavy_branch(onto: Snapshot, number: int, *, steps: int, files: int) -> Branch:
    """Return a branch whose steps name many files."""
    names = (f"f1_{n}-0-0_0.parquet" for n in range(files))
    added = PackedFiles.of("a", [BaseFile("a", name, 1, 0, "f1", "0") for name in names])
    made = tuple(
        Step(
            str(number),
            Instant(f"{number}-{n}", COMMIT, State.COMPLETED),
            Delta({"a": PartitionChange(added)}),
        )
        for n in range(steps)
    )
    return Branch(replace(onto, files=LoadedFiles()), made, onto)

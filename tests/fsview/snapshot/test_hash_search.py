"""Finding timelines that were never published: its cost, and that of keeping branches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsview.files.change import PackedFiles
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.model.file_group import BaseFile
from fsview.snapshot.delta import Delta, PartitionChange
from fsview.snapshot.hash_search import MAX_HASHES, MAX_QUESTIONS, Question, Questions
from fsview.snapshot.history import History
from fsview.snapshot.history_link import MAX_BRANCH_ENTRIES, Branch, Link
from fsview.snapshot.snapshot import LoadedFiles, Snapshot
from fsview.snapshot.step import Step
from fsview.state.table_state import TableState
from fsview.store.budget import Share
from fsview.store.memory import MemoryStore
from fsview.sync.branch_finder import BranchFinder
from fsview.sync.follower import TimelineFollower
from fsview.sync.plan_reader import snapshot_of
from fsview.table_view import TableView
from tests.kit.manual_clock import ManualClock
from tests.kit.model import services, writes
from tests.kit.model.asking import Pin
from tests.kit.model.table import ModelTable
from tests.kit.small_table import SmallTable
from timeline.errors import CorruptMetadataError, ViewBehindError
from timeline.instant import COMMIT, Instant, State
from timeline.storage.table_id import TableId
from timeline.timeline import Timeline

NOBODYS = "0" * 64
Known = tuple[str, str]
"""Last instant and hash of a client's timeline."""


def known_now(table: ModelTable) -> Known:
    """Return the last instant and the hash of a client that reads the timeline now."""
    pin = Pin.of(table)
    return pin.last_instant, pin.timeline_hash


def compacting(compactions: int, commits: int = 10) -> ModelTable:
    """Return a table of some delta commits with compactions requested."""
    table = ModelTable(9, "MERGE_ON_READ")
    groups = [("a", f"g{n}-0") for n in range(max(1, compactions))]
    for n in range(max(commits, len(groups))):
        upsert(table, groups[n % len(groups)])
    for group in groups[:compactions]:
        services.request_compaction(table, [group], logs_only=False)
    return table


def upsert(table: ModelTable, group: tuple[str, str] = ("a", "g0-0")) -> None:
    writes.complete(table, writes.begin(table, [(group, "base")]))


def is_refused(view: TableView, known: Known) -> bool:
    try:
        view.at(*known)
    except ViewBehindError:
        return True
    return False


# Which timeline it is.


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_every_timeline_that_a_client_read_is_found(table_type: str) -> None:
    table = ModelTable(9, table_type)
    seen: list[tuple[Known, Timeline]] = []

    def look() -> None:
        seen.append((known_now(table), table.meta.active_timeline()))

    groups = [("a", "g0-0"), ("a", "g1-0")]
    for group in groups:
        upsert(table, group)
        look()
    if table.merges_on_read:
        plans = [
            services.request_compaction(table, [g], logs_only=n > 0) for n, g in enumerate(groups)
        ]
        for plan in plans:
            look()
            services.start(table, plan)
            look()
            upsert(table, ("a", "g2-0"))
            look()
        writes.complete(table, plans[0])
    upsert(table, ("a", "g2-0"))
    newest = snapshot_of(table.meta)
    for (last_instant, timeline_hash), active in seen:
        found = Question(last_instant, timeline_hash).find([newest])
        assert found == (newest, active.client_timeline())
        last = active.server_timeline().last
        assert last is not None
        served = Question(last.requested_time, active.server_timeline().hash)
        assert served.find([newest]) == (newest, active.server_timeline())


def test_an_unknown_hash_is_looked_for_within_bounds() -> None:
    table = compacting(6, commits=60)
    last_instant, _ = known_now(table)
    question = Question(last_instant, NOBODYS)
    assert question.find([snapshot_of(table.meta)]) is None
    assert question.hashes == MAX_HASHES


def test_the_likelier_states_are_tried_first() -> None:
    """Of six compactions of which some are running, and that many completions ago."""
    table = compacting(6)
    for plan in table.writes[:3]:
        services.start(table, plan)
    known = known_now(table)
    for plan in table.writes[3:]:
        services.start(table, plan)
    for _ in range(20):
        upsert(table, ("a", "other-0"))
    question = Question(*known)
    assert question.find([snapshot_of(table.meta)]) is not None
    assert question.hashes < MAX_HASHES


def test_what_snapshots_have_in_common_is_tried_once() -> None:
    table = compacting(3)
    last_instant, _ = known_now(table)
    view = TableView(table.storage)
    snapshots = [view.newest()]
    once = Question(last_instant, NOBODYS)
    once.find(snapshots)
    for _ in range(5):
        upsert(table, ("a", "other-0"))
        snapshots.insert(0, view.sync())
    often = Question(last_instant, NOBODYS)
    often.find(snapshots)
    assert 0 < often.hashes == once.hashes


def test_what_was_tried_is_not_tried_again() -> None:
    table = compacting(3)
    upsert(table, ("a", "g3-0"))
    late = writes.begin(table, [(("a", "late-0"), "base")])
    services.request_compaction(table, [("a", "g3-0")], logs_only=False)
    last_instant, _ = known_now(table)
    before, again = Question(last_instant, NOBODYS), Question(last_instant, NOBODYS)
    old = snapshot_of(table.meta)
    before.find([old])
    again.find([old])
    writes.complete(table, late)
    new, anew = snapshot_of(table.meta), Question(last_instant, NOBODYS)
    again.find([new, old])
    anew.find([new])
    assert again.hashes < before.hashes + anew.hashes / 2


def test_a_timeline_is_found_again() -> None:
    """The steps since it may have been dropped."""
    table = compacting(2)
    question = Question(*known_now(table))
    upsert(table)
    newest = snapshot_of(table.meta)
    found = question.find([newest])
    assert found is not None
    assert question.find([newest]) == found


def test_a_client_that_is_ahead_costs_no_hash() -> None:
    table, metrics = compacting(6), Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.newest()
    upsert(table, ("a", "other-0"))
    known = known_now(table)
    assert LocalView.at(view, *known).last_instant() == view.newest().timeline.last
    assert metrics.get("timelines_tried") == 0


def test_the_questions_remembered_are_bounded() -> None:
    questions = Questions()
    first = questions.of("0", NOBODYS)
    for n in range(MAX_QUESTIONS):
        assert questions.of("0", NOBODYS) is first, "those asked again stay"
        questions.of(str(n + 1), NOBODYS)
    assert len(questions) == MAX_QUESTIONS


# Who was refused.


def test_an_unknown_hash_is_looked_for_once_while_nothing_happens() -> None:
    table, metrics = compacting(3), Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.newest()
    known = known_now(table)[0], NOBODYS
    assert is_refused(view, known)
    tried = metrics.get("timelines_tried")
    assert tried > 0
    assert is_refused(view, known)
    upsert(table, ("a", "other-0"))
    assert is_refused(view, known)
    assert metrics.get("timelines_tried") == tried, "what came after it changes nothing"


def a_table_with_a_gap() -> tuple[SmallTable, Known]:
    """Return a table, and a timeline since which changes happened that can't be reconstructed."""
    table = SmallTable()
    table.write(("a", "f1"))
    known = table.known()
    times = [table.write(("a", "f1")) for _ in range(20)]
    path = table.meta.path_of(table.meta.active_timeline().find(times[9]))  # type: ignore[arg-type]
    table.storage.replace(path, b"")
    return table, known


def calls(view: TableView, cause: str) -> int:
    return sum(n for (_, booked), n in view.storage.calls.snapshot().items() if booked == cause)


def test_a_refused_client_is_read_for_once() -> None:
    table, known = a_table_with_a_gap()
    view = TableView(table.storage)
    view.newest()
    assert is_refused(view, known)
    read = calls(view, "past")
    assert 0 < read < 30, "once before the sync, and not after it again"
    for _ in range(3):
        assert is_refused(view, known)
    assert calls(view, "past") == read


def test_a_refused_client_is_read_for_again_when_something_happened() -> None:
    table, known = a_table_with_a_gap()
    view = TableView(table.storage)
    view.newest()
    assert is_refused(view, known)
    read = calls(view, "past")
    table.write(("a", "f1"))
    view.sync()
    assert is_refused(view, known)
    assert calls(view, "past") > read


def test_a_storage_failure_refuses_no_client_for_good() -> None:
    table = SmallTable()
    table.write(("a", "f1"))
    known = table.known()
    time = table.write(("a", "f1"))
    view = TableView(table.storage)
    view.newest()
    path = table.meta.path_of(table.meta.active_timeline().find(time))  # type: ignore[arg-type]
    right = table.storage.read(path)
    table.storage.replace(path, b"{")
    with pytest.raises(CorruptMetadataError):
        view.at(*known)
    table.storage.replace(path, right)
    assert [file.instant for file in LocalView.at(view, *known).latest_base_files("a")] == [
        known[0]
    ]


# What is kept of the way.


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
    state = TableState(MemoryStore(), table_id, retained=64, share=share)
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

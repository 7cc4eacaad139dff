"""Which timeline a client's hash is of, within bounds, and who is refused."""

from __future__ import annotations

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.snapshot.hash_search import MAX_HASHES, HashSearch
from fsview.sync.client_behind import MAX_SEARCHES, HashSearches
from fsview.sync.metadata_reader import snapshot_of
from fsview.table_view import TableView
from tests.fsview.snapshot.clients_behind import Known, calls, known_now, upsert
from tests.kit.tables.model import services, writes
from tests.kit.tables.model.table import ModelTable
from tests.kit.tables.small_table import SmallTable
from timeline.errors import CorruptMetadataError, ViewBehindError
from timeline.timeline import Timeline

NOBODYS = "0" * 64


def compacting(compactions: int, commits: int = 10) -> ModelTable:
    """Return a table of some delta commits with compactions requested."""
    table = ModelTable(9, "MERGE_ON_READ")
    groups = [("a", f"g{n}-0") for n in range(max(1, compactions))]
    for n in range(max(commits, len(groups))):
        upsert(table, groups[n % len(groups)])
    for group in groups[:compactions]:
        services.request_compaction(table, [group], logs_only=False)
    return table


def is_refused(view: TableView, known: Known) -> bool:
    try:
        view.at(*known)
    except ViewBehindError:
        return True
    return False


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
        found = HashSearch(last_instant, timeline_hash).find([newest])
        assert found == (newest, active.client_timeline())
        last = active.server_timeline().last
        assert last is not None
        served = HashSearch(last.requested_time, active.server_timeline().hash)
        assert served.find([newest]) == (newest, active.server_timeline())


def test_an_unknown_hash_is_looked_for_within_bounds() -> None:
    table = compacting(6, commits=60)
    last_instant, _ = known_now(table)
    search = HashSearch(last_instant, NOBODYS)
    assert search.find([snapshot_of(table.meta)]) is None
    assert search.hashes == MAX_HASHES


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
    search = HashSearch(*known)
    assert search.find([snapshot_of(table.meta)]) is not None
    assert search.hashes < MAX_HASHES


def test_what_snapshots_have_in_common_is_tried_once() -> None:
    table = compacting(3)
    last_instant, _ = known_now(table)
    view = TableView(table.storage)
    snapshots = [view.newest()]
    once = HashSearch(last_instant, NOBODYS)
    once.find(snapshots)
    for _ in range(5):
        upsert(table, ("a", "other-0"))
        snapshots.insert(0, view.sync())
    often = HashSearch(last_instant, NOBODYS)
    often.find(snapshots)
    assert 0 < often.hashes == once.hashes


def test_what_was_tried_is_not_tried_again() -> None:
    table = compacting(3)
    upsert(table, ("a", "g3-0"))
    late = writes.begin(table, [(("a", "late-0"), "base")])
    services.request_compaction(table, [("a", "g3-0")], logs_only=False)
    last_instant, _ = known_now(table)
    before, again = HashSearch(last_instant, NOBODYS), HashSearch(last_instant, NOBODYS)
    old = snapshot_of(table.meta)
    before.find([old])
    again.find([old])
    writes.complete(table, late)
    new, anew = snapshot_of(table.meta), HashSearch(last_instant, NOBODYS)
    again.find([new, old])
    anew.find([new])
    assert again.hashes < before.hashes + anew.hashes / 2


def test_a_timeline_is_found_again() -> None:
    """The steps since it may have been dropped."""
    table = compacting(2)
    search = HashSearch(*known_now(table))
    upsert(table)
    newest = snapshot_of(table.meta)
    found = search.find([newest])
    assert found is not None
    assert search.find([newest]) == found


def test_a_client_that_is_ahead_costs_no_hash() -> None:
    table, metrics = compacting(6), Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.newest()
    upsert(table, ("a", "other-0"))
    known = known_now(table)
    assert LocalView.at(view, *known).last_instant() == view.newest().timeline.last
    assert metrics.get("timelines_tried") == 0


def test_the_questions_remembered_are_bounded() -> None:
    searches = HashSearches()
    first = searches.of("0", NOBODYS)
    for n in range(MAX_SEARCHES):
        assert searches.of("0", NOBODYS) is first, "those asked again stay"
        searches.of(str(n + 1), NOBODYS)
    assert len(searches) == MAX_SEARCHES


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

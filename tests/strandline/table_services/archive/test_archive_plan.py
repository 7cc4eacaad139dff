"""Which instants an archival moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.settings.setting import Settings, settings_of
from strandline.table_services.archive.plan import LastClean, is_due, to_archive
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.clean.parts import PART
from timeline.errors import ConfigError
from timeline.instant import (
    CLEAN,
    COMMIT,
    DELTA_COMMIT,
    REPLACE_COMMIT,
    ROLLBACK,
    SAVEPOINT,
    Instant,
    State,
)
from timeline.metadata.instant_metadata import CleanMetadata, CleanPartitionMetadata
from timeline.timeline import Timeline

SETTINGS = ArchiveSettings(keep_min=4, keep_max=6)


def at(number: int, action: str = COMMIT, state: State = State.COMPLETED) -> Instant:
    return Instant(f"{number:017}", action, state, f"{number:017}")


def times(number: int) -> str:
    return f"{number:017}"


def numbers(instants: tuple[Instant, ...]) -> list[int]:
    return [int(i.requested_time) for i in instants]


COMMITS = [at(n) for n in range(1, 11)]


def planned(*more: Instant, layout: int = 2, settings: ArchiveSettings = SETTINGS, **known):
    return numbers(to_archive(Timeline.of([*COMMITS, *more]), settings, layout=layout, **known))


def test_the_oldest_go_down_to_the_minimum():
    assert planned() == [1, 2, 3, 4, 5, 6]


def test_nothing_goes_up_to_the_maximum():
    timeline = Timeline.of(COMMITS[:6])
    assert to_archive(timeline, SETTINGS, layout=2) == ()
    assert not is_due(timeline, SETTINGS)
    assert is_due(Timeline.of(COMMITS[:7]), SETTINGS)


@pytest.mark.parametrize(
    ("more", "known", "last"),
    [
        ([at(4, SAVEPOINT)], {}, 3),
        ([at(5, ROLLBACK, State.INFLIGHT)], {}, 3),
        ([at(4, COMMIT, State.REQUESTED)], {}, 10),
        ([], {"earliest_held": times(3)}, 2),
        ([], {"clean": LastClean(times(9), times(4))}, 3),
        ([], {"clean": LastClean(times(5))}, 4),
        ([], {"retained_from": times(5)}, 3),
    ],
)
def test_a_bound_keeps_later_writes(more: list[Instant], known: dict, last: int):
    if last == 10:  # the state on the timeline is the completed one
        assert planned(*more, **known) == [1, 2, 3, 4, 5, 6]
    else:
        assert planned(*more, **known) == list(range(1, last + 1))


def test_beyond_a_savepoint_its_commit_stays():
    beyond = ArchiveSettings(keep_min=4, keep_max=6, beyond_savepoint=True)
    assert planned(at(2, SAVEPOINT), settings=beyond) == [1, 3, 4, 5, 6, 7]


def test_replacecommits_stay_until_cleaned():
    replaced = Timeline.of([*COMMITS[:2], at(3, REPLACE_COMMIT), *COMMITS[3:]])
    for clean, last in [
        (None, 2),
        (LastClean(times(10), times(3)), 2),
        (LastClean(times(10), times(6)), 5),
        (LastClean(times(10), times(6), (times(2),)), 2),
        (LastClean(times(10), times(6), left_files=True), 2),
        (LastClean(times(6)), 5),
        (LastClean(times(6), savepoints=(times(2),)), 2),
    ]:
        found = to_archive(replaced, SETTINGS, layout=2, clean=clean)
        assert numbers(found) == list(range(1, last + 1)), clean


def test_a_replacecommit_stays_that_completed_after_its_clean_was_planned():
    """A clean without an earliest instant looks at completed replacecommits only."""
    late = Instant(times(3), REPLACE_COMMIT, State.COMPLETED, times(7))
    for clean, last in [(LastClean(times(6)), 2), (LastClean(times(8)), 6)]:
        replaced = Timeline.of([*COMMITS[:2], late, *COMMITS[3:]])
        assert numbers(to_archive(replaced, SETTINGS, layout=2, clean=clean)) == [
            *range(1, last + 1)
        ]


def test_a_replacecommit_stays_that_completed_after_a_savepoint_was_made():
    """The savepoint has its files, although it was requested before the savepoint's commit."""
    replaced = Instant(times(3), REPLACE_COMMIT, State.COMPLETED, times(7))
    others = [i for i in COMMITS if i.requested_time != times(3)]
    timeline = Timeline.of([*others, replaced])

    def planned_after(*savepoints: str) -> list[int]:
        clean = LastClean(times(10), times(9), savepoints)
        return numbers(to_archive(timeline, SETTINGS, layout=2, clean=clean))

    assert planned_after() == [1, 2, 3, 4, 5, 6]
    assert planned_after(times(5)) == [1, 2]


@pytest.mark.parametrize("layout", [1, 2])
def test_parts_of_the_last_clean_stay_together(layout):
    """What any of them failed to delete is planned again by the next clean."""
    parts = [at(n, CLEAN) for n in range(11, 21)]
    clean = LastClean(times(20), times(9), begun=times(14))
    done = planned(*parts, layout=layout, clean=clean)
    assert [n for n in done if n > 10] == ([11, 12, 13] if layout == 1 else [])


def test_a_clean_that_failed_to_delete_says_so():
    failed = CleanPartitionMetadata("p", "", ("f",), (), ("f",))
    instant = at(9, CLEAN)
    assert LastClean.of(instant, CleanMetadata(partition_metadata={"p": failed}), "").left_files
    assert not LastClean.of(instant, CleanMetadata(), "").left_files


def test_a_clean_of_several_parts_says_when_it_began():
    """Else a write expects parts to go that the archiver keeps, and looks for them each time."""
    parts = [at(n, CLEAN) for n in range(11, 21)]
    mark = {PART: f"{times(14)}/7/last"}
    clean = LastClean.of(parts[-1], CleanMetadata(extra_metadata=mark), "")
    assert clean.begun == times(14)
    assert LastClean.of(parts[-1], CleanMetadata(), "").begun == ""


def test_cleans_go_with_the_writes_in_layout_2_and_by_their_count_in_layout_1():
    some = [Instant(times(n)[:-1] + "5", CLEAN, State.COMPLETED, "1") for n in (10, 20, 30)]
    timeline = Timeline.of([at(n * 10) for n in range(1, 11)] + some)
    found = to_archive(timeline, SETTINGS, layout=2)
    assert [i.action for i in found].count(CLEAN) == 3
    assert CLEAN not in {i.action for i in to_archive(timeline, SETTINGS, layout=1)}
    many = Timeline.of([at(n, CLEAN) for n in range(1, 9)])
    assert numbers(to_archive(many, SETTINGS, layout=1)) == [1, 2, 3, 4]


def test_delta_commits_that_a_compaction_counts_stay():
    deltas = Timeline.of([at(n, DELTA_COMMIT) for n in range(1, 11)])
    assert numbers(to_archive(deltas, SETTINGS, layout=2, merges_on_read=True)) == [1, 2, 3, 4, 5]
    more = replace(SETTINGS, delta_commits=8)
    assert numbers(to_archive(deltas, more, layout=2, merges_on_read=True)) == [1, 2]
    compacted = Timeline.of([at(n, COMMIT if n == 3 else DELTA_COMMIT) for n in range(1, 11)])
    found = to_archive(compacted, SETTINGS, layout=2, merges_on_read=True)
    assert numbers(found) == [1, 2, 3, 4, 5]


def test_a_maximum_that_is_not_greater_is_refused():
    given = {"hoodie.keep.min.commits": "30"}
    with pytest.raises(ConfigError, match=r"keep\.max\.commits is 30"):
        ArchiveSettings.of(Settings.parse(given, settings_of(ArchiveSettings)))


def test_rollbacks_before_the_last_archived_write_go_though_cleans_were_earlier():
    """In a merge-on-read table Hudi takes archived logs that are younger than one for pending."""
    between = [Instant(times(n)[:-1] + "5", ROLLBACK, State.COMPLETED, "1") for n in (10, 20, 30)]
    writes = [at(n, DELTA_COMMIT) for n in range(10, 110, 10)]
    clean = Instant(times(11), CLEAN, State.COMPLETED, times(12))
    found = to_archive(Timeline.of([*writes, *between, clean]), SETTINGS, layout=2)
    assert numbers(found) == [10, 11, 15, 20, 25, 30, 35, 40, 50, 60]


ACTIONS = st.sampled_from([COMMIT, REPLACE_COMMIT, CLEAN, ROLLBACK, SAVEPOINT])
HISTORIES = st.lists(st.tuples(ACTIONS, st.sampled_from(State)), min_size=8, max_size=60)


@given(HISTORIES, st.sampled_from([1, 2]), st.integers(1, 60), st.integers(1, 60))
def test_nothing_past_a_bound_is_archived(
    history: list[tuple[str, State]], layout: int, held: int, earliest: int
):
    instants = [
        at(n, action, State.INFLIGHT if action == SAVEPOINT and state != State.COMPLETED else state)
        for n, (action, state) in enumerate(history, start=1)
    ]
    timeline = Timeline.of(instants)
    found = to_archive(
        timeline,
        ArchiveSettings(keep_min=2, keep_max=3),
        layout=layout,
        clean=LastClean(times(99), times(earliest)),
        earliest_held=times(held),
    )
    assert all(i.is_completed and i.action != SAVEPOINT for i in found)
    assert all(i.requested_time < times(held) for i in found)
    moved = [i for i in found if i.action in (COMMIT, REPLACE_COMMIT)]
    assert all(i.requested_time < times(earliest) for i in moved)
    pending = timeline.pending().first
    saved = [i.requested_time for i in timeline if i.action == SAVEPOINT and i.is_completed]
    for bound in ([] if pending is None else [pending.requested_time]) + saved:
        assert all(i.requested_time < bound for i in moved)
    # No holes: what stays of the writes is all later than what goes.
    left = [i for i in timeline.write_timeline().completed() if i not in moved]
    if moved and left:
        assert moved[-1].requested_time < left[0].requested_time
        assert len(left) >= 2

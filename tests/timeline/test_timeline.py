import hashlib
import pickle
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from timeline.instant import (
    ACTIONS,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
    State,
    completed_action,
)
from timeline.timeline import Timeline

R, P, C = State.REQUESTED, State.INFLIGHT, State.COMPLETED

INSTANTS = st.builds(
    Instant,
    requested_time=st.sampled_from([f"2026112108061{n}000" for n in range(6)]),
    action=st.sampled_from(sorted(ACTIONS)),
    state=st.sampled_from(State),
)
TIMELINES = st.lists(INSTANTS, max_size=12).map(Timeline.of)


def test_the_most_advanced_state_counts() -> None:
    timeline = Timeline.of(
        [Instant("1", "commit", C), Instant("1", "commit", R), Instant("1", "commit", P)]
    )
    assert timeline.instants == (Instant("1", "commit", C),)


def test_a_completed_compaction_is_its_commit() -> None:
    timeline = Timeline.of([Instant("1", "commit", C), Instant("1", "compaction", P)])
    assert timeline.instants == (Instant("1", "commit", C),)


def test_a_savepoint_stands_beside_its_commit() -> None:
    timeline = Timeline.of([Instant("1", "savepoint", C), Instant("1", "commit", C)])
    assert [i.action for i in timeline] == ["commit", "savepoint"]


def test_hash_of_nothing() -> None:
    assert Timeline().hash == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_hash_ignores_completion_times() -> None:
    one = Timeline.of([Instant("1", "commit", C, "2")])
    other = Timeline.of([Instant("1", "commit", C, "3")])
    assert one.hash == other.hash == "".join(one.hash)
    assert one.hash != Timeline.of([Instant("1", "commit", P)]).hash


def test_filters() -> None:
    commit = Instant("1", "commit", C)
    clean = Instant("2", "clean", C)
    compaction = Instant("3", "compaction", R)
    log_compaction = Instant("4", "logcompaction", P)
    clustering = Instant("5", "clustering", R)
    cleaning = Instant("6", "clean", P)
    timeline = Timeline.of([commit, clean, compaction, log_compaction, clustering, cleaning])
    assert tuple(timeline.completed()) == (commit, clean)
    assert tuple(timeline.pending()) == (compaction, log_compaction, clustering, cleaning)
    assert tuple(timeline.client_timeline()) == (commit, clean, compaction)
    assert tuple(timeline.server_timeline()) == (commit, clean, compaction, log_compaction)
    assert tuple(timeline.write_timeline()) == (commit, compaction, log_compaction, clustering)


def test_a_timeline_of_which_nothing_writes_has_no_writes() -> None:
    """As after the rollback of a table's only commit; also in what follows it. (#32)"""
    timeline = Timeline.of([Instant("2", "rollback", C), Instant("4", "clean", C)])
    assert tuple(timeline.write_timeline()) == ()
    clean, commit = Instant("6", "clean", C), Instant("8", "commit", R)
    later = timeline.with_instant(clean)
    assert tuple(later.write_timeline()) == ()
    assert tuple(later.with_files([commit]).write_timeline()) == (commit,)


def test_contains_or_before_start() -> None:
    timeline = Timeline.of(
        [
            Instant("20260101000000000", "commit", C),
            Instant("20260101000000000", "savepoint", C),
            Instant("20260103000000", "commit", C),
        ]
    )
    assert timeline.first_non_savepoint_time == "20260103000000"
    assert timeline.contains_or_before_start("20260101000000000")
    assert timeline.contains_or_before_start("20260102000000000")
    assert timeline.contains_or_before_start("20260103000000999")
    assert not timeline.contains_or_before_start("20260103000000998")
    assert not timeline.contains_or_before_start("20260104000000000")
    assert not Timeline().contains_or_before_start("1")


def test_find() -> None:
    timeline = Timeline.of(
        [Instant("1", "savepoint", C), Instant("1", "replacecommit", C), Instant("2", "clean", P)]
    )
    assert timeline.find("1") == Instant("1", "replacecommit", C)
    assert timeline.find("1", "savepoint") == Instant("1", "savepoint", C)
    assert timeline.find("1", "clustering") == Instant("1", "replacecommit", C)
    assert timeline.find("1", "clean") is None
    assert timeline.find("3") is None


def test_first_and_last() -> None:
    assert (Timeline().first, Timeline().last) == (None, None)
    timeline = Timeline.of([Instant("2", "commit", C), Instant("1", "commit", C)])
    assert timeline.first == timeline[0] == Instant("1", "commit", C)
    assert timeline.last == Instant("2", "commit", C)


def test_a_timeline_pickles_and_compares() -> None:
    timeline = Timeline.of([Instant("1", "commit", C, "2")])
    assert timeline.hash
    copied = pickle.loads(pickle.dumps(timeline))
    assert copied == timeline
    assert copied[0].completion_time == "2"


@given(st.lists(INSTANTS, max_size=12))
def test_order_of_arrival_does_not_matter(instants: list[Instant]) -> None:
    assert Timeline.of(instants) == Timeline.of(reversed(instants)) == Timeline.of(instants * 2)


@given(TIMELINES)
def test_one_instant_a_time_and_action_in_order(timeline: Timeline) -> None:
    keys = [(i.requested_time, completed_action(i.action)) for i in timeline]
    assert keys == sorted(set(keys))


@given(TIMELINES)
def test_filters_nest(timeline: Timeline) -> None:
    client, server = timeline.client_timeline(), timeline.server_timeline()
    assert set(timeline.completed()) <= set(client) <= set(server) <= set(timeline)
    assert set(timeline.completed()) | set(timeline.pending()) == set(timeline)
    assert all(timeline.contains(instant) for instant in client)
    assert client.client_timeline() == client


@given(TIMELINES, TIMELINES)
def test_equal_hashes_are_equal_timelines(one: Timeline, other: Timeline) -> None:
    assert (one.hash == other.hash) == (one == other)


LONG = st.lists(
    st.builds(
        Instant,
        requested_time=st.integers(0, 150).map(lambda n: f"20261121080{n:06d}"),
        action=st.sampled_from(["commit", "compaction", "savepoint", "logcompaction"]),
        state=st.sampled_from(State),
        completion_time=st.sampled_from([None, "20261122"]),
    ),
    min_size=40,
    max_size=200,
).map(Timeline.of)


def key(instant: Instant) -> tuple[str, str]:
    return instant.requested_time, completed_action(instant.action)


def said(timeline: Timeline) -> str:
    """The hash by Hudi's definition."""
    texts = (f"{i.requested_time}_{i.action}_{i.state.value}" for i in timeline)
    return hashlib.sha256("".join(texts).encode()).hexdigest()


@given(LONG, st.lists(INSTANTS, max_size=5))
def test_what_another_timeline_hashed_is_taken_over_where_it_is_the_same(
    before: Timeline, more: list[Instant]
) -> None:
    timeline = before
    for instant in more:
        timeline = timeline.with_instant(instant)
        timeline.hash_like(before)
        before = timeline
        assert timeline.hash == said(timeline)
    shorter = Timeline(before.instants[3:])
    shorter.hash_like(before)
    assert shorter.hash == said(shorter)


@given(TIMELINES, INSTANTS)
def test_an_instant_takes_its_place(timeline: Timeline, instant: Instant) -> None:
    others = [i for i in timeline if key(i) != key(instant)]
    assert timeline.with_instant(instant) == Timeline.of([*others, instant])


@given(LONG, st.lists(INSTANTS, max_size=5))
def test_files_that_are_new_give_the_timeline_of_all_files(
    timeline: Timeline, added: list[Instant]
) -> None:
    """What comes before them is kept (#32)."""
    grown = timeline.with_files(added)
    assert list(map(said_whole, grown)) == list(map(said_whole, Timeline.of([*timeline, *added])))
    same = grown.same_start(timeline)
    assert all(a is b for a, b in zip(grown[:same], timeline[:same], strict=True))
    assert same >= sum(i.requested_time < min(map(TIME, added), default="9") for i in timeline)


TIME = attrgetter("requested_time")


@given(LONG, LONG)
def test_a_timeline_listed_anew_shares_the_instants_that_say_the_same(
    timeline: Timeline, before: Timeline
) -> None:
    shared = timeline.sharing(before)
    assert list(map(said_whole, shared)) == list(map(said_whole, timeline))
    theirs = {said_whole(i): i for i in before}
    for instant in shared:
        assert theirs.get(said_whole(instant), instant) is instant


def said_whole(instant: Instant) -> tuple[object, ...]:
    """All fields of an instant; ``==`` leaves some out."""
    return (*key(instant), instant.action, instant.state, instant.completion_time, instant.legacy)


@given(TIMELINES, INSTANTS)
def test_instants_are_found_as_by_looking_through_all(timeline: Timeline, wanted: Instant) -> None:
    time = wanted.requested_time
    assert timeline.contains(wanted) == (wanted in timeline.instants)
    assert timeline.contains_time(time) == any(i.requested_time == time for i in timeline)
    at = [i for i in timeline if i.requested_time == time]
    assert timeline.find(time, wanted.action) == next(
        (i for i in at if key(i) == key(wanted)), None
    )
    done = [i.completion_time or time for i in at if i.is_completed]
    assert timeline.completion_time(time) == (done[0] if done else None)


@given(LONG, st.lists(INSTANTS, max_size=6), st.lists(INSTANTS, max_size=6), st.booleans())
def test_what_is_known_of_an_earlier_timeline_holds_for_the_later_one(
    timeline: Timeline, removed: list[Instant], added: list[Instant], is_asked: bool
) -> None:
    """Whatever was added, removed or moved on, and whether it was known before (#32)."""
    first = timeline
    for instant in added:
        if is_asked:
            facts(timeline)
        later = timeline.with_instant(instant)
        fewer = Timeline(tuple(i for i in later if key(i) not in set(map(key, removed))))
        without = later.without_time(instant.requested_time)
        for derived in (
            later,
            later.with_files(added),
            fewer.sharing(timeline),
            later.sharing(first),
            without,
            later.server_timeline(),
            later.completed().write_timeline(),
            later.write_timeline().completed(),
        ):
            assert facts(derived) == facts(Timeline(derived.instants))
        assert all(i.requested_time != instant.requested_time for i in without)
        timeline = later


def facts(timeline: Timeline) -> tuple[object, ...]:
    """What is remembered of a timeline's beginning."""
    completions = [i.completion_time or "" for i in timeline]
    assert timeline.newest_completion == max(completions, default="")
    assert timeline.actions == {i.action for i in timeline}
    assert timeline.pending().instants == tuple(i for i in timeline if not i.is_completed)
    assert timeline.completed().instants == tuple(i for i in timeline if i.is_completed)
    writes = tuple(i for i in timeline if i.action in WRITE_ACTIONS)
    assert timeline.write_timeline().instants == writes
    saved = {i.requested_time for i in timeline if i.action == SAVEPOINT}
    first = next((i.requested_time for i in timeline if i.requested_time not in saved), None)
    assert timeline.first_non_savepoint_time == first
    assert timeline.hash == said(timeline)
    return timeline.hash, writes, first


def test_a_filter_that_keeps_all_gives_the_timeline_itself() -> None:
    """So the hundreds that are kept take no memory twice."""
    timeline = Timeline.of([Instant("1", "commit", C), Instant("2", "commit", C)])
    assert timeline.client_timeline() is timeline.server_timeline() is timeline

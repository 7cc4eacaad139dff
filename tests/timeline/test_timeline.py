import pickle

from hypothesis import given
from hypothesis import strategies as st

from timeline.instant import ACTIONS, Instant, State, completed_action
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

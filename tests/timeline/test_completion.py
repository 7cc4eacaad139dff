from collections.abc import Mapping

import pytest

from timeline.completion import CompletionTimes, UnreadArchiveError
from timeline.instant import Instant, State
from timeline.timeline import Timeline

TIMELINE = Timeline.of(
    [
        Instant("20260102000000000", "clean", State.COMPLETED, "20260102000000500"),
        Instant("20260103000000000", "commit", State.COMPLETED, "20260105000000000"),
        Instant("20260104000000000", "commit", State.INFLIGHT),
    ]
)


class Archive:
    """An archive that records the ranges read."""

    def __init__(self, times: Mapping[str, str]) -> None:
        self.times = times
        self.asked: list[tuple[str, str]] = []

    def __call__(self, start: str, end: str) -> Mapping[str, str]:
        self.asked.append((start, end))
        return {t: c for t, c in self.times.items() if start <= t < end}

    def completion_time(self, times: CompletionTimes, requested_time: str) -> str | None:
        """Ask, and read where that is needed."""
        try:
            return times.completion_time(requested_time)
        except UnreadArchiveError as exc:
            times.read_archive(exc.requested_time, self)
            return times.completion_time(requested_time)


def test_version_8_and_later() -> None:
    archive = Archive({"20260101000000000": "20260101000000777", "20251231000000000": "20260101"})
    times = CompletionTimes.of(TIMELINE, 9)
    assert times.completion_time("20260103000000000") == "20260105000000000"
    assert times.completion_time("20260104000000000") is None
    assert archive.completion_time(times, "20260101000000000") == "20260101000000777"
    assert times.completion_time("20260101500000000") is None
    assert archive.asked == [("20260101000000000", "20260103000000000")]
    assert archive.completion_time(times, "20251231000000000") == "20260101"
    assert archive.asked[1:] == [("20251231000000000", "20260101000000000")]


def test_what_is_older_than_was_read_of_the_archive_is_asked_for_and_never_guessed() -> None:
    times = CompletionTimes.of(TIMELINE, 9)
    with pytest.raises(UnreadArchiveError) as raised:
        times.completion_time_for("20260103000000000", "20260102500000000")
    assert raised.value.requested_time == "20260102500000000"
    assert times.is_completed("20260102500000000")  # which needs no archive
    assert times.completion_time("20260103500000000") is None


def test_an_archive_that_can_not_be_read_is_tried_again() -> None:
    times = CompletionTimes.of(TIMELINE, 9)

    def fails(_start: str, _end: str) -> Mapping[str, str]:
        raise OSError("injected")

    with pytest.raises(OSError, match="injected"):
        times.read_archive("20260101000000000", fails)
    archive = Archive({"20260101000000000": "20260101000000777"})
    assert archive.completion_time(times, "20260101000000000") == "20260101000000777"


def test_writes_archived_after_what_is_never_archived() -> None:
    """A restore stays on the timeline, as does a write that a savepoint keeps."""
    kept = [
        Instant("20260101000000000", "restore", State.COMPLETED, "20260101000000500"),
        Instant("20260101200000000", "savepoint", State.COMPLETED, "20260101200000900"),
        Instant("20260101200000000", "commit", State.COMPLETED, "20260101200000500"),
    ]
    archive = Archive({"20260102000000001": "20260102000000777"})
    times = CompletionTimes.of(Timeline.of([*kept, *TIMELINE]), 9)
    assert archive.completion_time(times, "20260102000000001") == "20260102000000777"
    assert CompletionTimes.of(Timeline.of(kept), 9).completion_time("2027") is None


def test_what_was_read_of_the_archive_serves_later_timelines_until_an_instant_leaves() -> None:
    archive = Archive({"20260101000000000": "20260101000000777"})
    first = CompletionTimes.of(TIMELINE, 9)
    assert archive.completion_time(first, "20260101000000000") == "20260101000000777"
    more = Instant("20260106000000000", "commit", State.COMPLETED, "20260106000000500")
    longer = Timeline.of([*TIMELINE, more])
    later = CompletionTimes.of(longer, 9, before=first)
    assert later.completion_time("20260101000000000") == "20260101000000777"
    assert later.completion_time("20260106000000000") == "20260106000000500"
    assert len(archive.asked) == 1
    shorter = Timeline(tuple(i for i in longer if i != TIMELINE.completed().first))
    again = CompletionTimes.of(shorter, 9, before=later)
    assert archive.completion_time(again, "20260101000000000") == "20260101000000777"
    assert len(archive.asked) == 2


def test_version_6_takes_the_requested_time_of_what_is_archived() -> None:
    times = CompletionTimes.of(TIMELINE, 6)
    assert times.completion_time("20260101000000000") == "20260101000000000"
    assert times.completion_time("20260102500000000") == "20260102500000000"
    assert times.completion_time("20260104000000000") is None
    assert times.completion_time("000") == "000"


def test_is_completed() -> None:
    times = CompletionTimes.of(TIMELINE, 9)
    assert times.is_completed("20260103000000000")
    assert not times.is_completed("20260104000000000")
    assert times.is_completed("20260102999999999")
    assert not CompletionTimes.of(Timeline(), 9).is_completed("1")
    assert CompletionTimes.of(Timeline(), 9).completion_time("1") is None


def test_base_instants_of_another_length() -> None:
    times = CompletionTimes.of(TIMELINE, 9)
    found = times.completion_time_for("00000000000001", "20260103000000000")
    assert found == "20260103000000000"
    assert times.completion_time_for("2" * 17, "20260103000000000") == "20260105000000000"
    assert times.completion_time_for("2" * 17, "20260104000000000") is None

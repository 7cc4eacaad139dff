import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.concurrency.manual_clock import ManualClock
from timeline.clock import (
    MAX_AHEAD_MS,
    MAX_WAIT_MS,
    SystemClock,
    TimeGenerator,
    format_instant_time,
    parse_instant_time,
)
from timeline.errors import ConfigError, CorruptMetadataError

NOW = 1_795_248_376_345  # 2026-11-21 08:06:16.345 UTC
YEARS = st.integers(min_value=0, max_value=4_102_444_800_000)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_utc() -> None:
    assert format_instant_time(NOW, "UTC") == "20261121080616345"
    assert parse_instant_time("20261121080616345", "UTC") == NOW


@pytest.mark.usefixtures("berlin")
def test_local() -> None:
    assert format_instant_time(NOW, "LOCAL") == "20261121090616345"
    assert parse_instant_time("20261121090616345", "LOCAL") == NOW


@pytest.mark.parametrize("zone", ["UTC", "LOCAL"])
def test_a_time_that_digits_cannot_say_is_the_nearest_that_they_can(zone: str) -> None:
    """Version 6 takes it from a file's modification time, which may be anything (#12)."""
    assert format_instant_time(-1, "UTC") == "19691231235959999"
    assert format_instant_time(-(2**63), zone)[:4] == "0001"
    assert format_instant_time(2**63 - 1, zone)[:4] == "9999"


def test_fourteen_digits_are_the_end_of_their_second() -> None:
    assert parse_instant_time("20261121080616", "UTC") == NOW // 1000 * 1000 + 999


def test_what_is_no_time(subtests: pytest.Subtests) -> None:
    for text in ["", "2026", "2026112108061634x", "20261321080616345", "٢" * 17]:
        with subtests.test(text=text), pytest.raises(ValueError, match="instant time"):
            parse_instant_time(text, "UTC")


@given(YEARS)
def test_text_and_milliseconds_are_one(ms: int) -> None:
    assert parse_instant_time(format_instant_time(ms, "UTC"), "UTC") == ms


@given(YEARS, YEARS)
def test_text_compares_as_time(a: int, b: int) -> None:
    assert (format_instant_time(a, "UTC") < format_instant_time(b, "UTC")) == (a < b)


def test_system_clock_moves() -> None:
    clock = SystemClock()
    assert clock.now_ms() > NOW - 400 * 86_400_000
    assert clock.monotonic() <= clock.monotonic()


def test_a_manual_clock_moves_by_advance() -> None:
    clock = ManualClock(NOW)
    clock.advance(500)
    assert (clock.now_ms(), clock.monotonic()) == (NOW + 500, 0.5)
    clock.advance(-1000)
    assert (clock.now_ms(), clock.monotonic()) == (NOW - 500, 0.5)


class Waiter:
    """Waits by moving the clock; remembers how long."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.waited: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.clock.advance(round(seconds * 1000))


def generator(clock: ManualClock) -> tuple[TimeGenerator, Waiter]:
    waiter = Waiter(clock)
    return TimeGenerator(clock, "UTC", waiter), waiter


def test_next_is_the_clock() -> None:
    times, waiter = generator(ManualClock(NOW))
    assert times.next() == "20261121080616345"
    assert waiter.waited == []


def test_two_in_one_millisecond_wait_for_the_clock() -> None:
    clock = ManualClock(NOW)
    times, waiter = generator(clock)
    assert [times.next(), times.next()] == ["20261121080616345", "20261121080616346"]
    assert waiter.waited == [0.001]
    assert clock.now_ms() == NOW + 1


def test_a_timeline_a_little_ahead_is_waited_for() -> None:
    clock = ManualClock(NOW)
    times, waiter = generator(clock)
    assert times.next(after="20261121080616400") == "20261121080616401"
    assert clock.now_ms() == NOW + 56
    assert waiter.waited == [0.056]


def test_a_timeline_further_ahead_is_topped_without_waiting() -> None:
    times, waiter = generator(ManualClock(NOW))
    assert times.next(after="20261121090616345") == "20261121090616346"
    assert times.next() == "20261121090616347"
    assert waiter.waited == []


def test_a_timeline_far_ahead_is_refused_with_both_times() -> None:
    times, _ = generator(ManualClock(NOW))
    with pytest.raises(ConfigError, match=r"20261122000000000.*20261121080616345"):
        times.next(after="20261122000000000")


def test_a_clock_set_back_does_not_set_times_back() -> None:
    clock = ManualClock(NOW)
    times, _ = generator(clock)
    first = times.next()
    clock.advance(-3_600_000)
    assert times.next() > first


def test_old_and_special_times_are_no_hindrance() -> None:
    times, _ = generator(ManualClock(NOW))
    assert times.next(after="00000000000001") == "20261121080616345"
    assert times.next(after="20261121080616") > "20261121080616999"


def test_unknown_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="'CET'"):
        TimeGenerator(ManualClock(NOW), "CET")


@given(st.lists(st.integers(min_value=-MAX_WAIT_MS, max_value=MAX_AHEAD_MS // 8), max_size=12))
def test_times_always_grow_and_top_the_timeline(steps: list[int]) -> None:
    clock = ManualClock(NOW)
    times, _ = generator(clock)
    given_out = [times.next()]
    for step in steps:
        clock.advance(step)
        after = format_instant_time(clock.now_ms() + step, "UTC")
        given_out.append(times.next(after))
        assert given_out[-1] > after
    assert given_out == sorted(set(given_out))


def test_threads_never_get_the_same_time() -> None:
    times = TimeGenerator(ManualClock(NOW), "UTC", lambda _: None)
    found: list[str] = []

    def take() -> None:
        found.extend(times.next() for _ in range(50))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 200


@pytest.mark.usefixtures("berlin")
def test_a_local_zone_set_back_in_autumn() -> None:
    """02:59:59.999 summer time is followed by 02:00 winter time; times go on above."""
    clock = ManualClock(1_792_889_999_999)
    times = TimeGenerator(clock, "LOCAL", lambda _: None)
    assert times.next() == "20261025025959999"
    clock.advance(1)
    assert times.next() == "20261025030000000"


@pytest.mark.parametrize("newest", ["9" * 100, "9" * 17, "99991231235959999", "9x"])
def test_a_newest_time_that_is_no_time_is_refused_and_forgotten(newest: str) -> None:
    times = TimeGenerator(ManualClock(0))
    with pytest.raises(CorruptMetadataError, match=f"the time '{newest}', which is no time"):
        times.next(newest)
    assert times.next() == "19700101000000000"

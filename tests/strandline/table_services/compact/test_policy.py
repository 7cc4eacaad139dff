"""When a compaction is due, by each trigger; which settings are refused."""

from __future__ import annotations

import pytest

from strandline.settings.setting import Settings, settings_of
from strandline.table_services.compact.policy import (
    ASYNC,
    BY_DAY,
    BY_LOG_SIZE,
    INLINE,
    SCHEDULE_INLINE,
    STRATEGY,
    TRIGGERS,
    UNBOUNDED,
    CompactionSettings,
    is_due,
)
from timeline.errors import ConfigError
from timeline.instant import COMMIT, COMPACTION, DELTA_COMMIT, Instant, State
from timeline.timeline import Timeline


def at(second: int) -> str:
    return f"202601010000{second:02}000"


def done(second: int, action: str = DELTA_COMMIT, completed: int | None = None) -> Instant:
    ended = at(second)[:-3] + "500" if completed is None else at(completed)
    return Instant(at(second), action, State.COMPLETED, ended)


def pending(second: int, action: str = DELTA_COMMIT) -> Instant:
    return Instant(at(second), action, State.REQUESTED)


# (instants, triggers that are due after 2 delta commits or 20 seconds, at second 30)
CASES = {
    "nothing": ([], ""),
    "one": ([done(20)], ""),
    "two": ([done(20), done(21)], "NUM_COMMITS NUM_COMMITS_AFTER_LAST_REQUEST NUM_OR_TIME"),
    "one early": ([done(10)], "TIME_ELAPSED NUM_OR_TIME"),
    "two, one early": ([done(10), done(21)], " ".join(TRIGGERS)),
    "a pending one": ([done(20), pending(21)], ""),
    "one since a compaction": ([done(1), done(2), done(20, COMMIT), done(21)], ""),
    "two since a compaction": (
        [done(1), done(20, COMMIT), done(21), done(22)],
        "NUM_COMMITS NUM_COMMITS_AFTER_LAST_REQUEST NUM_OR_TIME",
    ),
    "an early compaction": ([done(1), done(10, COMMIT), done(21)], "TIME_ELAPSED NUM_OR_TIME"),
    "completed since a compaction was requested": (
        [done(18, completed=23), done(20, COMMIT), done(21)],
        "NUM_COMMITS NUM_OR_TIME",
    ),
    "two before a planned one": (
        [done(15), done(16), pending(20, COMPACTION), done(21)],
        "NUM_COMMITS NUM_OR_TIME",
    ),
    "two after a planned one": (
        [done(15), pending(20, COMPACTION), done(21), done(22)],
        "NUM_COMMITS NUM_COMMITS_AFTER_LAST_REQUEST NUM_OR_TIME",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_trigger(case):
    instants, expected = CASES[case]
    due = {
        trigger
        for trigger in TRIGGERS
        if is_due(
            Timeline.of(instants),
            CompactionSettings(trigger=trigger, delta_commits=2, delta_seconds=20),
            at(30),
            "UTC",
        )
    }
    assert due == set(expected.split())


def parsed(**options: str) -> CompactionSettings:
    named = {name.replace("__", "."): value for name, value in options.items()}
    declared = (*settings_of(CompactionSettings), ASYNC)
    return CompactionSettings.of(Settings.parse(named, declared))


def test_inline_is_unset_unless_compactions_are_not_left_to_others():
    assert not parsed().is_inline
    off = {ASYNC.name.replace(".", "__"): "false"}
    assert parsed(**off).inline
    assert not parsed(**off, **{INLINE.name.replace(".", "__"): "false"}).is_inline
    assert parsed(**{SCHEDULE_INLINE.name.replace(".", "__"): "true"}).plans_inline


def test_both_ways_inline_contradict_each_other():
    options = {name.name.replace(".", "__"): "true" for name in (INLINE, SCHEDULE_INLINE)}
    with pytest.raises(ConfigError, match=r"hoodie.compact.inline and .*schedule.inline ask"):
        parsed(**options)


@pytest.mark.parametrize(
    "text", ["", "org.x.Mine", f"{BY_DAY},LogFileSizeBasedCompactionStrategy", f"{BY_DAY}, x"]
)
def test_other_strategies_are_refused_by_name(text):
    with pytest.raises(ConfigError, match=r"hoodie.compaction.strategy is .*; allowed: .*UnBoun"):
        parsed(**{STRATEGY.name.replace(".", "__"): text})


def test_strategies_are_chained():
    found = parsed(**{STRATEGY.name.replace(".", "__"): f"{BY_DAY} , {BY_LOG_SIZE},{UNBOUNDED}"})
    assert found.strategies == (BY_DAY, BY_LOG_SIZE, UNBOUNDED)

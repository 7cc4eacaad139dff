"""The settings of compactions: when one is due, and which file groups it takes.

============================== =================================================================
trigger                         a compaction is due
============================== =================================================================
`NUM_COMMITS`                   after so many delta commits since the last completed compaction
`NUM_COMMITS_AFTER_LAST_REQUEST` the same, but planned ones count as completed ones
`TIME_ELAPSED`                  so many seconds after the last completed one was requested
`NUM_AND_TIME`, `NUM_OR_TIME`   if both the first and the third are, or any of them is
============================== =================================================================

Without an earlier compaction, all delta commits count, and the time of the first one. Triggers
apply to compactions after writes; a compaction that a caller asks for is always due.

Source: Hudi 1.2.0 ``HoodieCompactionConfig``, ``ScheduleCompactionActionExecutor.needCompact``,
``CompactionUtils.getDeltaCommitsSinceLatestCompaction``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.settings.setting import ClientSetting, Settings, refusal, settings_of
from timeline.clock import parse_instant_time
from timeline.errors import ConfigError
from timeline.instant import COMMIT, COMPACTION, DELTA_COMMIT
from timeline.timeline import Timeline

NUM_COMMITS: Final = "NUM_COMMITS"
NUM_COMMITS_AFTER_LAST_REQUEST: Final = "NUM_COMMITS_AFTER_LAST_REQUEST"
TIME_ELAPSED: Final = "TIME_ELAPSED"
NUM_AND_TIME: Final = "NUM_AND_TIME"
NUM_OR_TIME: Final = "NUM_OR_TIME"
TRIGGERS: Final = (
    NUM_COMMITS,
    NUM_COMMITS_AFTER_LAST_REQUEST,
    TIME_ELAPSED,
    NUM_AND_TIME,
    NUM_OR_TIME,
)

_PACKAGE: Final = "org.apache.hudi.table.action.compact.strategy."
BY_LOG_SIZE: Final = _PACKAGE + "LogFileSizeBasedCompactionStrategy"
BY_LOG_NUMBER: Final = _PACKAGE + "LogFileNumBasedCompactionStrategy"
BOUNDED_IO: Final = _PACKAGE + "BoundedIOCompactionStrategy"
UNBOUNDED: Final = _PACKAGE + "UnBoundedCompactionStrategy"
BY_DAY: Final = _PACKAGE + "DayBasedCompactionStrategy"
STRATEGIES: Final = (BY_LOG_SIZE, BY_LOG_NUMBER, BOUNDED_IO, UNBOUNDED, BY_DAY)

INLINE: Final = ClientSetting(
    "hoodie.compact.inline",
    False,
    "Whether a write to a merge-on-read table is followed by a compaction, if one is due. If it"
    " isn't set, `hoodie.datasource.compaction.async.enable=false` sets it.",
)
SCHEDULE_INLINE: Final = ClientSetting(
    "hoodie.compact.schedule.inline",
    False,
    "Whether a write to a merge-on-read table plans a compaction, if one is due, for another job to"
    " execute.",
)
ASYNC: Final = ClientSetting(
    "hoodie.datasource.compaction.async.enable",
    True,
    "Whether compactions are left to another job, and in a stream run beside it; with `false`,"
    " writes compact unless `hoodie.compact.inline` says otherwise.",
)
DELTA_COMMITS: Final = ClientSetting(
    "hoodie.compact.inline.max.delta.commits",
    5,
    "Delta commits after which a compaction is due.",
    minimum=1,
)
DELTA_SECONDS: Final = ClientSetting(
    "hoodie.compact.inline.max.delta.seconds",
    3600,
    "Seconds after which a compaction is due.",
    unit="s",
    minimum=0,
)
TRIGGER: Final = ClientSetting(
    "hoodie.compact.inline.trigger.strategy",
    NUM_COMMITS,
    "When a compaction after a write is due: by the number of delta commits, by the time, or both.",
    allowed=TRIGGERS,
)
STRATEGY: Final = ClientSetting(
    "hoodie.compaction.strategy",
    BY_LOG_SIZE,
    "Which file groups a compaction takes, by Hudi's class names, several of which are applied one"
    " after the other: `LogFileSizeBasedCompactionStrategy` (largest logs first),"
    " `LogFileNumBasedCompactionStrategy` (most logs first), `BoundedIOCompactionStrategy`,"
    " `DayBasedCompactionStrategy` (newest partitions), `UnBoundedCompactionStrategy` (all).",
)
TARGET_IO: Final = ClientSetting(
    "hoodie.compaction.target.io",
    512_000,
    "MiB that a compaction reads and writes; after the file group that exceeds it no more are"
    " taken. Unused with UnBoundedCompactionStrategy.",
    minimum=1,
)
LOG_SIZE: Final = ClientSetting(
    "hoodie.compaction.logfile.size.threshold",
    0,
    "LogFileSizeBasedCompactionStrategy: least size of a file group's logs.",
    unit="bytes",
    minimum=0,
)
LOG_NUMBER: Final = ClientSetting(
    "hoodie.compaction.logfile.num.threshold",
    0,
    "LogFileNumBasedCompactionStrategy: least number of a file group's logs.",
    minimum=0,
)
DAYS: Final = ClientSetting(
    "hoodie.compaction.daybased.target.partitions",
    10,
    "DayBasedCompactionStrategy: number of newest partitions, by their paths as yyyy/MM/dd.",
    minimum=1,
)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Values of the settings of compactions.

    Attributes:
        inline: Whether a write is followed by a compaction.
        plans_inline: Whether a write only plans one.
        trigger: When one is due.
        delta_commits: Number of delta commits for the trigger, at least 1.
        delta_seconds: Seconds for the trigger.
        strategies: Class names that choose file groups, in order; at least one.
        target_mib: MiB that a compaction reads and writes.
        log_bytes: Least size of a file group's logs.
        logs: Least number of a file group's logs.
        days: Number of newest partitions.
    """

    inline: bool = INLINE.field()
    plans_inline: bool = SCHEDULE_INLINE.field()
    trigger: str = TRIGGER.field()
    delta_commits: int = DELTA_COMMITS.field()
    delta_seconds: int = DELTA_SECONDS.field()
    strategies: tuple[str, ...] = STRATEGY.field(lambda names: tuple(_names(names)))
    target_mib: int = TARGET_IO.field()
    log_bytes: int = LOG_SIZE.field()
    logs: int = LOG_NUMBER.field()
    days: int = DAYS.field()

    @classmethod
    def of(cls, values: Settings) -> CompactionSettings:
        """Return the compactions' part of parsed options.

        Raises:
            ConfigError: A strategy isn't supported, or both inline options are set.
        """
        given = _names(values.get(STRATEGY))
        unknown = next((name for name in given if name not in STRATEGIES), None)
        if unknown is not None or not given:
            raise refusal(
                values.called(STRATEGY),
                repr(values.get(STRATEGY)),
                f"; allowed: {', '.join(STRATEGIES)}, separated by commas",
            )
        inline = values.get(INLINE) if values.is_set(INLINE) else not values.get(ASYNC)
        if inline and values.get(SCHEDULE_INLINE):
            by = INLINE if values.is_set(INLINE) else ASYNC
            raise ConfigError(
                f"{values.called(by)} and {values.called(SCHEDULE_INLINE)} ask a write to compact"
                " and only to plan a compaction; allowed: one of them"
            )
        return values.read(cls, inline=inline)

    @property
    def is_inline(self) -> bool:
        """Whether a write compacts, or plans a compaction."""
        return self.inline or self.plans_inline


def compaction_settings(strategy: str | None) -> CompactionSettings:
    """Return settings with a strategy; ``None`` for Hudi's default.

    Raises:
        ConfigError: There is no such strategy.
    """
    options = {} if strategy is None else {STRATEGY.name: strategy}
    declared = (*settings_of(CompactionSettings), ASYNC)
    return CompactionSettings.of(Settings.parse(options, declared))


def is_due(timeline: Timeline, settings: CompactionSettings, time: str, zone: str) -> bool:
    """Return whether a compaction is due.

    Args:
        timeline: The active timeline of a table from version 8 on.
        settings: The trigger.
        time: The requested time that the compaction would have.
        zone: The time zone of instants' times.
    """
    deltas = [i for i in timeline if i.action == DELTA_COMMIT and i.is_completed]
    last = timeline.filter(lambda i: i.action == COMMIT and i.is_completed).last
    first = last or (deltas[0] if deltas else None)
    if first is None:
        return False
    if settings.trigger == NUM_COMMITS_AFTER_LAST_REQUEST:
        last = timeline.pending().filter(lambda i: i.action == COMPACTION).last or last
        since = "" if last is None else last.requested_time
        return sum(i.requested_time > since for i in deltas) >= settings.delta_commits
    since = "" if last is None else last.requested_time
    after = sum((i.completion_time or i.requested_time) > since for i in deltas)
    are_many = after >= settings.delta_commits
    seconds = [parse_instant_time(t, zone) // 1000 for t in (first.requested_time, time)]
    is_late = seconds[1] - seconds[0] >= settings.delta_seconds
    if settings.trigger == TIME_ELAPSED:
        return is_late
    if settings.trigger == NUM_AND_TIME:
        return are_many and is_late
    if settings.trigger == NUM_OR_TIME:
        return are_many or is_late
    return are_many

"""The cleaner's retention policies and their settings.

========================== =====================================================================
policy                      what stays
========================== =====================================================================
`KEEP_LATEST_COMMITS`       slices that a reader at any of the last ``n`` completed writes needs
`KEEP_LATEST_BY_HOURS`      slices that a reader at any write requested in the last hours needs
`KEEP_LATEST_FILE_VERSIONS` the newest ``n`` slices of each file group
========================== =====================================================================

The first two have an *earliest instant to retain*, ``E``: in every file group the slices that began
at ``E`` or later stay, and the last one before it. The third guarantees only that the newest state
of the table is readable, so it deletes replaced file groups at once.

If no policy is set but exactly one retention setting is, the policy is that setting's.

Source: Hudi 1.2.0 ``CleanerUtils.getEarliestCommitToRetain``, ``HoodieCleanConfig``. Unlike there,
``E`` of ``KEEP_LATEST_BY_HOURS`` is never later than a pending write, either: the files that it
reads must stay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from strandline.read.state.reader_lease import EVERYTHING, Lease, held_from
from strandline.settings.setting import ClientSetting, Setting, Settings, settings_of
from timeline.instant import CLEAN, LOG_COMPACTION, WRITE_ACTIONS, Instant
from timeline.metadata.instant_metadata import CleanMetadata
from timeline.timeline import Timeline

KEEP_LATEST_COMMITS: Final = "KEEP_LATEST_COMMITS"
KEEP_LATEST_BY_HOURS: Final = "KEEP_LATEST_BY_HOURS"
KEEP_LATEST_FILE_VERSIONS: Final = "KEEP_LATEST_FILE_VERSIONS"
POLICIES: Final = (KEEP_LATEST_COMMITS, KEEP_LATEST_BY_HOURS, KEEP_LATEST_FILE_VERSIONS)

NO_LIMIT: Final = (1 << 63) - 1
"""Java's ``Long.MAX_VALUE``."""

AUTOMATIC: Final = ClientSetting(
    "hoodie.clean.automatic",
    True,
    "Whether each write is followed by a clean.",
)
ASYNC: Final = ClientSetting(
    "hoodie.clean.async.enabled",
    False,
    "Whether the clean after a write runs on a thread of its own beside the next write, which waits"
    " for it when it has committed.",
)
POLICY: Final = ClientSetting(
    "hoodie.clean.policy",
    KEEP_LATEST_COMMITS,
    "Retention policy. If it isn't set, and exactly one of the next three settings is, the policy"
    " is that setting's.",
    allowed=POLICIES,
)
RETAINED: Final = ClientSetting(
    "hoodie.clean.commits.retained",
    10,
    "KEEP_LATEST_COMMITS: number of completed write instants that stay readable.",
    minimum=1,
)
HOURS: Final = ClientSetting(
    "hoodie.clean.hours.retained",
    24,
    "KEEP_LATEST_BY_HOURS: hours for which the state at each write stays readable.",
    minimum=1,
)
VERSIONS: Final = ClientSetting(
    "hoodie.clean.fileversions.retained",
    3,
    "KEEP_LATEST_FILE_VERSIONS: number of slices that stay in each file group.",
    minimum=1,
)
MAX_TO_CLEAN: Final = ClientSetting(
    "hoodie.clean.max.commits.to.clean",
    NO_LIMIT,
    "Maximum number of write instants by which a clean advances the earliest retained one. Unused"
    " with KEEP_LATEST_FILE_VERSIONS.",
    minimum=1,
)
EMPTY_HOURS: Final = ClientSetting(
    "hoodie.write.empty.clean.interval.hours",
    -1,
    "Hours after the last clean from which a clean that finds nothing writes an empty one, so that"
    " the next one examines only later writes. If it isn't positive, this happens after 10 write"
    " instants; Hudi never does it then. Unused with KEEP_LATEST_FILE_VERSIONS.",
    minimum=-1,
)
MAX_COMMITS: Final = ClientSetting(
    "hoodie.clean.trigger.max.commits",
    1,
    "Number of write instants that must complete after a clean before the next one is planned. With"
    " 0 a call of `clean` plans one even without a write, as `strandline clean --apply` does.",
    minimum=0,
)
PARALLELISM: Final = ClientSetting(
    "hoodie.clean.parallelism",
    8,
    "Number of files, or requests for 1,000 files, deleted at a time by threads of the driver. On"
    " Spark more than 1,000 files for each thread are deleted by tasks on all cores. Hudi's default"
    " is 200 tasks.",
    unit="threads",
    minimum=1,
    maximum=256,
)

RETENTION_OF: Final[Mapping[str, Setting[int]]] = {
    KEEP_LATEST_COMMITS: RETAINED,
    KEEP_LATEST_BY_HOURS: HOURS,
    KEEP_LATEST_FILE_VERSIONS: VERSIONS,
}
"""Policy → the setting of how much it retains."""


@dataclass(frozen=True, slots=True)
class CleanSettings:
    """Values of the cleaner's settings.

    Attributes:
        automatic: Whether each write is followed by a clean.
        policy: The retention policy.
        retained: Number of completed write instants that stay readable, at least 1.
        hours: Hours for which the state at each write stays readable, at least 1.
        versions: Number of slices that stay in each file group, at least 1.
        max_commits: Number of write instants between two cleans; 0: a clean needs no write.
        max_to_clean: Maximum number of write instants by which the earliest retained one advances.
        empty_hours: Hours after the last clean from which an empty one is due; 0 or less: never.
        parallelism: Number of files deleted at a time.
        part_files: Most files of a plan; a clean of more is divided into parts.
        asynchronous: Whether the clean after a write runs beside the next one.
    """

    automatic: bool = AUTOMATIC.field()
    policy: str = POLICY.field()
    retained: int = RETAINED.field()
    hours: int = HOURS.field()
    versions: int = VERSIONS.field()
    max_commits: int = MAX_COMMITS.field()
    max_to_clean: int = MAX_TO_CLEAN.field()
    empty_hours: int = EMPTY_HOURS.field()
    parallelism: int = PARALLELISM.field()
    part_files: int = 200_000
    asynchronous: bool = ASYNC.field()

    @classmethod
    def of(cls, values: Settings) -> CleanSettings:
        """Return the cleaner's part of parsed options."""
        runs_beside = values.get(AUTOMATIC) and values.get(ASYNC)
        return values.read(cls, policy=_policy(values), asynchronous=runs_beside)

    @property
    def in_words(self) -> str:
        """The policy and how much it retains, as in ``KEEP_LATEST_COMMITS (10)``."""
        kept = {KEEP_LATEST_COMMITS: self.retained, KEEP_LATEST_BY_HOURS: self.hours}
        return f"{self.policy} ({kept.get(self.policy, self.versions)})"

    @property
    def has_earliest(self) -> bool:
        """Whether the policy has an earliest instant to retain."""
        return self.policy != KEEP_LATEST_FILE_VERSIONS


def clean_settings(policy: str | None, retain: int | None) -> CleanSettings:
    """Return settings with a policy and its retention; ``None`` for Hudi's defaults.

    Raises:
        ConfigError: There is no such policy, or ``retain`` is less than 1.
    """
    chosen = POLICY.parse(policy or POLICY.default, "policy")
    setting = RETENTION_OF[chosen]
    kept = setting.default if retain is None else setting.parse(str(retain), "retain")
    options = {POLICY.name: chosen, setting.name: str(kept)}
    return CleanSettings.of(Settings.parse(options, settings_of(CleanSettings)))


def _policy(values: Settings) -> str:
    """Return the policy that is set, or that of the only retention setting that is."""
    if values.is_set(POLICY):
        return values.get(POLICY)
    given = [policy for policy, setting in RETENTION_OF.items() if values.is_set(setting)]
    return given[0] if len(given) == 1 else values.get(POLICY)


@dataclass(frozen=True, slots=True)
class Retention:
    """What a clean keeps.

    Attributes:
        policy: The retention policy.
        earliest: The earliest instant to retain, a completed write; ``None``: the policy has none.
        versions: Number of slices that stay in each file group, for ``KEEP_LATEST_FILE_VERSIONS``.
        leases: Readers' leases whose slices stay, for ``KEEP_LATEST_FILE_VERSIONS``.
        needed_from: Requested time at which the first group was replaced that a pending plan reads,
            for ``KEEP_LATEST_FILE_VERSIONS``; ``None``: there is none.
    """

    policy: str
    earliest: Instant | None = None
    versions: int = 0
    leases: tuple[Lease, ...] = ()
    needed_from: str | None = None

    def needing(self, replaced: Instant | None) -> Retention:
        """Return what is kept if replaced groups stay that pending plans read.

        Args:
            replaced: The write that replaced the first of these groups; ``None``: there is none.
        """
        if replaced is None:
            return self
        if self.earliest is None:
            return replace(self, needed_from=replaced.requested_time)
        is_later = self.earliest.requested_time > replaced.requested_time
        return replace(self, earliest=replaced) if is_later else self

    def held_by(self, leases: Sequence[Lease], timeline: Timeline) -> Retention | None:
        """Return what is kept if readers' leases are respected, too.

        A lease caps the earliest instant as a pending write does.

        Args:
            leases: The leases.
            timeline: The active timeline, instants of any state.

        Returns:
            ``None`` if everything is kept.
        """
        since = held_from(leases)
        if since is None:
            return self
        if self.earliest is None:
            # Without an earliest instant, what a lease holds is decided slice by slice.
            return None if since == EVERYTHING else replace(self, leases=tuple(leases))
        if self.earliest.requested_time <= since:
            return self
        writes = timeline.write_timeline().completed()
        earliest = writes.filter(lambda i: i.requested_time <= since).last
        return None if earliest is None else replace(self, earliest=earliest)


def retention(
    timeline: Timeline, settings: CleanSettings, since: str, known: CleanMetadata | None = None
) -> Retention | None:
    """Return the retention of a clean that is planned now.

    Args:
        timeline: The active timeline, instants of any state.
        settings: The cleaner's settings.
        since: The time ``settings.hours`` ago, in the form of instants' times.
        known: Metadata of the last completed clean.

    Returns:
        ``None`` if there is nothing to clean yet.
    """
    writes = timeline.write_timeline()
    completed = writes.completed()
    if not settings.has_earliest:
        kept = Retention(settings.policy, None, settings.versions)
        return kept if completed.instants else None
    earliest = _earliest(completed, settings, since)
    if earliest is None:
        return None
    # The files that a pending write reads, and those that it will replace, must stay.
    pending = writes.pending().filter(lambda i: i.action != LOG_COMPACTION).first
    if pending is not None and earliest.requested_time > pending.requested_time:
        earliest = completed.filter(lambda i: i.requested_time < pending.requested_time).last
    if earliest is not None and known is not None and known.earliest_commit_to_retain:
        earliest = _capped(completed, earliest, known.earliest_commit_to_retain, settings)
    return None if earliest is None else Retention(settings.policy, earliest)


def _earliest(completed: Timeline, settings: CleanSettings, since: str) -> Instant | None:
    """Return the oldest of the completed writes that the policy retains."""
    if settings.policy == KEEP_LATEST_BY_HOURS:
        at = bisect_left(completed.instants, since, key=attrgetter("requested_time"))
        return completed.instants[at] if at < len(completed) else None
    if len(completed) <= settings.retained:
        return None
    return completed[len(completed) - settings.retained]


def _capped(
    completed: Timeline, earliest: Instant, before: str, settings: CleanSettings
) -> Instant:
    """Return the earliest instant to retain, limited by ``max_to_clean`` writes from the last."""
    first, end = (
        bisect_left(completed.instants, time, key=attrgetter("requested_time"))
        for time in (before, earliest.requested_time)
    )
    return (
        completed.instants[first + settings.max_to_clean]
        if (end - first > settings.max_to_clean)
        else earliest
    )


def is_due(timeline: Timeline, max_commits: int, known: CleanMetadata | None) -> bool:
    """Whether at least ``max_commits`` writes completed since the last clean was planned.

    Args:
        timeline: The active timeline.
        max_commits: Number of write instants between two cleans.
        known: Metadata of the last completed clean; ``None``: there is none.
    """
    since = "" if known is None else known.last_completed_commit_timestamp
    return len(writes_after(timeline, since)) >= max_commits


def writes_after(timeline: Timeline, since: str) -> Sequence[Instant]:
    """Return the completed write instants requested after a time."""
    first = bisect_left(timeline.instants, since, key=attrgetter("requested_time"))
    later = (i for i in timeline.instants[first:] if i.action in WRITE_ACTIONS and i.is_completed)
    return [instant for instant in later if instant.requested_time > since]


def last_clean(timeline: Timeline) -> Instant | None:
    """Return the last completed clean; ``None`` if there is none."""
    cleans = (i for i in reversed(timeline.instants) if i.action == CLEAN and i.is_completed)
    return next(cleans, None)

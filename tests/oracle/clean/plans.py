"""Plans of a clean by Hudi and by us, in one form, and the differences that are meant to be.

Hudi's plan is that of its ``CleanPlanActionExecutor``, which changes nothing. As its clock can't be
set, for ``KEEP_LATEST_BY_HOURS`` the executor's parts are called instead: ``CleanerUtils`` with a
chosen time, and ``CleanPlanner`` with the earliest instant to retain that results.

Ours differs by intention, and ``expected`` says how:

* by hours, the earliest instant to retain isn't later than a pending write;
* a partition without files keeps its folder;
* what a pending compaction, log compaction or clustering reads or writes stays also in a replaced
  group, and the earliest instant to retain isn't later than the write that replaced it;
* after ten writes an empty clean is made even if the setting doesn't ask for it, but none that
  doesn't advance the earliest instant to retain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fsview.local_view import LocalView
from strandline.settings.setting import Settings, settings_of
from strandline.table_services.clean.plan import SAVEPOINTED
from strandline.table_services.clean.planner import WRITES_A_MARK, CleanPlanner
from strandline.table_services.clean.policy import (
    EMPTY_HOURS,
    KEEP_LATEST_BY_HOURS,
    POLICY,
    RETENTION_OF,
    CleanSettings,
    last_clean,
    writes_after,
)
from tests.kit.concurrency.manual_clock import ManualClock
from tests.oracle.hudi import Hudi
from tests.oracle.tables import view_of
from tests.oracle.view.walk import AVRO, NAME
from timeline.clock import UTC, SystemClock, TimeGenerator, parse_instant_time
from timeline.instant import REPLACE_COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata, CommitMetadata
from timeline.storage.local import LocalStorage

_HOUR_MS: Final = 3_600_000
_NO_LIMIT: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan is asked for.

    Attributes:
        policy: The retention policy.
        retain: How much it retains.
        more: Further options of the cleaner.
        since: Where the hours begin that ``KEEP_LATEST_BY_HOURS`` retains, as an instant's time.
    """

    policy: str
    retain: int
    more: Mapping[str, str] = field(default_factory=dict)
    since: str = ""

    @property
    def by_hours(self) -> bool:
        """Whether the policy depends on the clock."""
        return self.policy == KEEP_LATEST_BY_HOURS

    @property
    def options(self) -> dict[str, str]:
        """The cleaner's options."""
        retention = RETENTION_OF[self.policy].name
        return {POLICY.name: self.policy, retention: str(self.retain), **self.more}

    @property
    def now_ms(self) -> int:
        """The time at which the hours begin there."""
        return parse_instant_time(self.since, UTC) + self.retain * _HOUR_MS


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan.

    Attributes:
        earliest: Requested time, action and state of the earliest instant to retain, if any.
        last: Requested time of the last completed write.
        files: Partition → paths of the files to delete.
        savepoints: Times of the savepoints.
    """

    earliest: tuple[str, str, str] | None
    last: str
    files: Mapping[str, frozenset[str]]
    savepoints: frozenset[str]

    @property
    def size(self) -> int:
        """Number of files to delete."""
        return sum(map(len, self.files.values()))


@dataclass(frozen=True, slots=True)
class HudiPlan:
    """What Hudi plans.

    Attributes:
        plan: The plan; empty if there is nothing to delete.
        is_made: Whether it would be put on the timeline.
        is_capped: Whether the earliest instant to retain was set back to before a pending write.
        is_held: Whether it was set back to a write that replaced what a pending plan reads.
        gone: Partitions to delete.
    """

    plan: Plan
    is_made: bool
    is_capped: bool
    gone: frozenset[str]
    is_held: bool = False


class HudiPlanner:
    """Hudi's planner of a table's cleans.

    Args:
        hudi: The session.
        path: The table's base path.
        options: Options of its writers.
    """

    def __init__(self, hudi: Hudi, path: Path, options: Mapping[str, str]) -> None:
        self._jvm: Any = hudi.jvm
        self._hudi: Any = hudi.jvm.org.apache.hudi
        self._path, self._options = path, options
        self._context = self._hudi.common.engine.HoodieLocalEngineContext(hudi.storage_conf)

    def plan(self, asked: Asked, replaced: str | None = None) -> HudiPlan:
        """Return what Hudi plans now.

        Args:
            asked: What is asked for.
            replaced: Requested time of the write that replaced the first of the groups that pending
                plans read, if any.
        """
        make = self._hudi.DataSourceUtils.createHoodieConfig
        config = make(AVRO, str(self._path), NAME, {**self._options, **asked.options})
        table = self._hudi.table.HoodieSparkTable.create(config, self._context)
        planner = self._hudi.table.action.clean.CleanPlanner(self._context, table, config)
        if asked.by_hours:
            return self._by_hours(asked, table, config, planner, replaced)
        earliest = planner.getEarliestCommitToRetain()
        held = self._held(table, earliest, replaced)
        if held is not None:
            return self._at(table, planner, held, is_held=True)
        nothing = self._hudi.common.util.Option.empty()
        action = self._hudi.table.action.clean.CleanPlanActionExecutor
        found = action(self._context, config, table, nothing).execute()
        savepoints = frozenset(table.getSavepointTimestamps())
        last = planner.getLastCompletedCommitTimestamp()
        if not found.isPresent():
            return HudiPlan(
                Plan(_triple(earliest), last, {}, savepoints), False, False, frozenset()
            )
        plan = json.loads(found.get().toString())
        retained = plan["earliestInstantToRetain"]
        files = {
            partition: frozenset(file["filePath"] for file in files)
            for partition, files in plan["filePathsToBeDeletedPerPartition"].items()
        }
        saved = plan["extraMetadata"].get(SAVEPOINTED, "").split(",")
        return HudiPlan(
            Plan(
                retained and (retained["timestamp"], retained["action"], retained["state"]),
                plan["lastCompletedCommitTimestamp"],
                files,
                frozenset(filter(None, saved)),
            ),
            True,
            False,
            frozenset(plan["partitionsToBeDeleted"] or ()),
        )

    def _by_hours(
        self, asked: Asked, table: Any, config: Any, planner: Any, replaced: str | None
    ) -> HudiPlan:
        nothing = self._hudi.common.util.Option.empty()
        writes = table.getMetaClient().getActiveTimeline().getCommitsAndCompactionTimeline()
        earliest = self._hudi.common.util.CleanerUtils.getEarliestCommitToRetain(
            writes,
            config.getCleanerPolicy(),
            config.getCleanerCommitsRetained(),
            self._jvm.java.time.Instant.ofEpochMilli(asked.now_ms),
            asked.retain,
            table.getMetaClient().getTableConfig().getTimelineTimezone(),
            nothing,
            _NO_LIMIT,
        )
        pending = writes.filterInflightsAndRequested().firstInstant()
        is_capped = (
            pending.isPresent()
            and earliest.isPresent()
            and pending.get().requestedTime() < earliest.get().requestedTime()
        )
        if is_capped:
            done = writes.filterCompletedInstants()
            earliest = done.findInstantsBefore(pending.get().requestedTime()).lastInstant()
        held = self._held(table, earliest, replaced)
        if held is not None:
            return self._at(table, planner, held, is_capped=is_capped, is_held=True)
        return self._at(table, planner, earliest, is_capped=is_capped)

    def _held(self, table: Any, earliest: Any, replaced: str | None) -> Any:
        """Return the write that replaced a group, if it is before the earliest instant."""
        if replaced is None or not earliest.isPresent():
            return None
        if earliest.get().requestedTime() <= replaced:
            return None
        writes = table.getMetaClient().getActiveTimeline().getCommitsTimeline()
        done = writes.filterCompletedInstants()
        return done.findInstantsBeforeOrEquals(replaced).lastInstant()

    def _at(
        self,
        table: Any,
        planner: Any,
        earliest: Any,
        *,
        is_capped: bool = False,
        is_held: bool = False,
    ) -> HudiPlan:
        """Return what the executor's parts plan by an earliest instant to retain."""
        files, gone = {}, set()
        for partition in planner.getPartitionPathsToClean(earliest):
            found = planner.getDeletePaths(partition, earliest)
            paths = frozenset(file.getFilePath() for file in found.getRight())
            if paths:
                files[partition] = paths
            if found.getLeft():
                gone.add(partition)
        plan = Plan(
            _triple(earliest),
            planner.getLastCompletedCommitTimestamp(),
            files,
            frozenset(table.getSavepointTimestamps()),
        )
        return HudiPlan(plan, bool(files or gone), is_capped, frozenset(gone), is_held)


def _triple(instant: Any) -> tuple[str, str, str] | None:
    if not instant.isPresent():
        return None
    found = instant.get()
    return found.requestedTime(), found.getAction(), found.getState().name()


class OurPlanner:
    """Our planner of a table's cleans.

    Args:
        path: The table's base path.
    """

    def __init__(self, path: Path) -> None:
        self._meta = TableMetaClient.open(LocalStorage(str(path)))
        self._view = LocalView.newest(view_of(path))
        self._timeline = self._meta.active_timeline()

    def plan(self, asked: Asked) -> Plan | None:
        """Return what we plan now; ``None`` if there is nothing to do."""
        settings = CleanSettings.of(Settings.parse(asked.options, settings_of(CleanSettings)))
        clock = ManualClock(asked.now_ms) if asked.by_hours else SystemClock()
        planner = CleanPlanner(self._meta, self._view, TimeGenerator(clock), settings)
        bounds = planner.bounds(self._timeline, due=not asked.by_hours)
        if bounds is None:
            return None
        parts = [part.planned.plan for part in planner.due(self._timeline, bounds)]
        assert len(parts) < 2
        return _plan(parts[0]) if parts else None

    def expected(self, asked: Asked, hudis: HudiPlan) -> Plan | None:
        """Return our plan, from Hudi's."""
        plan = self._without_needed(hudis.plan)
        if plan.files:
            return plan
        if plan.earliest is None or self._retained >= plan.earliest[0]:
            return None
        # If the setting asks for it, Hudi makes an empty clean of a table without cleans. After a
        # clean it does so hours later, which no history lasts.
        is_asked = EMPTY_HOURS.name in asked.more and self._last is None
        if not (hudis.plan.files or hudis.gone or hudis.is_held):
            assert hudis.is_made == is_asked, f"{asked}: {hudis}"
        is_long_ago = len(writes_after(self._timeline, self._cleaned)) >= WRITES_A_MARK
        return plan if is_asked or is_long_ago else None

    def replaced(self) -> str | None:
        """Return the requested time of the first write that replaced what a pending plan reads."""
        read = self._needed_from.keys() | self._clustered
        for instant in self._timeline.completed():
            if instant.action != REPLACE_COMMIT:
                continue
            metadata = self._meta.read(instant)
            assert isinstance(metadata, CommitMetadata)
            replaced = metadata.partition_to_replace_file_ids.items()
            if any((at, file_id) in read for at, ids in replaced for file_id in ids):
                return instant.requested_time
        return None

    @property
    def _needed_from(self) -> dict[tuple[str, str], str]:
        """Partition and id of the groups that pending compactions read → the first base instant."""
        operations = (
            *self._view.pending_compaction_operations(),
            *self._view.pending_log_compaction_operations(),
        )
        found: dict[tuple[str, str], str] = {}
        for each in operations:
            at = each.partition, each.file_id
            found[at] = min(each.base_instant, found.get(at, each.base_instant))
        return found

    @property
    def _clustered(self) -> set[tuple[str, str]]:
        found = self._view.file_groups_in_pending_clustering()
        return {(each.partition, each.file_id) for each in found}

    def _without_needed(self, plan: Plan) -> Plan:
        """Return a plan without the slices of replaced groups that pending services need."""
        pending = {instant.requested_time for instant in self._timeline.pending()}
        needed_from, clustered = self._needed_from, self._clustered
        files = {}
        for partition, paths in plan.files.items():
            needed = {
                name
                for group in self._view.all_replaced_file_groups(partition)
                for each in group.slices
                if each.base_instant in pending
                or each.base_instant >= needed_from.get((partition, group.file_id), "~")
                or ((partition, group.file_id) in clustered and each is group.slices[0])
                for name in each.sizes
            }
            left = frozenset(each for each in paths if each.rpartition("/")[2] not in needed)
            if left:
                files[partition] = left
        return replace(plan, files=files)

    def groups_in(self, partition: str) -> int:
        """Return the number of file groups of a partition that aren't replaced."""
        return len(self._view.all_file_groups(partition))

    @property
    def _last(self) -> CleanMetadata | None:
        last = last_clean(self._timeline)
        if last is None:
            return None
        metadata = self._meta.read(last)
        assert isinstance(metadata, CleanMetadata)
        return metadata

    @property
    def _retained(self) -> str:
        return "" if self._last is None else self._last.earliest_commit_to_retain

    @property
    def _cleaned(self) -> str:
        return "" if self._last is None else self._last.last_completed_commit_timestamp


def differences(ours: Plan | None, expected: Plan | None) -> Iterator[str]:
    """Yield how our plan differs from the expected one, in words."""
    if ours is None or expected is None:
        yield f"ours is {ours}, expected is {expected}"
        return
    for name in ("earliest", "last", "savepoints"):
        mine, other = getattr(ours, name), getattr(expected, name)
        if mine != other:
            yield f"{name} is {mine}, expected {other}"
    for partition in sorted(ours.files.keys() | expected.files.keys()):
        mine = ours.files.get(partition, frozenset())
        other = expected.files.get(partition, frozenset())
        yield from (f"ours alone deletes {path}" for path in sorted(mine - other))
        yield from (f"Hudi alone deletes {path}" for path in sorted(other - mine))


def _plan(plan: CleanerPlan) -> Plan:
    earliest = plan.earliest_instant_to_retain
    return Plan(
        None if earliest is None else (earliest.timestamp, earliest.action, earliest.state),
        plan.last_completed_commit_timestamp,
        {
            partition: frozenset(file.file_path for file in files)
            for partition, files in plan.file_paths_to_be_deleted_per_partition.items()
        },
        frozenset(filter(None, plan.extra_metadata.get(SAVEPOINTED, "").split(","))),
    )

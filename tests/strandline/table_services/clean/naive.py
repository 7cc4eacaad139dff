"""Which files a clean leaves: the policies' rules, applied naively to a ``ModelTable``'s truth.

Nothing of the cleaner is used. The rules are those of docs/explanation/cleaning.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from strandline.read.state.reader_lease import Lease
from tests.kit.tables.model.table import ModelTable
from tests.kit.tables.model.truth import DataFile, Group, Slice
from timeline.instant import LOG_COMPACTION, WRITE_ACTIONS, Instant

COMMITS, HOURS, VERSIONS = (
    "KEEP_LATEST_COMMITS",
    "KEEP_LATEST_BY_HOURS",
    "KEEP_LATEST_FILE_VERSIONS",
)


@dataclass(frozen=True)
class Policy:
    """A policy and its number.

    Attributes:
        name: Its name.
        number: Commits, hours or file versions.
        step: Most writes by which a clean advances; 0: any number.
    """

    name: str
    number: int
    step: int = 0


def writes_on(table: ModelTable) -> tuple[list[str], list[str]]:
    """Return the times of the completed writes on the active timeline, and of the pending ones."""
    found: list[Instant] = [i for i in table.meta.active_timeline() if i.action in WRITE_ACTIONS]
    completed = sorted(i.requested_time for i in found if i.is_completed)
    held = (i for i in found if not i.is_completed and i.action != LOG_COMPACTION)
    return completed, sorted(i.requested_time for i in held)


def earliest(table: ModelTable, policy: Policy, leases: Iterable[Lease], known: str) -> str | None:
    """Return the earliest instant to retain; ``None``: everything is kept.

    Args:
        table: The table.
        policy: The policy, which isn't that of file versions.
        leases: The leases that hold.
        known: That of the last clean; empty: there is none.
    """
    completed, pending = writes_on(table)
    if policy.name == HOURS:
        since = table.times.hours_ago(policy.number)
        found = next((time for time in completed if time >= since), None)
    else:
        found = completed[-policy.number] if len(completed) > policy.number else None
    if found is None:
        return None
    if pending:
        found = _last(completed, before=pending[0]) if found > pending[0] else found
    if found is not None and known and policy.step:
        between = [time for time in completed if known <= time < found]
        found = between[policy.step] if len(between) > policy.step else found
    for lease in leases:
        if found is not None and found > lease.earliest:
            found = _last(completed, until=lease.earliest)
    # A group that a pending plan reads stays if it is replaced.
    times = [time for group in read_by_plans(table) if (time := table.truth.replaced_at(group))]
    return found if found is None else min((found, *times))


def _last(times: list[str], *, before: str = "~", until: str = "~") -> str | None:
    return max((time for time in times if time < before and time <= until), default=None)


def groups_of(table: ModelTable) -> Iterator[tuple[Group, list[Slice]]]:
    for partition in sorted({file.partition for file in table.truth.files.values()}):
        for file_id, slices in table.truth.groups(partition).items():
            yield (partition, file_id), slices


def _paths(slices: Iterable[Slice]) -> set[str]:
    return {file.path for each in slices for file in each.files}


def read_at(table: ModelTable, time: str = "~") -> set[str]:
    """Return the files that a reader at a time reads.

    Logs of version 6 that were written to an undone compaction aren't among them: all of their
    writes were undone, too.
    """
    then = table.truth.copy()
    then.files = {
        path: file
        for path, file in then.files.items()
        if _began(table, file) <= time and then.has_begun(_began(table, file))
    }
    then.completed = {t: done for t, done in then.completed.items() if t <= time}
    then.replaced_by = {t: groups for t, groups in then.replaced_by.items() if t <= time}
    then.compactions = {t: operations for t, operations in then.compactions.items() if t <= time}
    found: set[str] = set()
    for partition in {file.partition for file in then.files.values()}:
        for file_id, slices in then.groups(partition).items():
            group = partition, file_id
            if then.replaced_at(group) is None:
                pends = slices[0].base_instant == then.compaction_of(group)
                found |= _paths(slices[: 2 if pends else 1])
    return found


def _began(table: ModelTable, file: DataFile) -> str:
    """Return from when on a reader has a file; in version 6 logs are read with their slice."""
    by_name = file.order is not None and not table.truth.logs_by_completion
    return file.appended_to if by_name else file.writer


def read_by_plans(table: ModelTable) -> set[Group]:
    """Return the groups that pending compactions, log compactions and clusterings read."""
    truth = table.truth
    plans = (*truth.compactions.values(), *truth.log_compactions.values())
    compacted = {operation.group for operations in plans for operation in operations}
    return compacted.union(*truth.clusterings.values())


def planned(table: ModelTable) -> set[str]:
    """Return the files that pending compactions, log compactions and clusterings read."""
    truth = table.truth
    found: set[str] = set()
    for plans in (truth.compactions, truth.log_compactions):
        for operation in (op for ops in plans.values() for op in ops):
            names = {operation.base_file, *operation.logs} - {None}
            found |= {f"{operation.group[0]}/{name}" for name in names}
    for group in (each for groups in truth.clusterings.values() for each in groups):
        found |= _paths(truth.slices(group)[:1])
    return found & truth.files.keys()


def under_way(table: ModelTable) -> set[str]:
    """Return the files that no completed instant names."""
    found = {f"{group[0]}/{name}" for group, _, name in table.in_flight()}
    return found | set(table.doubles.values()) | set(table.unnamed)


def stays(table: ModelTable, policy: Policy, since: str, leases: Iterable[Lease] = ()) -> set[str]:
    """Return the files of completed instants that a clean leaves which examines everything.

    Args:
        table: The table.
        policy: The policy.
        since: The earliest instant to retain; unused with file versions.
        leases: The leases that hold.
    """
    truth, leases = table.truth, tuple(leases)
    saved = {path for _, paths in table.saved.values() for path in paths}
    found: set[str] = set()
    for group, slices in groups_of(table):
        committed = [s for s in slices if s.base_instant in truth.completed]
        kept = [s for s in slices if s not in committed]
        needed = _needed_from(table, group)
        replaced = truth.replaced_at(group)
        if replaced is not None and policy.name == VERSIONS:
            oldest = min((lease.earliest for lease in leases), default="~")
            kept += _held(committed, leases) if replaced > oldest else []
            kept += [s for s in committed if s.base_instant >= needed]
            clustered = any(group in groups for groups in truth.clusterings.values())
            kept += committed[:1] if clustered else []
        elif replaced is not None:
            kept += committed if replaced >= since else []
        elif policy.name == VERSIONS:
            of_plan = [s for s in committed if s.base_instant >= needed]
            others = [s for s in committed if s.base_instant < needed]
            kept += of_plan + others[: policy.number - (needed != "~")] + _held(committed, leases)
        else:
            kept += [s for s in committed if s.base_instant >= min(since, needed)]
            kept += [s for s in committed if s.base_instant < since][:1]
        kept += [s for s in committed if _paths([s]) & saved]
        found |= _paths(kept)
    return found


def overlooked(table: ModelTable) -> set[str]:
    """Return the files that a clean by an earliest instant may leave until others are superseded.

    When it looked at their partition, their group was replaced, and so kept as a whole. Then the
    replacement was undone. No later write says that slices before it were superseded.
    """
    return {
        path
        for group, time in table.revived.items()
        for each in table.truth.slices(group)
        if each.base_instant < time
        for path in _paths([each])
    }


def _needed_from(table: ModelTable, group: Group) -> str:
    """Return the base instant of the first slice that a pending plan reads; ``~``: none."""
    plans = (*table.truth.compactions.values(), *table.truth.log_compactions.values())
    return min((op.base_instant for ops in plans for op in ops if op.group == group), default="~")


def _held(committed: list[Slice], leases: Iterable[Lease]) -> list[Slice]:
    """Return the slices of a group that leases hold where the policy keeps versions."""
    found: list[Slice] = []
    for lease in leases:
        later = [s for s in committed if s.base_instant > lease.earliest]
        found += [s for s in later if s.base_instant <= lease.instant or s.logs]
        found += [s for s in committed if s.base_instant <= lease.earliest][:1]
    return found

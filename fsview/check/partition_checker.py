"""``PartitionChecker``: whether the state of a live table still equals storage.

It compares a followed snapshot with what is built anew from storage: the timeline with both hashes,
pending compactions, log compactions and clusterings, the replaced groups, the known partitions, and
the names and sizes of each partition's files. Modification times are left out: metadata doesn't
have them.

Files that no instant names are no difference, as only a listing can show the files of a write in
flight and those that a failed write left (``UnnamedFiles``). A snapshot and a listing may rightly
differ in:

* a base file, and from table version 8 on a log, whose name has an instant that isn't completed
  (nor older than the timeline): it may be new, missing, or of another size;
* before version 8, a log that is new or has grown while a delta commit or a log compaction pends;
  and a new one that no instant of the timeline names;
* a base file that isn't held, of a completed instant whose metadata names another base file of its
  group (``fsview.load.duplicate_files``), whether that still exists or was cleaned;
* a partition that isn't known and has only such files.

While files are being removed (``removals_pending``) no comparison is valid. Soundness rests on the
order in ``PartitionChecker._look``, as in a load (``fsview.load.partition_loader``).

Source: none in Hudi, whose view resets itself instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from fsview.files.partition import PartitionVersion
from fsview.files.row import UNKNOWN_SIZE
from fsview.load.duplicate_files import Written
from fsview.model.file_group import BaseFile
from fsview.model.file_name import data_files, parse_data_file
from fsview.snapshot.delta import NO_CHANGE, delta_of
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import known_after
from fsview.sync.follower import ATTEMPTS, TimelineFollower
from fsview.sync.metadata_reader import snapshot_of
from timeline.errors import InstantNotFoundError
from timeline.instant import CLEAN, DELTA_COMMIT, LOG_COMPACTION, RESTORE, ROLLBACK
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo
from timeline.table.partition_metadata import is_partition, list_partition
from timeline.timeline import Timeline

Pause = Callable[[], None]
"""Called between slices of work, to let others run; may raise to stop the work."""

SLICE: Final = 128
"""Files compared between two pauses: about 0.4 ms of work at most."""

SHOWN: Final = 3
"""How many differences a message names."""

_REMOVING: Final = (CLEAN, ROLLBACK, RESTORE)
_PENDING_MAPS: Final = ("pending_compaction", "pending_log_compaction", "pending_clustering")

_APPENDING: Final = (DELTA_COMMIT, LOG_COMPACTION)


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """One thing that differs between the snapshot and storage.

    Attributes:
        where: ``timeline``, ``pending compaction`` and the like, or ``partition 'p'``.
        what: The difference in words.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Discrepancies:
    """The outcome of a comparison; falsy if there is no difference.

    Attributes:
        found: The differences: of the table first, then by partition.
        unnamed: Names of files that differ and don't count, as no instant names them.
    """

    found: tuple[Discrepancy, ...] = ()
    unnamed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.found)

    def __str__(self) -> str:
        more = len(self.found) - SHOWN
        shown = "; ".join(map(str, self.found[:SHOWN]))
        return f"{shown}; and {more} more" if more > 0 else shown

    def __add__(self, other: Discrepancies) -> Discrepancies:
        return Discrepancies(self.found + other.found, self.unnamed | other.unnamed)


@dataclass(frozen=True, slots=True)
class UnequalFiles:
    """The files of a partition whose name or size differs between snapshot and listing.

    Attributes:
        equal: Names of the files that are equal.
        held: Name → size of the others in the snapshot.
        listed: The others in the listing.
    """

    equal: Collection[str]
    held: Mapping[str, int]
    listed: PartitionVersion


def removals_pending(active: Timeline) -> bool:
    """Whether a clean, rollback or restore is under way, which deletes files that are held."""
    return any(i.action in _REMOVING and not i.is_completed for i in active)


def differences_of_table(held: Snapshot, rebuilt: Snapshot) -> Discrepancies:
    """Compare two snapshots, except their files."""
    return Discrepancies(tuple(_of_table(held, rebuilt)))


def _of_table(held: Snapshot, rebuilt: Snapshot) -> Iterator[Discrepancy]:
    for instant in held.active:
        if not rebuilt.active.contains(instant):
            yield Discrepancy("timeline", f"{instant} is held and doesn't exist")
    for instant in rebuilt.active:
        if not held.active.contains(instant):
            yield Discrepancy("timeline", f"{instant} exists and isn't held")
    if held.hashes != rebuilt.hashes:
        yield Discrepancy("hashes", f"{held.hashes} are held, {rebuilt.hashes} are right")
    for name in _PENDING_MAPS:
        where = name.replace("_", " ")
        yield from _of_maps(where, getattr(held, name), getattr(rebuilt, name))
    yield from _of_maps("replaced groups", _by_group(held), _by_group(rebuilt))


def _by_group(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    return {
        (partition, file_id): time
        for partition, groups in snapshot.replaced.items()
        for file_id, time in groups.items()
    }


def _of_maps(
    where: str, held: Mapping[tuple[str, str], object], right: Mapping[tuple[str, str], object]
) -> Iterator[Discrepancy]:
    if held == right:
        return
    for key in sorted(held.keys() | right.keys()):
        if held.get(key) != right.get(key):
            group = f"group {key[1]} of partition {key[0]!r}"
            yield Discrepancy(
                where,
                f"{group}: {_shown(held.get(key))} is held, {_shown(right.get(key))} is right",
            )


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)


def differences_of_known(
    snapshot: Snapshot, partition: str, listing: Iterable[FileInfo], *, exists: bool
) -> Discrepancies:
    """Compare whether a partition is known with whether it exists.

    Args:
        snapshot: A snapshot whose partitions are known.
        partition: The partition.
        listing: Its directory's entries.
        exists: Whether it is a partition at the snapshot's instant.
    """
    is_known = partition in (snapshot.files.known or ())
    if is_known == exists:
        return Discrepancies()
    where = f"partition {partition!r}"
    if is_known:
        return Discrepancies((Discrepancy(where, "is known and doesn't exist"),))
    files = data_files(partition, listing, snapshot.config.base_extensions)
    if all(not snapshot.completion.is_completed(file.instant) for file in files):
        return Discrepancies(unnamed=frozenset(file.name for file in files))
    return Discrepancies((Discrepancy(where, "exists and isn't known"),))


def compared(
    held: PartitionVersion,
    listing: Iterable[FileInfo],
    extensions: Collection[str],
    pause: Pause = lambda: None,
) -> UnequalFiles:
    """Return the files of a partition in which a listing differs from the snapshot.

    Only these are parsed and packed, so equal files cost little.
    """
    left: dict[str, int] = {}
    for at, file in enumerate(held.files(), 1):
        left[file.name] = file.size
        if at % SLICE == 0:
            pause()
    equal: set[str] = set()
    others: list[FileInfo] = []
    for at, info in enumerate(listing, 1):
        if left.get(info.name) == info.size:
            del left[info.name]
            equal.add(info.name)
        else:
            others.append(info)
        if at % SLICE == 0:
            pause()
    listed = PartitionVersion.of(held.partition, data_files(held.partition, others, extensions))
    return UnequalFiles(equal, left, listed)


def differences_of_files(
    client: TableMetaClient, snapshot: Snapshot, unequal: UnequalFiles, listed: PartitionVersion
) -> Discrepancies:
    """Divide the unequal files of a partition into differences and files that no instant names.

    Args:
        client: The table.
        snapshot: The snapshot that holds the partition.
        unequal: The unequal files.
        listed: ``unequal.listed``, with the changes of the instants since it was listed.

    Raises:
        InstantNotFoundError: An instant has left the timeline meanwhile.

    Cost: usually none. For a base file that isn't held, a read of its commit; before table version
        8, for a log that isn't held, a read of each completed delta commit, rollback and restore.
    """
    held = unequal.held
    sizes = {file.name: file.size for file in listed.files() if file.name not in unequal.equal}
    names = sorted(n for n in sizes.keys() | held.keys() if sizes.get(n) != held.get(n))
    explained = UnnamedFiles(client, snapshot, listed.partition)
    unnamed = {n for n in names if explained.covers(n, held.get(n), sizes.get(n))}
    where = f"partition {listed.partition!r}"
    found = (
        Discrepancy(where, _of_file(name, held.get(name), sizes.get(name)))
        for name in names
        if name not in unnamed
    )
    return Discrepancies(tuple(found), frozenset(unnamed))


def _of_file(name: str, held: int | None, listed: int | None) -> str:
    if listed is None:
        return f"{name} is held and doesn't exist"
    if held is None:
        return f"{name} of {listed} bytes exists and isn't held"
    known = "of unknown size" if held == UNKNOWN_SIZE else f"with {held} bytes"
    return f"{name} is held {known} and has {listed}"


class UnnamedFiles:
    """The files of one partition that no instant names; see the module's docstring."""

    def __init__(self, client: TableMetaClient, snapshot: Snapshot, partition: str) -> None:
        self._client = client
        self._snapshot = snapshot
        self._partition = partition
        self._extensions = snapshot.config.base_extensions

    def covers(self, name: str, held: int | None, listed: int | None) -> bool:
        """Whether a file may have these two sizes; ``None`` where it is missing."""
        file = parse_data_file(self._partition, name, 0, 0, self._extensions)
        if file is None:
            return False
        if isinstance(file, BaseFile) or self._snapshot.logs_by_completion:
            if not self._snapshot.completion.is_completed(file.instant):
                return True
            return held is None and isinstance(file, BaseFile) and self._is_duplicate(file)
        # Before version 8 a log's name has the instant of its slice, not of its writer.
        if listed is None:
            return False
        if held is not None and listed < held:
            # A write empties the log of a repeated attempt, which may have been listed before.
            # If another writer has rolled that back, its rollback names the log with its size.
            return listed == 0 and name not in self._names_committed
        if self._appends_pend:
            return True
        # Not all rollbacks name the logs that they leave.
        return held is None and name not in self._names_written

    def _is_duplicate(self, file: BaseFile) -> bool:
        """Whether its commit names another base file of its group."""
        named = self._committed.by(file.instant).get(self._partition, ())
        return file.name not in named and any(n.startswith(f"{file.file_id}_") for n in named)

    @cached_property
    def _committed(self) -> Written:
        return Written(self._client, self._snapshot)

    @cached_property
    def _appends_pend(self) -> bool:
        active = self._snapshot.active
        return any(i.action in _APPENDING and not i.is_completed for i in active)

    @cached_property
    def _names_written(self) -> frozenset[str]:
        """Names of the files that the timeline's instants say they wrote."""
        return self._names_committed | self._names_in((ROLLBACK, RESTORE))

    @cached_property
    def _names_committed(self) -> frozenset[str]:
        """Names of the files that the timeline's delta commits wrote."""
        return self._names_in((DELTA_COMMIT,))

    def _names_in(self, actions: Collection[str]) -> frozenset[str]:
        """Return the names of the files that completed instants of some actions wrote."""
        names: set[str] = set()
        for instant in self._snapshot.active.completed():
            if instant.action in actions:
                delta = delta_of(self._client.read(instant), self._extensions)
                change = delta.partitions.get(self._partition, NO_CHANGE)
                names.update(file.name for file in change.added)
        return frozenset(names)


CAUSE: Final = "check"
"""What the storage calls of a check are booked under."""

NONE: Final = Discrepancies()

Outcome = Literal["equal", "different", "skipped"]


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check.

    Attributes:
        outcome: ``skipped`` if the two could not be compared this time.
        differences: What differs.
        why: Why it was skipped, in words.
    """

    outcome: Outcome
    differences: Discrepancies = NONE
    why: str = ""


def _skipped(why: str) -> Checked:
    return Checked("skipped", why=why)


class PartitionChecker:
    """Checks loaded partitions of one table against storage; it changes nothing, but may sync."""

    def __init__(self, follower: TimelineFollower) -> None:
        self._follower = follower
        self._state = follower.state

    def check(self, partition: str, pause: Pause) -> Checked:
        """Compare one partition and the table's pending and replaced groups with storage.

        Args:
            partition: A loaded partition.
            pause: Called every fraction of a millisecond of comparing; may raise to stop the check.

        Raises:
            StorageError: Something can't be listed or read.
            CorruptMetadataError: Something can't be understood.

        Cost: one list call of the partition, one of the timeline, the table's properties, a read
            of each pending plan and each completed replacecommit, booked under ``check``; a sync
            if the timeline has changed.
        """
        for _ in range(ATTEMPTS):
            history = self._state.held
            if history is None:
                return _skipped("the table isn't held")
            with suppress(InstantNotFoundError):  # gone between a listing and a read
                checked = self._look(history.newest, partition, pause)
                if checked is not None:
                    return checked
        return _skipped(f"the table changed {ATTEMPTS} times while it was being checked")

    def _look(self, start: Snapshot, partition: str, pause: Pause) -> Checked | None:
        """Check once; ``None`` when the table changed so that it must be checked again."""
        follower = self._follower
        client = TableMetaClient.open(follower.storage, cause=CAUSE)
        # The partition *before* the timeline: every change that the listing shows is on it.
        listing = list_partition(follower.storage.for_cause(CAUSE), partition)
        rebuilt = snapshot_of(client)
        # Files are deleted before any instant says so: then nothing can be checked.
        if removals_pending(rebuilt.active):
            return _skipped("a clean, rollback or restore is under way")
        # The steps that the sync reads are applied to the listing: both sides are of one instant.
        if rebuilt.active != start.active:
            follower.sync(CAUSE)
        history = self._state.held
        newest = None if history is None else history.newest
        steps = None if history is None else history.steps_since(start)
        # Another sync may have run since, or the table was reloaded.
        if history is None or newest is None or steps is None or newest.active != rebuilt.active:
            return None
        # A write has vanished without a rollback, so the listing is worth nothing now.
        if partition in history.unclear_since(start):
            return None
        held = newest.files.versions.get(partition)
        if held is None:
            return _skipped("the partition isn't loaded any more")
        unequal = compared(held, listing, newest.config.base_extensions, pause)
        listed = history.brought_forward(unequal.listed, steps)
        if listed is None:
            return None
        found = differences_of_table(newest, rebuilt)
        found += differences_of_files(client, newest, unequal, listed)
        if newest.files.known is not None:
            was_there = frozenset((partition,) if is_partition(listing) else ())
            exists = partition in known_after(was_there, *steps)
            found += differences_of_known(newest, partition, listing, exists=exists)
        if not found:
            return Checked("equal", found)
        # A plan that was deleted since the timeline was listed would look like a difference.
        moved = client.active_timeline() != rebuilt.active
        return None if moved else Checked("different", found)

"""Whether what was followed equals what one would build anew from storage, and in what it doesn't.

Compared are the timeline with both hashes, the pending compactions, log compactions and
clusterings, the replaced groups, the known partitions, and of each partition the names and sizes
of its files. Modification times aren't: metadata doesn't have them.

**Files that no instant names are no difference**: only a listing can show those of a write in
flight, and those that a failed one left. ``fsview.check.unnamed_files`` says what that covers,
exactly.

Nothing here is right while files are being removed (``removals_pending``).

Source: none in Hudi, whose view resets itself instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fsview.check.unnamed_files import Judge
from fsview.files.partition import PartitionVersion
from fsview.files.row import UNKNOWN_SIZE
from fsview.load.listing import discover_partitions, is_partition, list_partition
from fsview.model.file_name import data_files
from fsview.snapshot.plans import base_extensions
from fsview.snapshot.snapshot import Snapshot
from fsview.sync.plan_reader import snapshot_of
from timeline.instant import CLEAN, RESTORE, ROLLBACK
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo, Storage
from timeline.timeline import Timeline

Pause = Callable[[], None]
"""Called between slices of work, to let others run; what it raises breaks the work off."""

SLICE: Final = 128
"""Files looked at between two pauses: at most about four tenths of a millisecond."""

SHOWN: Final = 3
"""How many differences a message names."""

_REMOVING: Final = (CLEAN, ROLLBACK, RESTORE)
_PENDING_MAPS: Final = ("pending_compaction", "pending_log_compaction", "pending_clustering")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that isn't held as it is on storage.

    Attributes:
        where: ``timeline``, ``pending compaction`` and the like, or ``partition 'p'``.
        what: The difference in words.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Differences:
    """What a comparison found; falsy when held and rebuilt are equal.

    Attributes:
        found: The differences, in order: of the table, then partition by partition.
        unnamed: Names of files that are no difference because no instant names them.
    """

    found: tuple[Difference, ...] = ()
    unnamed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.found)

    def __str__(self) -> str:
        more = len(self.found) - SHOWN
        shown = "; ".join(map(str, self.found[:SHOWN]))
        return f"{shown}; and {more} more" if more > 0 else shown

    def __add__(self, other: Differences) -> Differences:
        return Differences(self.found + other.found, self.unnamed | other.unnamed)


@dataclass(frozen=True, slots=True)
class Unlike:
    """The files of a partition that don't lie there as they are held, before it is said why.

    Attributes:
        alike: Names of the files that do.
        held: Name → size of the others that are held.
        listed: The others that were listed.
    """

    alike: Collection[str]
    held: Mapping[str, int]
    listed: PartitionVersion


def equals_rebuilt(
    snapshot: Snapshot, storage: Storage, partitions: Collection[str] | None = None
) -> bool:
    """Whether a snapshot equals one built anew; see ``differences_from_rebuilt``."""
    return not differences_from_rebuilt(snapshot, storage, partitions)


def differences_from_rebuilt(
    snapshot: Snapshot, storage: Storage, partitions: Collection[str] | None = None
) -> Differences:
    """Compare a snapshot with what is built anew from storage, where nothing moves meanwhile.

    Args:
        snapshot: The newest one of a table; what was loaded of it is compared.
        storage: The table's.
        partitions: Which of the loaded partitions; ``None``: all, and whether the known partitions
            (if they are known) are those that are there.

    Raises:
        CorruptMetadataError: The table can't be built anew.

    Cost: what building it anew costs: the timeline, its plans and replacecommits, one list call for
        each partition; to find partitions, one for each directory.
    """
    client = TableMetaClient.open(storage)
    found = differences_of_table(snapshot, snapshot_of(client))
    there: dict[str, tuple[FileInfo, ...]] = {}
    if partitions is None and snapshot.files.known is not None:
        there = dict(discover_partitions(storage))
        found += _of_known(snapshot, there)
    for partition in sorted(snapshot.files.versions if partitions is None else partitions):
        listing = there[partition] if partition in there else list_partition(storage, partition)
        version = snapshot.files.versions[partition]
        unlike = compared(version, listing, base_extensions(snapshot.config))
        found += differences_of_files(client, snapshot, unlike, unlike.listed)
    return found


def removals_pending(active: Timeline) -> bool:
    """Whether a clean, rollback or restore is under way: then files go that are held, rightly."""
    return any(i.action in _REMOVING and not i.is_completed for i in active)


def differences_of_table(held: Snapshot, rebuilt: Snapshot) -> Differences:
    """Compare everything of two snapshots but their files."""
    return Differences(tuple(_of_table(held, rebuilt)))


def _of_table(held: Snapshot, rebuilt: Snapshot) -> Iterator[Difference]:
    for instant in held.active:
        if not rebuilt.active.contains(instant):
            yield Difference("timeline", f"{instant} is held and isn't there")
    for instant in rebuilt.active:
        if not held.active.contains(instant):
            yield Difference("timeline", f"{instant} is there and isn't held")
    if held.hashes != rebuilt.hashes:
        yield Difference("hashes", f"{held.hashes} are held, {rebuilt.hashes} are right")
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
) -> Iterator[Difference]:
    if held == right:
        return
    for key in sorted(held.keys() | right.keys()):
        if held.get(key) != right.get(key):
            group = f"group {key[1]} of partition {key[0]!r}"
            yield Difference(
                where, f"{group}: {_said(held.get(key))} is held, {_said(right.get(key))} is right"
            )


def _said(value: object) -> str:
    return "nothing" if value is None else str(value)


def _of_known(snapshot: Snapshot, there: Mapping[str, Collection[FileInfo]]) -> Differences:
    found = Differences()
    for partition in sorted((snapshot.files.known or frozenset()) | there.keys()):
        listing = there.get(partition, ())
        found += differences_of_known(snapshot, partition, listing, is_there=is_partition(listing))
    return found


def differences_of_known(
    snapshot: Snapshot, partition: str, listing: Iterable[FileInfo], *, is_there: bool
) -> Differences:
    """Compare whether a partition is known with whether it is there.

    Args:
        snapshot: One whose partitions are known.
        partition: The partition.
        listing: Of its directory.
        is_there: Whether it is a partition, at the snapshot's instant.
    """
    is_known = partition in (snapshot.files.known or ())
    if is_known == is_there:
        return Differences()
    where = f"partition {partition!r}"
    if is_known:
        return Differences((Difference(where, "is known and isn't there"),))
    files = data_files(partition, listing, base_extensions(snapshot.config))
    if all(not snapshot.completion.is_completed(file.instant) for file in files):
        return Differences(unnamed=frozenset(file.name for file in files))
    return Differences((Difference(where, "is there and isn't known"),))


def compared(
    held: PartitionVersion,
    listing: Iterable[FileInfo],
    extensions: Collection[str],
    pause: Pause = lambda: None,
) -> Unlike:
    """Return the files of a partition that a listing shows otherwise than they are held.

    Only names and sizes that are unlike are parsed and packed, so equal ones cost little.
    """
    left: dict[str, int] = {}
    for at, file in enumerate(held.files(), 1):
        left[file.name] = file.size
        if at % SLICE == 0:
            pause()
    alike: set[str] = set()
    others: list[FileInfo] = []
    for at, info in enumerate(listing, 1):
        if left.get(info.name) == info.size:
            del left[info.name]
            alike.add(info.name)
        else:
            others.append(info)
        if at % SLICE == 0:
            pause()
    listed = PartitionVersion.of(held.partition, data_files(held.partition, others, extensions))
    return Unlike(alike, left, listed)


def differences_of_files(
    client: TableMetaClient, snapshot: Snapshot, unlike: Unlike, listed: PartitionVersion
) -> Differences:
    """Say of the files of a partition that are unlike: a difference, or named by no instant.

    Args:
        client: The table.
        snapshot: The snapshot that holds the partition.
        unlike: What differs.
        listed: ``unlike.listed``, with what the instants since it was listed did.

    Raises:
        InstantNotFoundError: An instant is gone from the timeline meanwhile.

    Cost: nothing; where there is a base file that isn't held, a read of its commit; before table
        version 8, where there is such a log, one for each completed delta commit, rollback and
        restore.
    """
    sizes = {file.name: file.size for file in listed.files() if file.name not in unlike.alike}
    names = sorted(
        name
        for name in sizes.keys() | unlike.held.keys()
        if sizes.get(name) != unlike.held.get(name)
    )
    judge = Judge(client, snapshot, listed.partition)
    unnamed = {n for n in names if judge.is_unnamed(n, unlike.held.get(n), sizes.get(n))}
    where = f"partition {listed.partition!r}"
    found = (
        Difference(where, _of_file(name, unlike.held.get(name), sizes.get(name)))
        for name in names
        if name not in unnamed
    )
    return Differences(tuple(found), frozenset(unnamed))


def _of_file(name: str, held: int | None, there: int | None) -> str:
    if there is None:
        return f"{name} is held and isn't there"
    if held is None:
        return f"{name} of {there} bytes is there and isn't held"
    known = "of unknown size" if held == UNKNOWN_SIZE else f"with {held} bytes"
    return f"{name} is held {known} and has {there}"

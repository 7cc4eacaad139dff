"""``examine``: all findings of a table; ``Examination`` reads it once.

Each partition is listed once, checked and dropped. The table may change meanwhile: then what was
found is looked for again, in a picture and listings made afterwards, and counts if it is found
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from fsview.load.listing import folders_below, is_partition
from fsview.model.file_name import data_files
from strandline.table_services.doctor.content_checks import check_base_files, check_ends_of_logs
from strandline.table_services.doctor.file_checks import PARTITION_CHECKS, Partition
from strandline.table_services.doctor.finding import Finding, in_order
from strandline.table_services.doctor.picture import CAUSE, Picture, read_picture
from strandline.table_services.doctor.table_checks import (
    TABLE_CHECKS,
    PropertiesPicture,
    check_properties,
    usable,
)
from timeline.clock import Clock
from timeline.completion import UnreadArchiveError
from timeline.errors import (
    CorruptMetadataError,
    InstantNotFoundError,
    PathNotFoundError,
    TableNotFoundError,
)
from timeline.instant import WRITE_ACTIONS
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.base import FileInfo, FileKind, Storage
from timeline.table.config import CONFIG_PATH, META_FOLDER
from timeline.table.config_file import BACKUP_PATH, supported
from timeline.table.partition_metadata import path_in

T = TypeVar("T")
Check = Callable[[Partition], Iterable[Finding]]

_TIMELINE: Final = f"{META_FOLDER}/timeline"
_FIXED_ID: Final = "0000-0000-0000-000000000000"
"""End of the file ids of a bucket index with several writers, the same in all partitions."""
_STOPS: Final = frozenset({"properties-unreadable", "timeline-layout-mismatch"})
"""Faults of the properties with which nothing else can be understood."""


def examine(storage: Storage, clock: Clock, *, deep: bool = False) -> tuple[Finding, ...]:
    """Return what is wrong with a table, the worst first; nothing is changed.

    Args:
        storage: The table's storage.
        clock: Tells how old things are; clocks of this machine and of the storage must agree.
        deep: Whether to open the newest base files, too.

    Raises:
        TableNotFoundError: There is no table: neither properties nor a backup of them.
        UnsupportedTableError: Its version, type, time zone or base format isn't supported.
        StorageError: Something can't be listed or read.

    Cost: a list for each directory of the table; that of ``read_picture``; two small reads for each
        log of the newest slices; ``deep``: one or two for each base file of these, and a second
        read of each commit. If something was found, and the table changed meanwhile, all but the
        partitions without findings again.
    """
    storage = storage.for_cause(CAUSE)
    properties = read_properties(storage)
    found = list(check_properties(properties))
    config = usable(properties)
    if config is None or any(each.code in _STOPS for each in found):
        return in_order(found)
    meta = TableMetaClient(storage, supported(config, storage.base_path), cause=CAUSE)
    examination = Examination(meta, clock, deep=deep)
    return in_order((*found, *examination.findings()))


def read_properties(storage: Storage) -> PropertiesPicture:
    """Read the files with a table's properties.

    Raises:
        TableNotFoundError: There is none.

    Cost: two reads, two lists.
    """
    main, backup = _read(storage, CONFIG_PATH), _read(storage, BACKUP_PATH)
    if main is None and backup is None:
        raise TableNotFoundError(f"no table at {storage.base_path}: it has no {CONFIG_PATH}")
    names, timeline = (
        tuple(info.name for info in storage.list(folder) if not info.is_dir)
        for folder in (META_FOLDER, _TIMELINE)
    )
    return PropertiesPicture(main, backup, names, timeline)


def _read(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path, FileKind.PROPERTIES)
    except PathNotFoundError:
        return None


class Examination:
    """Examines one table whose properties can be understood; used by one thread.

    Args:
        meta: The table's meta client.
        clock: Tells how old things are.
        deep: As of ``examine``.
    """

    def __init__(self, meta: TableMetaClient, clock: Clock, *, deep: bool = False) -> None:
        self._meta = meta
        self._storage = meta.storage
        self._clock = clock
        self._deep = deep

    def picture(self) -> Picture:
        """Read the table without its partitions."""
        return read_picture(self._meta, self._clock.now_ms())

    def findings(self) -> list[Finding]:
        """Return what is wrong with the table, its properties aside."""
        picture = self.picture()
        found = [each for check in TABLE_CHECKS for each in check(picture)]
        if picture.snapshot is None:
            return found  # no view can be made, so nothing is known of files
        of_files = list(self._of_partitions(picture, self._partitions(picture)))
        if of_files and self._meta.active_timeline() != picture.active:
            of_files = self._found_again(of_files)
        return found + of_files

    def _found_again(self, before: Sequence[Finding]) -> list[Finding]:
        """Return the findings that are still there in a newer picture."""
        picture = self.picture()
        if picture.snapshot is None:
            return []
        partitions = sorted({each.partition for each in before if each.partition is not None})
        known = {(each.code, each.names) for each in before}
        listed = ((path, self._storage.list(path)) for path in partitions)
        return [
            each
            for each in self._of_partitions(picture, listed)
            if (each.code, each.names) in known
        ]

    def _partitions(self, picture: Picture) -> Iterator[tuple[str, tuple[FileInfo, ...]]]:
        """Yield each directory with data files, or that is named by a write, with its listing."""
        extensions = picture.config.base_extensions
        absent = {*picture.history.named, *picture.history.saved}
        level = [""]
        while level:
            below = []
            for path in level:
                listing = self._storage.list(path)
                if not is_partition(listing):
                    below += folders_below(path, listing)
                    if not data_files(path, listing, extensions):
                        continue
                absent.discard(path)
                yield path, listing
            level = below
        for path in sorted(absent):
            yield path, ()

    def _of_partitions(
        self, picture: Picture, partitions: Iterable[tuple[str, tuple[FileInfo, ...]]]
    ) -> Iterator[Finding]:
        checks: list[Check] = [
            *PARTITION_CHECKS,
            lambda partition: check_ends_of_logs(self._storage, partition),
        ]
        if self._deep:
            rows = _rows_of_base_files(self._meta, picture)
            checks.append(lambda partition: check_base_files(self._storage, partition, rows))
        seen: dict[str, str] = {}
        for path, listing in partitions:
            partition = Partition(picture, path, listing)
            for check in checks:
                yield from self._checked(check, partition)
            yield from _names_twice(partition, seen)

    def checked(self, picture: Picture, path: str, check: Check) -> list[Finding]:
        """List one partition and return what one check finds in it."""
        return self._checked(check, self.listed(picture, path))

    def listed(self, picture: Picture, path: str) -> Partition:
        """List one partition."""
        return Partition(picture, path, self._storage.list(path))

    def _checked(self, check: Check, partition: Partition) -> list[Finding]:
        while True:
            try:
                return list(check(partition))
            except UnreadArchiveError as needed:  # completion times of older instants
                times = partition.snapshot.completion
                self._meta.read_archived_times(times, needed.requested_time)


def _names_twice(partition: Partition, seen: dict[str, str]) -> Iterator[Finding]:
    """Yield base files of archived writes whose name another partition has, too.

    A name has the file id, the task and the time. For a write of the timeline its commit tells
    where the file belongs, so that a copy is an orphan.

    Args:
        partition: The partition.
        seen: Name → partition, of those before; those of this one are added.
    """
    for files in partition.bases.values():
        for file in files:
            if file.file_id.partition("-")[2].startswith(_FIXED_ID) or partition.writer(file):
                continue
            other = seen.setdefault(file.name, partition.path)
            if other != partition.path:
                what = f"partition {other!r} has a base file of this name, too"
                paths = (file.path, path_in(other, file.name))
                yield Finding("duplicate-file-name", what, paths, file.size, partition.path)


def _rows_of_base_files(meta: TableMetaClient, picture: Picture) -> dict[str, int]:
    """Return name → number of rows of the base files that commits of the timeline wrote."""
    rows: dict[str, int] = {}
    for instant in picture.active.completed():
        if instant.action not in WRITE_ACTIONS or instant in picture.history.damaged:
            continue
        try:
            metadata = meta.read(instant)
        except (CorruptMetadataError, InstantNotFoundError):
            continue  # its statistics are damaged, or it was archived since
        if isinstance(metadata, CommitMetadata):
            for stats in metadata.partition_to_write_stats.values():
                for stat in stats:
                    if stat.path and not stat.path.rpartition("/")[2].startswith("."):
                        rows[stat.path.rpartition("/")[2]] = stat.num_writes
    return rows

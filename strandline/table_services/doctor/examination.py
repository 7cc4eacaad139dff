"""``examine``: all findings of a table; ``Examination`` reads it once.

Each partition is listed once, checked and dropped. The table may change meanwhile: then what was
found is looked for again, in a picture and listings made afterwards, and counts if it is found
again.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from fsview.model.file_group import BaseFile
from fsview.model.file_name import data_files
from strandline.table_services.doctor.content_checks import check_base_files, check_ends_of_logs
from strandline.table_services.doctor.file_checks import (
    PARTITION_CHECKS,
    Partition,
    check_archived,
)
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
from timeline.instant import CLEAN, WRITE_ACTIONS
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanMetadata, CommitMetadata, InstantMetadata
from timeline.storage.base import FileInfo, FileKind, Storage
from timeline.table.config import CONFIG_PATH, META_FOLDER
from timeline.table.config_file import BACKUP_PATH, supported
from timeline.table.partition_metadata import folders_below, is_partition, path_in

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
        log of the newest slices; ``deep``: one or two for each base file of these, a second read of
        each commit, and the contents of archived writes and cleans. If something was found, a list
        of the timeline and of two folders, and two reads; if the table changed meanwhile, all but
        the partitions without findings again.
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
        self._within: list[str] = []
        self._archived: Mapping[str, Mapping[str, BaseFile]] = {}

    def picture(self) -> Picture:
        """Read the table without its partitions."""
        return read_picture(self._meta, self._clock.now_ms())

    def is_newest(self, picture: Picture) -> bool:
        """Return whether the timeline is still that of a picture; a list."""
        return self._meta.active_timeline() == picture.active

    def findings(self) -> list[Finding]:
        """Return what is wrong with the table, its properties aside."""
        picture = self.picture()
        found = [each for check in TABLE_CHECKS for each in check(picture)]
        if picture.snapshot is None:
            # No view can be made, so nothing is known of files.
            return found if self.is_newest(picture) else self._found_again(found)
        found += self._of_archive(picture)
        found += self._of_partitions(picture, self._partitions(picture))
        found += self._of_tables_within()
        if not found:
            return found
        config = usable(read_properties(self._storage))
        if config is None or config.properties == self._meta.config.properties:
            return found if self.is_newest(picture) else self._found_again(found)
        meta = TableMetaClient(self._storage, config, cause=CAUSE)
        return Examination(meta, self._clock, deep=self._deep)._found_again(found)

    def _found_again(self, before: Sequence[Finding]) -> list[Finding]:
        """Return the findings that are still there in a newer picture."""
        picture = self.picture()
        known = {(each.code, each.names) for each in before}
        again = [each for each in before if each.code == "table-within"]
        again += (each for check in TABLE_CHECKS for each in check(picture))
        if picture.snapshot is not None:
            again += self._of_archive(picture)
            of_files = [each for each in before if each.partition is not None]
            partitions = {each.partition for each in of_files if each.partition is not None}
            # A copy is found beside its other.
            copies = (each for each in of_files if each.code == "duplicate-file-name")
            partitions |= {name.rpartition("/")[0] for each in copies for name in each.names}
            listed = ((path, self._storage.list(path)) for path in sorted(partitions))
            again += self._of_partitions(picture, listed)
        return [each for each in again if (each.code, each.names) in known]

    def _of_archive(self, picture: Picture) -> Iterator[Finding]:
        """Read what archived writes have written, if contents are examined."""
        if not self._deep or picture.archive.timeline is None:
            return
        try:
            self._archived = _archived_base_files(self._meta, picture)
        except (CorruptMetadataError, InstantNotFoundError, PathNotFoundError) as error:
            what = f"the contents of the archived timeline can't be read: {error!s:.300}"
            yield Finding("broken-archive", what, (picture.config.archive_folder,))

    def _of_tables_within(self) -> Iterator[Finding]:
        for path in self._within:
            what = "another table is below the base path; its files aren't examined"
            yield Finding("table-within", what, (path,))

    def _partitions(self, picture: Picture) -> Iterator[tuple[str, tuple[FileInfo, ...]]]:
        """Yield each directory with data files, or that is named by a write, with its listing.

        A directory with metadata of its own is another table, and isn't entered.
        """
        extensions = picture.config.base_extensions
        absent = {*picture.history.named, *picture.history.saved, *self._archived}
        level = [""]
        while level:
            below = []
            for path in level:
                listing = self._storage.list(path)
                if path and any(info.name == META_FOLDER for info in listing):
                    self._within.append(path)
                    if path not in absent:
                        continue
                elif not is_partition(listing):
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
            written = self._archived
            checks.append(lambda found: check_archived(found, written.get(found.path, {})))
        # Of names only hashes are kept, 12 bytes for each.
        paths: list[str] = []
        names, places = array("q"), array("I")
        for path, listing in partitions:
            partition = Partition(picture, path, listing)
            for check in checks:
                yield from self._checked(check, partition)
            for file in _of_archived_writes(partition):
                names.append(hash(file.name))
                places.append(len(paths))
            paths.append(path)
        seen: dict[str, str] = {}
        for path in sorted({paths[places[at]] for at in _repeated(names)}):
            yield from _names_twice(self.listed(picture, path), seen)

    def checked(self, picture: Picture, path: str, checks: Iterable[Check]) -> list[Finding]:
        """List one partition and return what some checks find in it."""
        partition = self.listed(picture, path)
        return [each for check in checks for each in self._checked(check, partition)]

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


def _of_archived_writes(partition: Partition) -> Iterator[BaseFile]:
    """Yield base files that no write of the timeline wrote, and whose name should be unique."""
    for files in partition.bases.values():
        for file in files:
            fixed = file.file_id.partition("-")[2].startswith(_FIXED_ID)
            if not fixed and partition.writer(file) is None:
                yield file


def _repeated(values: array[int]) -> set[int]:
    """Return the places of the values that are there more than once."""
    order = np.argsort(values)
    ordered = np.asarray(values)[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    return {int(order[at + by]) for at in same for by in (0, 1)}


def _names_twice(partition: Partition, seen: dict[str, str]) -> Iterator[Finding]:
    """Yield base files of archived writes whose name another partition has, too.

    A name has the file id, the task and the time. For a write of the timeline its commit tells
    where the file belongs, so that a copy is an orphan.

    Args:
        partition: The partition.
        seen: Name → partition, of those before; those of this one are added.
    """
    for file in _of_archived_writes(partition):
        other = seen.setdefault(file.name, partition.path)
        if other != partition.path:
            what = f"partition {other!r} has a base file of this name, too"
            paths = (file.path, path_in(other, file.name))
            yield Finding("duplicate-file-name", what, paths, file.size, partition.path)


def _archived_base_files(meta: TableMetaClient, picture: Picture) -> dict[str, dict[str, BaseFile]]:
    """Return partition → file id → newest base file of archived writes that no clean deleted."""
    archive, extensions = meta.archived_timeline(), picture.config.base_extensions
    written: dict[str, dict[str, BaseFile]] = defaultdict(dict)
    for instant in archive.timeline.completed():
        # In the order of their requests: a clean deletes files of earlier writes only.
        if instant.action == CLEAN:
            _forget_cleaned(written, archive.read(instant))
        if instant.action not in WRITE_ACTIONS:
            continue
        metadata = archive.read(instant)
        assert isinstance(metadata, CommitMetadata)
        for partition, stats in metadata.by_folder().partition_to_write_stats.items():
            infos = [
                FileInfo((s.path or "").rpartition("/")[2], s.file_size_in_bytes, 0) for s in stats
            ]
            for file in data_files(partition, infos, extensions):
                if isinstance(file, BaseFile):
                    written[partition][file.file_id] = file
    for instant in picture.active.completed():
        if instant.action == CLEAN and instant not in picture.history.damaged:
            _forget_cleaned(written, meta.read(instant))
    return {partition: groups for partition, groups in written.items() if groups}


def _forget_cleaned(written: Mapping[str, dict[str, BaseFile]], clean: InstantMetadata) -> None:
    """Remove the files that a clean has deleted, or has tried to."""
    assert isinstance(clean, CleanMetadata)
    for partition, done in clean.partition_metadata.items():
        deleted = {path.rpartition("/")[2] for path in done.success_delete_files}
        deleted.update(path.rpartition("/")[2] for path in done.failed_delete_files)
        groups = written.get(partition, {})
        for file_id in [key for key, file in groups.items() if file.name in deleted]:
            del groups[file_id]


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
            for stat in metadata.stats:
                name = (stat.path or ".").rpartition("/")[2]
                if not name.startswith("."):
                    rows[name] = stat.num_writes
    return rows

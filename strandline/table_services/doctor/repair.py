"""``repair``: puts right what can be put right without changing a row.

It deletes orphans that readers don't see, extra base files of repeated tasks, forgotten markers,
heartbeats and temporary files; and it writes a missing checksum and missing partition metadata. All
else is left: what pends is undone by a rollback, which knows more.

The table is examined without its lock. Then, under the lock, which others get now and then, each
file is looked at again right before it changes: the timeline is listed, and if it has changed, the
picture is read and the partition checked again; the file must still be found for the same reason,
and be a day old. A crash leaves the table as readable as before: nothing that is deleted is needed,
and every file that is written appears at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from strandline.commit.lock.base import TableLock
from strandline.records.schema.columns import COUNT, FLAG, TEXT, schema_of
from strandline.table_services.doctor.examination import Examination, examine, read_properties
from strandline.table_services.doctor.file_checks import (
    check_duplicates,
    check_orphans,
    check_partition_metadata,
    first_instant,
)
from strandline.table_services.doctor.finding import Finding
from strandline.table_services.doctor.picture import CAUSE, Picture, is_old, why_needed
from strandline.table_services.doctor.table_checks import check_left, check_properties, usable
from timeline.clock import Clock
from timeline.errors import AlreadyExistsError, LockError, PathNotFoundError, StrandlineError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileKind, Storage
from timeline.table.config import CONFIG_PATH
from timeline.table.config_file import BACKUP_PATH
from timeline.table.partition_metadata import write_partition_metadata

logger = logging.getLogger(__name__)

REPAIRS_SCHEMA: Final = schema_of(code=TEXT, name=TEXT, bytes=COUNT, done=FLAG, what=TEXT)
_PARTITION_CHECKS: Final = (check_orphans, check_duplicates, check_partition_metadata)
_BATCH: Final = 250
"""Files that are repaired while the lock is held once; others wait for it a minute."""
_GONE: Final = "it isn't there any more"
_CHANGED: Final = "it isn't a fault any more, or is too young"


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done about one file.

    Attributes:
        code: The finding's code.
        name: Path under the base path.
        bytes: Bytes of a file that was deleted, 0 if unknown.
        done: Whether it was changed.
        what: What was done, or why nothing was.
        failed: Whether an error is why nothing was done.
    """

    code: str
    name: str
    bytes: int
    done: bool
    what: str
    failed: bool = False


def repairs_table(repairs: tuple[Repair, ...]) -> pa.Table:
    """Return repairs as rows of ``REPAIRS_SCHEMA``, in their order."""
    names = REPAIRS_SCHEMA.names
    rows = [{name: getattr(each, name) for name in names} for each in repairs]
    return pa.Table.from_pylist(rows, REPAIRS_SCHEMA)


def repair(storage: Storage, lock: TableLock, clock: Clock) -> tuple[Repair, ...]:
    """Examine a table, and put right what is fixable.

    Args:
        storage: The table's storage.
        lock: The table's lock, not held. Writers that don't share it aren't excluded; what they
            have made legitimate since is noticed by the second look.
        clock: Tells how old things are.

    Returns:
        One value for each file, in the order of the findings.

    Raises:
        TableNotFoundError: There is no table.
        LockError: The lock wasn't acquired, or was lost, before anything was done. Later it is no
            error: what is left isn't done, for that reason.
        StorageError: The table can't be examined. A file that can't be changed is no error.

    Cost: that of ``examine``; for each file a list of the timeline, a stat and a delete or create;
        for each partition of such files a list; and ``read_picture`` once, and again whenever the
        timeline has changed. The lock is given back after ``_BATCH`` files.
    """
    found = [each for each in examine(storage, clock) if each.fixable]
    wanted = [(each, name) for each in found for name in each.names]
    repairer = _Repairer(storage.for_cause(CAUSE), lock, clock)
    done: list[Repair] = []
    try:
        while len(done) < len(wanted):
            with lock.held("repairing the table"):
                repairer.renew()
                for each, name in wanted[len(done) : len(done) + _BATCH]:
                    done.append(repairer.repaired(each, name))
    except LockError as error:
        if not any(each.done for each in done):
            raise
        logger.warning("%s isn't repaired further: %s", storage.base_path, error)
        done += (
            Repair(f.code, name, 0, False, str(error), True) for f, name in wanted[len(done) :]
        )
    return tuple(done)


class _Repairer:
    """Repairs one table, under its lock."""

    def __init__(self, storage: Storage, lock: TableLock, clock: Clock) -> None:
        self._storage = storage
        self._lock = lock
        self._clock = clock
        self._examination: Examination | None = None
        self._picture: Picture | None = None
        self._fresh: dict[str | None, frozenset[tuple[str, tuple[str, ...]]]] = {}

    def renew(self) -> None:
        """Forget what was seen of partitions before the lock was acquired."""
        self._fresh.clear()

    def repaired(self, found: Finding, name: str) -> Repair:
        """Repair one file of a finding."""
        act: Callable[[Finding, str], str | None] = self._delete
        if found.partition is None and found.names == (CONFIG_PATH,):
            act = self._write_checksum
        elif found.code == "partition-metadata-missing":
            act = self._write_metadata
        elif found.code == "marker-left":
            act = self._delete_folder
        writes = found.code.startswith(("properties", "partition"))
        size = 0 if writes or len(found.names) > 1 else found.bytes
        try:
            why = act(found, name)
        except LockError:
            raise
        except StrandlineError as error:
            logger.warning("%s of %s isn't repaired: %s", name, self._storage.base_path, error)
            return Repair(found.code, name, size, False, str(error), True)
        if why is not None:
            return Repair(found.code, name, size, False, why)
        done = "written" if writes else "deleted"
        logger.info("%s of %s is %s: %s", name, self._storage.base_path, done, found.code)
        return Repair(found.code, name, size, True, done)

    def _examined(self) -> tuple[Examination, Picture]:
        """Return the table as it is now; it is read again if the timeline has changed."""
        if self._examination is None:
            config = usable(read_properties(self._storage))
            assert config is not None, "files are found only in a table with properties"
            meta = TableMetaClient(self._storage, config, cause=CAUSE)
            self._examination = Examination(meta, self._clock)
        if self._picture is None or not self._examination.is_newest(self._picture):
            self._picture = self._examination.picture()
            self._fresh.clear()
        return self._examination, self._picture

    def _is_still(self, found: Finding) -> bool:
        """Return whether a finding is found again, for the same reason, and fixable."""
        examination, picture = self._examined()
        if found.partition not in self._fresh:
            again: list[Finding] = []
            if found.partition is None:
                again += check_left(picture)
            elif picture.snapshot is not None:
                partition = found.partition
                again += examination.checked(picture, partition, _PARTITION_CHECKS)
            self._fresh[found.partition] = frozenset((f.code, f.names) for f in again if f.fixable)
        return (found.code, found.names) in self._fresh[found.partition]

    def _delete(self, found: Finding, path: str) -> str | None:
        """Delete a file; return why not."""
        if not self._is_still(found):
            return _CHANGED
        info = self._storage.stat(path)
        if info is None:
            return _GONE
        if not self._is_old(info.mtime_ms):
            return _CHANGED
        self._lock.check()
        return None if self._storage.delete(path) else _GONE

    def _delete_folder(self, found: Finding, path: str) -> str | None:
        """Delete a folder of markers; return why not."""
        if not self._is_still(found):
            return _CHANGED
        listed = self._storage.list_tree(path)
        if not all(self._is_old(info.mtime_ms) for info in listed):
            return _CHANGED
        _, picture = self._examined()
        time = path.rpartition("/")[2]
        if needed := why_needed(self._storage, time, listed, picture.history.named):
            return needed
        self._lock.check()
        return None if self._storage.delete_tree(path) else _GONE

    def _is_old(self, mtime_ms: int) -> bool:
        assert self._picture is not None, "it was looked at before"
        return is_old(self._clock.now_ms(), self._picture.config.timezone, mtime_ms, "")

    def _write_metadata(self, found: Finding, _: str) -> str | None:
        """Write a partition's metadata file; return why not."""
        if not self._is_still(found) or found.partition is None:
            return _CHANGED
        examination, picture = self._examined()
        partition = examination.listed(picture, found.partition)
        time = first_instant(partition.files, partition.named)
        if time is None:
            return _CHANGED
        self._lock.check()
        written = write_partition_metadata(self._storage, found.partition, time)
        return None if written else _CHANGED

    def _write_checksum(self, _: Finding, __: str) -> str | None:
        """Write the properties with the right checksum; return why not.

        The backup is written first, with the right checksum, too, so that readers find a valid file
        at any time: Hudi's and this package's readers use it if the other is invalid.
        """
        properties = read_properties(self._storage)
        again = [each for each in check_properties(properties) if each.fixable]
        config = usable(properties)
        if not again or config is None:
            return _CHANGED
        data = config.to_bytes()
        self._lock.check()
        try:
            # Exclusive, so that no other writer changes the properties at the same time.
            self._storage.create(BACKUP_PATH, data)
        except AlreadyExistsError:
            if self._storage.read(BACKUP_PATH, FileKind.PROPERTIES) != data:
                return f"{BACKUP_PATH} exists: another writer changes the properties"
        try:
            if self._storage.read(CONFIG_PATH, FileKind.PROPERTIES) != properties.main:
                self._storage.delete(BACKUP_PATH)
                return "another writer has changed it"
        except PathNotFoundError:
            return "another writer is replacing it"
        self._storage.replace(CONFIG_PATH, data)
        self._storage.delete(BACKUP_PATH)
        return None

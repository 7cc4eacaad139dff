"""Markers, which record the data files that a write may have created before it creates them.

The commit deletes files that have a marker but weren't reported (by repeated task attempts), and
the rollback of a failed write deletes all marked files. Markers are empty files or lines of files
(``strandline.server.marker.file``). ``WriteMarkers`` creates those of one write before its
tasks create the data files:

==================  ============================================================================
``DirectMarkers``   each marker is an empty file
``ServiceMarkers``  the timeline service writes them as lines of ``MARKERS<n>`` files; a task that
                    gets no valid answer writes a ``MARKERS<n>`` itself
==================  ============================================================================

The driver chooses one of them for the whole write, because Hudi's rollback ignores separate marker
files if there is a ``MARKERS.type``. So that file is created before the tasks begin, and even a
task that works without the service adds lines, not files.

A plan's instant may be executed twice at the same time, if a writer that was considered dead wakes
up. Both have one marker folder, so the names of their files have a number of the execution
(``execution_token``), and until the instant has completed each deletes only its own files.

A marker is a name in a set, so creating it twice is harmless. So after a lost response, when the
service may or may not have the marker, the task writes it itself.

A task on an executor whose create of a data file isn't answered notes that in the file's marker
(``note_unanswered``): its driver only learns how the last attempt of each task has ended.

Tasks with direct markers may search for concurrent writes themselves (``EarlyConflicts``); with
markers of the timeline service, the service does (``strandline.server.marker.conflict``, which has
the rules for both). If a conflict is uncertain, none is reported: the commit decides.

Source: Hudi 1.2.0 ``WriteMarkers``, ``DirectWriteMarkers``, ``TimelineServerBasedWriteMarkers``,
``SimpleDirectMarkerBasedDetectionStrategy``,
``SimpleTransactionDirectMarkerBasedDetectionStrategy``, ``HoodieTable.reconcileAgainstMarkers``.
"""

from __future__ import annotations

import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from executor_proxy.priority_view import cause_of
from executor_proxy.report import Fallback
from executor_proxy.view_location import ViewLocation
from strandline.commit.conflict import REPEAT
from strandline.commit.slice_logs import take_back
from strandline.server.marker.conflict import ConflictCheck, ConflictOptions
from strandline.server.marker.file import (
    PREFIX,
    TEMP_FOLDER,
    TYPE,
    TYPE_FILE,
    announced,
    directory_path,
    has_unanswered,
    markers_in,
)
from strandline.server.marker.name import is_own_file, is_slice_log
from timeline.clock import Clock
from timeline.errors import AlreadyExistsError, StrandlineError, WriteConflictError
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo, Storage
from timeline.table.config import META_FOLDER
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

_SUFFIX: Final = ".marker."


def marked_files(storage: Storage, instant: str) -> tuple[str, ...] | None:
    """Return the sorted paths (under the base path) of data files that an instant may have created.

    ``None`` means that there is no marker folder, so nothing is known. Paths that can't be files of
    this instant are left out with a warning, as callers delete the returned ones: a corrupt or
    hostile folder may name live files of other commits, or ``hoodie.properties``. Logs that are
    named by their slice are among them if they have an ``APPEND`` marker (``take_back``).

    Cost: one tree list, a read for each ``MARKERS`` file; one stat if nothing is found.
    """
    found = announced(storage, instant)
    # An empty folder means that no file was created yet; a missing one means nothing.
    if not found and storage.stat(directory_path(instant)) is None:
        return None
    return own_files(found, instant)


def own_files(markers: Collection[str], instant: str) -> tuple[str, ...]:
    """Return the sorted paths of an instant's markers that can be data files of its own."""
    kinds = {path: kind for path, _, kind in (name.rpartition(_SUFFIX) for name in markers)}
    paths = kinds.keys()
    own = tuple(
        sorted(
            path
            for path, kind in kinds.items()
            if is_own_file(path, instant) or (kind == APPEND and is_slice_log(path, instant))
        )
    )
    if len(own) < len(paths):
        logger.warning(
            "%s: markers that don't name data files of this instant are ignored: %d",
            directory_path(instant),
            len(paths) - len(own),
        )
    return own


def delete_markers(storage: Storage, instant: str, known: Collection[str] | None = None) -> None:
    """Delete an instant's markers, if any.

    Args:
        storage: The table's storage.
        instant: Requested time of the instant.
        known: The files in the marker folder, if the caller knows them: an object store then
            deletes these without a list call. Files that appear later are left to the next sweep.
    """
    folder = directory_path(instant)
    if known is None or storage.has_directories:
        storage.delete_tree(folder)
    else:
        storage.delete_all([f"{folder}/{name}" for name in known])


def instants_with_markers(storage: Storage) -> tuple[str, ...]:
    """Return the instants that have a marker folder. Cost: one list call."""
    return tuple(
        info.name for info in storage.list(TEMP_FOLDER) if info.is_dir and info.name.isdigit()
    )


def timeline_and_markers(meta: TableMetaClient) -> tuple[Timeline, frozenset[str]]:
    """Return the active timeline, and the instants that have a marker folder.

    Cost: two list calls; on an object store one, which lists all of the table's metadata.
    """
    storage = meta.storage.for_cause("timeline")
    if storage.has_directories:
        return meta.active_timeline(), frozenset(instants_with_markers(storage))
    folder = f"{meta.layout.folder}/".removeprefix(f"{META_FOLDER}/")
    temp = f"{TEMP_FOLDER}/".removeprefix(f"{META_FOLDER}/")
    on_timeline, marked = [], set()
    for info in storage.list_tree(META_FOLDER):
        name = info.name.removeprefix(folder)
        if info.name.startswith(temp):
            marked.add(info.name.removeprefix(temp).partition("/")[0])
        elif info.name.startswith(folder) and "/" not in name:
            on_timeline.append(replace(info, name=name))
    return meta.timeline_in(on_timeline), frozenset(filter(str.isdigit, marked))


EXECUTIONS: Final = 500_000_000
"""Bound of the random numbers of executions: names with at most nine digits are packed by views."""


def execution_token(write_token: str, execution: int, *, in_driver: bool) -> str:
    """Return the write token of a base file of one execution of a plan.

    Args:
        write_token: Token of a task attempt, ``<partition>-<stage>-<attempt>``. Two processes may
            have the same numbers; so may the driver and the executors of one execution.
        execution: Random number of the execution, below ``EXECUTIONS``.
        in_driver: Whether the task runs in the driver.
    """
    partition, _, attempt = write_token.split("-")
    return f"{partition}-{2 * execution + (not in_driver)}-{attempt}"


def is_of_execution(path: str, execution: int) -> bool:
    """Return whether the name of a base file has the number of an execution."""
    parts = path.rpartition("/")[2].rsplit("_", 2)
    numbers = parts[1].split("-") if len(parts) == 3 else []
    return len(numbers) == 3 and numbers[1] in (str(2 * execution), str(2 * execution + 1))


def delete_unreported(
    storage: Storage, instant: str, reported: Collection[str], execution: int | None = None
) -> tuple[str, ...]:
    """Delete files with a marker of this instant that aren't ``reported``; return their paths.

    They come from task attempts whose results Spark discarded.

    Args:
        storage: The table's storage.
        instant: Requested time of the instant.
        reported: Paths of the files that it reports.
        execution: Number of the execution whose files are deleted; ``None``: all files.
    """
    _, deleted = _sweep(storage, instant, reported, execution)
    return deleted


def _sweep(
    storage: Storage, instant: str, reported: Collection[str], execution: int | None = None
) -> tuple[tuple[FileInfo, ...], tuple[str, ...]]:
    """Return the files of the marker folder, and the paths of the unreported files deleted."""
    listed = storage.list_tree(directory_path(instant))
    marked = own_files(markers_in(storage, instant, listed), instant)
    unreported = tuple(
        path
        for path in marked
        if path not in reported and (execution is None or is_of_execution(path, execution))
    )
    if unreported:
        take_back(storage, instant, unreported)
    return listed, unreported


def finish_markers(
    storage: Storage, instant: str, reported: Collection[str], *, late: bool = False
) -> tuple[str, ...]:
    """Delete the files that an ended instant doesn't report, then its markers; return the files.

    Call it when the instant has completed, or its pending files are gone. A task that checks its
    instant afterwards deletes its own files (``delete_if_ended``). A task that checked before had
    created its marker and file by then, so they are found here.

    Args:
        storage: The table's storage.
        instant: Requested time of the instant.
        reported: Paths of the files that it reports.
        late: Whether files that it doesn't report may still appear. If it has markers of such
            files, its markers stay for a later sweep.

    Cost: a tree list, a read for each ``MARKERS`` file, and a delete.
    """
    listed, deleted = _sweep(storage, instant, reported)
    if late and deleted:
        return deleted
    # Only the markers whose files were checked.
    delete_markers(storage, instant, [info.name for info in listed])
    return deleted


def delete_if_ended(meta: TableMetaClient, time: str, paths: Collection[str]) -> bool:
    """Delete a task's files if the write at a time isn't inflight; return whether it isn't.

    Called after the task has written them: its instant may have completed with the files of another
    attempt, or have been rolled back, and no other process may know of these files.

    Cost: one list call of the timeline.
    """
    writes = (i for i in meta.active_timeline().write_timeline() if i.requested_time == time)
    if any(instant.state is State.INFLIGHT for instant in writes):
        return False
    take_back(meta.storage, time, paths)
    return True


CREATE: Final = "CREATE"
"""The data file opens a new file group."""
MERGE: Final = "MERGE"
"""The data file is a new version of a stored one."""
APPEND: Final = "APPEND"
"""The data file is a log whose name has the base instant of its slice, as in table version 6."""

_AT_ONCE: Final = 10_000
"""Most markers of a task that are created together."""
_OWN_NUMBERS: Final = range(1_000_000, 1_000_000_000)
"""Numbers of the ``MARKERS<n>`` that tasks write: above the service's, and a Java ``int``."""


def marker_name(path: str, kind: str) -> str:
    """Return the marker of the data file at ``path`` (under the base path)."""
    return f"{path}.marker.{kind}"


class WriteMarkers(ABC):
    """The markers of one write, as a value that is sent to its tasks; pickles.

    Attributes:
        instant: Requested time of the write.
    """

    instant: str

    @property
    @abstractmethod
    def at_once(self) -> int:
        """How many markers a task creates together, before it writes the first of their files."""

    @abstractmethod
    def create(self, storage: Storage, names: Sequence[str]) -> Fallback | None:
        """Create markers, durable on return; call it before the data files are created.

        Args:
            storage: The table's storage.
            names: The markers, relative to the base path.

        Returns:
            Why the service didn't create them, if that was its job.

        Raises:
            WriteConflictError: Early conflicts are detected, and another write is changing, or has
                changed, one of the file groups.
            StorageError: A marker couldn't be created; its data file must not be.
        """

    @abstractmethod
    def finish(
        self, storage: Storage, reported: Collection[str], known: Collection[str] | None = None
    ) -> None:
        """Delete the files that the commit doesn't report, then the directory of markers.

        The directory stays for later sweeps if a task has noted a file that may still appear.

        Args:
            storage: The table's storage.
            reported: Paths of the files that the commit reports.
            known: The markers, if there can be no others.
        """


@dataclass(frozen=True, slots=True)
class DirectMarkers(WriteMarkers):
    """Markers that are empty files.

    Attributes:
        instant: Requested time of the write.
        early: How conflicts are detected after each marker; ``None``: only at the commit.
    """

    instant: str
    early: EarlyConflicts | None = None

    @property
    def at_once(self) -> int:
        """Return 1: a crash leaves at most one marker without its file."""
        return 1

    def create(self, storage: Storage, names: Sequence[str]) -> Fallback | None:
        """Create a file for each marker, then check for conflicts."""
        for name in names:
            create_marker(storage, self.instant, name)
        if self.early is not None:
            # After the markers: otherwise an older write could announce a file between check and
            # marker, unseen by both. Hudi checks first; its transactional strategy locks the group.
            self.early.refuse(storage, self.instant, names)
        return None

    def finish(
        self, storage: Storage, reported: Collection[str], known: Collection[str] | None = None
    ) -> None:
        """Delete files and directory."""
        if known is None:
            listed, _ = _sweep(storage, self.instant, reported)
            if has_unanswered(listed):
                return
            known = [info.name for info in listed]
        delete_markers(storage, self.instant, known)


@dataclass(frozen=True, slots=True)
class ServiceMarkers(WriteMarkers):
    """Markers that the timeline service keeps.

    Attributes:
        instant: Requested time of the write.
        service: Where the service is found.
        detects: Whether the service refuses markers because of early conflicts.
    """

    instant: str
    service: ViewLocation = field(repr=False)
    detects: bool = False

    @property
    def at_once(self) -> int:
        """Return 1 if conflicts are detected, as each request asks whether one was found."""
        return 1 if self.detects else _AT_ONCE

    def begin(self, storage: Storage) -> Fallback | None:
        """Create ``MARKERS.type``; call it in the driver before the tasks begin.

        Returns:
            ``None``, or why the service can't keep the markers. Then there is no ``MARKERS.type``.

        Raises:
            StorageError: It couldn't be created, or not be deleted again.
        """
        path = f"{directory_path(self.instant)}/{TYPE_FILE}"
        try:
            storage.create(path, TYPE)
        except AlreadyExistsError:
            # The instant is new, so this call was repeated after a lost response.
            logger.debug("%s already exists", path)
        try:
            # The service opens the table by its base path, which may resolve to another storage.
            if self.service.open_markers(directory_path(self.instant)).exists():
                return None
            fallback = Fallback("refused", "the timeline service doesn't see this table's storage")
        except StrandlineError as error:
            fallback = _fallback(error)
        # With this file Hudi would ignore direct markers.
        storage.delete(path)
        return fallback

    def create(self, storage: Storage, names: Sequence[str]) -> Fallback | None:
        """Have the service create the markers, or write them after a failure of the service."""
        client = self.service.open_markers(directory_path(self.instant))
        try:
            are_free = client.create(names, early_conflicts=self.detects)
        # On any error: the task's own storage may succeed where the service's failed, and creating
        # a marker twice does no harm.
        except StrandlineError as error:
            self._create_own(storage, names)
            return _fallback(error)
        if not are_free:
            raise early_conflict(
                storage, self.instant, f"the timeline service refused marker {names[0]}"
            )
        return None

    def finish(
        self, storage: Storage, reported: Collection[str], known: Collection[str] | None = None
    ) -> None:
        """Have the service delete and forget the directory; on a failure delete it here."""
        if known is None:
            listed, _ = _sweep(storage, self.instant, reported)
            if has_unanswered(listed):
                return
        try:
            self.service.open_markers(directory_path(self.instant)).delete()
        except StrandlineError as error:
            logger.info("the timeline service didn't delete its markers: %s", error)
            delete_markers(storage, self.instant)

    def _create_own(self, storage: Storage, names: Sequence[str]) -> None:
        """Create a ``MARKERS<n>`` with these markers, which only this call writes."""
        lines = "".join(f"{name}\n" for name in names).encode()
        while True:
            number = _OWN_NUMBERS[secrets.randbelow(len(_OWN_NUMBERS))]
            try:
                storage.create(f"{directory_path(self.instant)}/{PREFIX}{number}", lines)
            except AlreadyExistsError:
                # Another task's file, or this one's after a lost response; both remain valid.
                continue
            return


def create_marker(storage: Storage, instant: str, name: str) -> None:
    """Create a direct marker."""
    try:
        # A data file without a marker would never be deleted, and would count as committed once its
        # instant is archived.
        storage.create(f"{directory_path(instant)}/{name}")
    except AlreadyExistsError:
        # The name contains the task attempt, so this call was repeated after a lost response.
        return


def note_unanswered(storage: Storage, instant: str, name: str) -> None:
    """Note in a marker that its data file may still appear, as storage didn't answer its create.

    Without the note, if storage doesn't take it either, the write's end deletes the marker.

    Cost: a replacement.
    """
    try:
        storage.replace(f"{directory_path(instant)}/{name}", b"unanswered\n")
    except StrandlineError as error:
        logger.warning("it can't be noted that the file of %s may still appear: %s", name, error)


def _fallback(error: StrandlineError) -> Fallback:
    return Fallback(cause_of(error), f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class EarlyConflicts:
    """How a write's tasks search for conflicts; pickles.

    Attributes:
        options: What counts as a conflict, and when a heartbeat has expired.
        before: The instants that had completed when the write began.
        clock: Measures the age of heartbeats.
    """

    options: ConflictOptions
    before: frozenset[Instant]
    clock: Clock

    def refuse(self, storage: Storage, instant: str, names: Sequence[str]) -> None:
        """Raise if another write also has markers for the file groups of this write's markers.

        Raises:
            WriteConflictError: Another write has markers for one of them.

        Cost: ``ConflictCheck.run``.
        """
        check = ConflictCheck(
            storage, instant, lambda: names, self.options, self.clock, before=self.before
        )
        try:
            found = check.run()
        except StrandlineError as error:
            logger.warning("can't check for early conflicts of %s: %s", instant, error)
            return
        if found is not None:
            raise early_conflict(storage, instant, found)


def early_conflict(storage: Storage, instant: str, reason: str) -> WriteConflictError:
    """Return the error of a write that is abandoned before its commit."""
    return WriteConflictError(
        f"commit {instant} of {storage.base_path} conflicts with another writer, by its markers:"
        f" {reason}",
        hint=REPEAT,
    )

"""``Archiver``: moves old instants of one table to its archive.

    archive written and visible → pending files deleted → completed files deleted, ascending

A crash in between leaves instants in both places, which readers count once. The next archival
recognizes them by the archive and deletes their files, before it plans.

Source: Hudi 1.2.0 ``TimelineArchiverV1``/``V2``. Unlike there, an interrupted archival is finished:
Hudi's archives the instants that are left a second time, in part without their plans. Marker
folders stay: the next write sweeps them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.table_services.archive.content import (
    ArchivedFiles,
    contents,
    delete_files,
    files_by_key,
    key_of,
)
from strandline.table_services.archive.history_archive import HistoryWriter, row_of
from strandline.table_services.archive.log_archive import ArchiveLog, records_of
from strandline.table_services.archive.plan import LastClean, is_due, to_archive
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.clean.parts import earlier_parts, part_of
from strandline.table_services.clean.plan import with_failures, without_deleted
from strandline.table_services.clean.policy import CleanSettings, last_clean, retention
from timeline.clock import TimeGenerator
from timeline.instant import Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanMetadata
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """Result of an archival.

    Attributes:
        instants: The instants that were archived, or would be, in timeline order.
        finished: Instants of an interrupted archival whose files were deleted first.
        seconds: Duration.
    """

    instants: tuple[Instant, ...]
    finished: tuple[Instant, ...]
    seconds: float


@dataclass(slots=True)
class ArchiveMemory:
    """What a driver keeps between archivals of one table.

    Attributes:
        last_clean: The last completed clean that was read; while it holds the archiver back, writes
            needn't list the timeline for an archival that would find nothing.
    """

    last_clean: LastClean | None = None


class Archiver:
    """Archives instants of one table; used by one thread, under the table's lock.

    Args:
        meta_client: The table's meta client; storage calls are counted under ``archive``.
        time_generator: Tells how long ago a time is.
        settings: The archiver's settings.
        clean_settings: The cleaner's settings: what it retains stays on the timeline.
        earliest_held: As in ``to_archive``.
        memory: Shared by the driver's archivers of this table; ``None`` for a new one.
        check_lock: Raises ``LockError`` if the table's lock was lost; called right before a file
            of the archive is replaced or deleted. In layout 1 each file is created exclusively.
    """

    def __init__(
        self,
        meta_client: TableMetaClient,
        time_generator: TimeGenerator,
        settings: ArchiveSettings,
        clean_settings: CleanSettings,
        earliest_held: str | None = None,
        memory: ArchiveMemory | None = None,
        check_lock: Callable[[], object] = lambda: None,
    ) -> None:
        self._meta = meta_client.for_cause("archive")
        self._times = time_generator
        self._settings = settings
        self._threads = settings.parallelism if meta_client.storage.is_remote else 1
        self._clean_settings = clean_settings
        self._earliest_held = earliest_held
        self._memory = ArchiveMemory() if memory is None else memory
        storage = meta_client.storage.for_cause("archive")
        folder = meta_client.config.archive_folder
        self._history = HistoryWriter(storage, folder, settings, check_lock=check_lock)
        self._log = ArchiveLog(storage, folder, settings.log_batch)

    def plan(self, timeline: Timeline) -> tuple[Instant, ...]:
        """Return the instants that an archival would move now, without changing anything.

        Args:
            timeline: The active timeline, instants of any state.

        Raises:
            CorruptMetadataError: The last clean can't be read.
        """
        config, clean = self._meta.config, self._last_clean(timeline)
        return _planned(
            *(timeline, self._settings, self._clean_settings, clean, self._times, config),
            self._earliest_held,
        )

    def run(self) -> ArchiveResult | None:
        """Finish an interrupted archival, then archive what may go.

        Returns:
            ``None`` if there was nothing to do.

        Raises:
            CorruptMetadataError: The manifest, the newest file of a version 6 archive, the last
                clean, or an instant to be archived can't be read; nothing is deleted then.
            LockError: The lock was lost; the next archival continues.
            StorageError: A file can't be written or deleted; the next archival continues.

        Cost: one list of the timeline; two reads, or in layout 1 a list and a read, of the archive;
            a read and a delete for each file of the instants archived; two files written.
        """
        start = time.perf_counter()
        found = self._meta.instant_files()
        files = files_by_key(found)
        finished = self._finish(files)
        for each in finished:
            del files[key_of(each.instant)]
        done = {key_of(each.instant) for each in finished}
        timeline = Timeline.of(each for each in found if key_of(each) not in done)
        planned = [files[key] for key in map(key_of, self.plan(timeline)) if key in files]
        if planned:
            self._write(planned)
            delete_files(self._meta, planned, self._threads)
            logger.info("archived %d instants up to %s", len(planned), planned[-1].instant)
            if self._meta.config.layout_version > 1:
                self._history.merge(self._history.manifest())
        elif not finished:
            return None
        return ArchiveResult(
            tuple(each.instant for each in planned),
            tuple(each.instant for each in finished),
            time.perf_counter() - start,
        )

    def _finish(self, files: Mapping[tuple[str, str], ArchivedFiles]) -> list[ArchivedFiles]:
        """Delete the files of instants that an interrupted archival has left in both places."""
        if not files:
            return []
        if self._meta.config.layout_version > 1:
            first = min(time for time, _ in files)
            archived = self._history.archived(self._history.manifest(), first)
        else:
            # Each archival finishes the one before it, so only the newest file can be concerned.
            numbers = self._log.numbers()
            archived = self._log.archived(numbers[-1][1]) if numbers else set()
        left = [each for key, each in files.items() if key in archived]
        if left:
            logger.info("finishing an archival of %d instants", len(left))
            delete_files(self._meta, left, self._threads)
        return left

    def _write(self, planned: Sequence[ArchivedFiles]) -> None:
        """Add instants to the archive."""
        read = contents(self._meta, planned, self._threads)
        if self._meta.config.layout_version > 1:
            rows = (row_of(*pair) for pair in zip(planned, read, strict=True))
            span = planned[0].instant.requested_time, planned[-1].instant.requested_time
            self._history.add(self._history.manifest(), rows, span)
            return
        numbers = self._log.numbers()
        self._log.add(numbers[-1][0] + 1 if numbers else 1, self._records(planned, read))

    def _records(
        self, planned: Sequence[ArchivedFiles], read: Iterator[Mapping[Instant, bytes]]
    ) -> Iterator[dict[str, Any]]:
        source = f"{self._meta.storage.base_path}/{self._meta.layout.folder}"
        for each, found in zip(planned, read, strict=True):
            yield from records_of(each, found, source)

    def _last_clean(self, timeline: Timeline) -> LastClean | None:
        last = last_clean(timeline)
        if last is None:
            return None
        known = self._memory.last_clean
        if known is not None and known.time == last.requested_time:
            return known
        metadata = self._clean(last)
        source = self._meta.path_of(last)
        part = part_of(metadata.extra_metadata, source)
        earlier = map(self._clean, earlier_parts(timeline, last, part))
        found = LastClean.of(last, with_failures(without_deleted(metadata), earlier), source)
        self._memory.last_clean = found
        return found

    def _clean(self, instant: Instant) -> CleanMetadata:
        metadata = self._meta.read(instant)
        assert isinstance(metadata, CleanMetadata)
        return metadata


def is_idle(
    timeline: Timeline,
    settings: ArchiveSettings,
    clean_settings: CleanSettings,
    clean: LastClean | None,
    times: TimeGenerator,
    config: TableConfig,
) -> bool:
    """Return whether an archival would find nothing to do; no storage call.

    Args:
        timeline: The active timeline, instants of any state.
        settings: The archiver's settings.
        clean_settings: The cleaner's settings.
        clean: The last completed clean, if it is known.
        times: Tells how long ago a time is.
        config: The table's properties.
    """
    if not is_due(timeline, settings):
        return True
    last = last_clean(timeline)
    if last is not None and (clean is None or clean.time != last.requested_time):
        return False
    return not _planned(timeline, settings, clean_settings, clean, times, config)


def _planned(
    timeline: Timeline,
    settings: ArchiveSettings,
    clean_settings: CleanSettings,
    clean: LastClean | None,
    times: TimeGenerator,
    config: TableConfig,
    earliest_held: str | None = None,
) -> tuple[Instant, ...]:
    """Return the instants to archive; what the cleaner's policy retains now stays."""
    kept = retention(timeline, clean_settings, times.hours_ago(clean_settings.hours))
    earliest = None if kept is None else kept.earliest
    return to_archive(
        timeline,
        settings,
        layout=config.layout_version,
        merges_on_read=config.table_type == "MERGE_ON_READ",
        clean=clean,
        retained_from=None if earliest is None else earliest.requested_time,
        earliest_held=earliest_held,
    )

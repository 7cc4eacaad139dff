"""``Table`` reads a table's rows, files and history into Arrow tables.

Each call reads the current state, except those of a scan; only the table's properties are cached.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa

from fsview.model.file_system_view import FileSystemView
from strandline.read.scan import PinnedTable, Scan
from strandline.read.state.changed_table import of_one_state
from strandline.read.state.held_lease import HeldLease
from strandline.read.state.pin import earliest_time, instant_time
from strandline.read.state.reader_lease import DEFAULT_TTL_S, Leases, held_from
from strandline.read.state.slice_source import NEWEST, service_location
from strandline.table_api import metadata_rows
from strandline.table_api.discovery import table_at
from strandline.table_api.history import CommitSummary, TableHistory
from strandline.table_api.inspect import Inspect
from strandline.table_api.slice_listing import SliceListing
from strandline.table_services.archive.policy import archive_settings
from strandline.table_services.archive.run import Archiver
from strandline.table_services.clean.planner import CleanPlanner
from strandline.table_services.clean.policy import CleanSettings, clean_settings
from strandline.table_services.clean.preview import CleanPreview, FileFate, preview, why
from strandline.table_services.compact.planner import CompactionPlanner
from strandline.table_services.compact.policy import compaction_settings
from strandline.table_services.doctor.examination import examine
from strandline.table_services.doctor.finding import findings_table
from timeline.clock import SystemClock, TimeGenerator
from timeline.errors import InputError
from timeline.instant import Instant
from timeline.storage.open import open_storage, path_text
from timeline.storage.table_id import absolute
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

T = TypeVar("T")


class Table:
    """A table at a base path.

    Args:
        base_path: A path or a URL.
        storage_options: Options of fsspec.
        service: The URL of a timeline service that serves the table, ``http(s)://host:port``. It is
            asked for file slices of the newest instant; if it fails, storage is listed. Rows are
            always read from storage.
        token: The service's bearer token.

    Raises:
        ConfigError: ``service`` is no such URL.
        TableNotFoundError: There is no table; a hint names a table that the path lies in.
        CorruptMetadataError: The table's properties can't be read.
        UnsupportedTableError: The table's version isn't supported.
    """

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        service: str | None = None,
        token: str | None = None,
    ) -> None:
        path = absolute(path_text(base_path))
        self._storage = open_storage(base_path, storage_options)
        self._service = service_location(path, self._storage, storage_options, service, token)
        self._meta = table_at(self._storage, path, storage_options)
        self._slices = SliceListing(self._meta, self._service)

    def __repr__(self) -> str:
        service = "" if self._service is None else f", service={', '.join(self._service.urls)}"
        kind = f"{self.config.table_type}, version {self.config.version}"
        return f"Table({self._storage.base_path!r}, {kind}{service})"

    @property
    def config(self) -> TableConfig:
        """The table's properties at the time this object was created."""
        return self._meta.config

    @property
    def properties(self) -> Mapping[str, str]:
        """The content of ``hoodie.properties`` at that time, read-only."""
        return MappingProxyType(dict(self.config.properties))

    @property
    def inspect(self) -> Inspect:
        """The table's instants, logs, pending plans, markers and metadata table."""
        return Inspect(self._meta, self._slices.every)

    def schema(self) -> pa.Schema:
        """Return the columns of a scan, meta columns first.

        Raises:
            CorruptMetadataError: A commit can't be read, or none records the schema, nor do the
                table's properties.
            UnsupportedTableError: Base files lack columns, or columns were renamed.

        Cost: a list, and usually a read; without a schema in any commit that of ``scan``.
        """
        return self._slices.schema()

    def partitions(self, *, as_of: str | datetime | None = None, filter: Any = None) -> pa.Table:
        """Return the partitions, with the columns of ``PARTITIONS_SCHEMA``.

        Args:
            as_of: As of ``files``.
            filter: As of ``files``.

        Returns:
            One row a partition, by path; the counts are those of the slices of ``files``:

            * ``partition``: string, under the base path; ``""`` for an unpartitioned table;
            * ``file_groups``: int64;
            * ``base_files``: int64;
            * ``log_files``: int64;
            * ``bytes``: int64; the size of these base and log files.

        Cost: that of ``files``.
        """
        return metadata_rows.partition_rows(self._slices.newest(as_of=as_of, filter=filter))

    def stats(self, *, as_of: str | datetime | None = None, filter: Any = None) -> pa.Table:
        """Return numbers and sizes of files, with the columns of ``STATS_SCHEMA``.

        Args:
            as_of: As of ``files``.
            filter: As of ``files``; the first row is then of the partitions that it leaves.

        Returns:
            One row for the whole table, whose ``partition`` is null, then one a partition, by path:

            * ``partition``: string;
            * ``file_groups``, ``base_files``, ``log_files``: int64;
            * ``base_bytes``, ``log_bytes``: int64;
            * ``smallest``, ``median``, ``largest``: int64; bytes of a base file, null without one.

        Cost: that of ``files``.
        """
        return metadata_rows.stats_rows(self._slices.newest(as_of=as_of, filter=filter))

    def history(
        self, since: str | datetime | None = None, until: str | datetime | None = None
    ) -> pa.Table:
        """Return all instants, archived ones first, with the columns of ``HISTORY_SCHEMA``.

        Args:
            since: Only those requested at this time or later, in the forms of ``as_of`` of
                ``scan``; ``None`` for all.
            until: Only those requested at this time or earlier; ``None`` for all. 14 digits mean
                the last millisecond of their second.

        Returns:
            One row an instant, by requested time. Counts that an action doesn't record are null,
            as are all counts of a pending instant:

            * ``requested_time``: string, 14 or 17 digits in the table's time zone;
            * ``requested_at``: timestamp[ms, UTC]; null if the text is no time;
            * ``completion_time``: string; null while pending;
            * ``completed_at``: timestamp[ms, UTC]; null while pending, or if the text is no time;
            * ``action``: string, such as ``commit``;
            * ``state``: string: ``REQUESTED``, ``INFLIGHT`` or ``COMPLETED``;
            * ``operation``: string; Hudi's ``WriteOperationType``, null except for completed
              commits;
            * ``archived``: bool; whether it has left the active timeline;
            * ``partitions``: int64; partitions written, cleaned or rolled back;
            * ``files_written``, ``bytes_written``, ``rows_inserted``, ``rows_updated``,
              ``rows_deleted``: int64; of commits;
            * ``files_deleted``: int64; of cleans and rollbacks.

        Raises:
            InputError: A time has another form; or ``since`` is after ``until``.

        Cost: a list, a read for each instant that is returned, and the archive.
        """
        zone = self.config.timezone
        begin = "" if since is None else instant_time(since, zone, "since")
        end = NEWEST if until is None else instant_time(until, zone, "until").ljust(17, "9")
        if end < begin:
            raise InputError(f"since is {since!r}, which is after until, {until!r}")
        entries = TableHistory(self._meta).entries(
            # 14 digits mean the last millisecond of their second.
            archived=True,
            keep=lambda i: begin <= i.requested_time.ljust(17, "9") <= end,
        )
        return metadata_rows.history_rows(entries, zone)

    def commits(self, *, archived: bool = False) -> Iterator[CommitSummary]:
        """Yield what each completed commit recorded about itself, by requested time.

        They are read one after the other, as the iterator advances.

        Args:
            archived: Whether to begin with the archived commits.

        Raises:
            CorruptMetadataError: A commit can't be read; the message names it.

        Cost: a list, and a read for each commit; ``archived``: and the archive.
        """
        return TableHistory(self._meta).commits(archived=archived)

    def commit_metadata(self, instant: str | None = None) -> CommitSummary:
        """Return what a completed commit recorded about itself, archived or not.

        Args:
            instant: Its requested time, such as ``WriteResult.instant``; ``None`` for the newest
                commit by requested time.

        Raises:
            InstantNotFoundError: There is no such instant, it is pending, or it isn't a commit; the
                message says which.
            CorruptMetadataError: It can't be read.

        Cost: a list and a read; the archive, if the commit isn't on the active timeline.
        """
        return TableHistory(self._meta).commit(instant)

    def files(
        self,
        partition: str | None = None,
        *,
        all_slices: bool = False,
        as_of: str | datetime | None = None,
        filter: Any = None,
    ) -> pa.Table:
        """Return the file slices of the table, with the columns of ``FILES_SCHEMA``.

        They are the newest committed slice of each file group that isn't replaced.

        Args:
            partition: Path of one partition under the base path; a missing one gives no rows.
                ``None`` for all.
            all_slices: Whether to return every slice of those groups, newest first in each group,
                slices of pending and failed writes included.
            as_of: The time of the table whose files are returned: those that ``scan(as_of=...)``
                reads. With ``all_slices`` those of slices that began by then, and still are there;
                in table version 6 with all their logs, as names don't tell when one was written.
                ``None`` for the newest instant.
            filter: In the forms of ``scan``, on partition columns or ``_hoodie_partition_path``:
                of the partitions that may have such rows. ``None`` for all.

        Returns:
            One row a slice, partition by partition:

            * ``partition``: string, under the base path; ``""`` for an unpartitioned table;
            * ``file_id``: string; of the file group;
            * ``base_instant``: string; requested time of the instant at which the slice begins;
            * ``base_at``: timestamp[ms, UTC]; that time, null if the text is no time;
            * ``path``: string; the base file under the base path, null for a slice of logs alone;
            * ``size``: int64; bytes of the base file, null without one;
            * ``log_paths``: list of string; the logs under the base path, oldest first.

        Raises:
            InputError: ``partition`` is no path under the base path, or one with a slash at an end;
                or ``as_of`` isn't possible, as in ``scan``; or the filter is on columns of which
                paths don't tell the values, or doesn't suit the table.
            ViewBehindError: ``all_slices``: files were cleaned while the table was listed, however
                often.

        Cost: a list for each partition that may have rows for the filter, and for each directory
            above them.
        """
        zone = self.config.timezone

        def listed() -> pa.Table:
            if all_slices:
                slices = self._slices.every(partition, as_of, filter)
            else:
                found = self._slices.newest(partition, as_of, filter)
                slices = (each for path in sorted(found) for each in found[path])
            return metadata_rows.file_rows(slices, zone)

        return of_one_state(listed)

    def slices(
        self,
        partition: str | None = None,
        *,
        as_of: str | datetime | None = None,
        filter: Any = None,
    ) -> pa.Table:
        """Return every file slice: ``files(all_slices=True)``, with its columns and arguments."""
        return self.files(partition, all_slices=True, as_of=as_of, filter=filter)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        as_of: str | datetime | None = None,
        limit: int | None = None,
        *,
        read_optimized: bool = False,
        threads: int | None = None,
    ) -> Scan:
        """Return a scan of the rows of one instant, to be read as a stream or as a whole.

        Records of logs are merged into the rows of base files by the rules of Hudi 1.2.0. Which
        files are read is fixed here; later commits don't change it.

        Args:
            columns: Columns to read, in this order; ``None`` for all, meta columns first.
            filter: Which rows: pyarrow's list of triples, such as ``[("price", ">", 9)]``; SQL
                text, such as ``"price > 9 and day = 'mon'"``, which needs sqlglot; or a
                ``pyarrow.compute.Expression``. It may use columns that aren't read. Rows for which
                it is null are dropped.
            as_of: The time to read the table at: an instant's requested time, an ISO date or time
                (in the table's time zone unless it has one), or a datetime with a time zone.
                ``None`` for the newest instant.
            limit: Most rows to return; ``None`` for all.
            read_optimized: Whether to read base files alone, as Hudi's read-optimized queries do.
            threads: Most slices to read in parallel; ``None`` for as many as this process has
                cores. The order of rows doesn't depend on it.

        Raises:
            InputError: There is no such column, the filter doesn't suit the table, or ``as_of`` is
                before the earliest instant that can still be read, which the message names.
            UnsupportedTableError: Columns were renamed, base files lack columns or aren't Parquet,
                or this release can't merge the table's logs; the message says which.
            CorruptMetadataError: An instant can't be read, or none records the schema, nor do the
                table's properties.
            ConfigError: The filter is SQL text, and sqlglot isn't installed.

        Cost: a list of each partition that may have rows for the filter and, unless the filter
            fixes the values of all partition columns, of each directory above them; no data file
            is read.
        """
        return Scan.of(
            *(self._meta, columns, filter, as_of, limit),
            read_optimized=read_optimized,
            service=self._service,
            threads=threads,
        )

    @contextmanager
    def pin(
        self, as_of: str | datetime | None = None, ttl: float = DEFAULT_TTL_S
    ) -> Iterator[PinnedTable]:
        """Hold the files of the newest instant, or of an earlier one, as long as the block runs.

        The lease is a file in the table's metadata folder, which is renewed meanwhile. This
        package's cleaner keeps the files that a reader at this instant needs; archival stops
        before it. Hudi's cleaner doesn't know leases.

        Args:
            as_of: As of ``scan``.
            ttl: Seconds after which the lease expires if this process dies: 10 to 604,800.

        Yields:
            The table at this instant, to be scanned any number of times.

        Raises:
            InputError: ``as_of`` is invalid, or before the earliest instant that can still be read,
                which the message names; or ``ttl`` is out of range.
            LeaseError: A clean that came first may delete the files; pinned again, the table is
                read at a newer instant.
            CorruptMetadataError: A clean can't be read.
            StorageError: The lease can't be written.

        Cost: two lists of the timeline, a create, a stat and a write for each renewal, a delete;
            with ``as_of``, a read of each clean on the timeline.
        """
        held = HeldLease.acquire(self._meta, as_of, ttl, SystemClock())
        try:
            yield PinnedTable(self._meta, held)
        finally:
            held.release()

    def pins(self) -> pa.Table:
        """Return the leases of readers, with the columns of ``PINS_SCHEMA``; nothing is changed.

        Returns:
            One row a lease, by id, expired ones that no clean has deleted yet included:

            * ``id``: string, by which ``revoke`` finds it;
            * ``instant``: string; requested time of the newest write that its reader reads, null if
              there is none;
            * ``earliest``: string; requested time of the write from which on it holds all files,
              null if it holds all;
            * ``holder``: string; the process that reads;
            * ``renewed_at``: timestamp[ms, UTC]; by the storage's clock;
            * ``expires_at``: timestamp[ms, UTC]; null if it doesn't expire;
            * ``problem``: string; why its file can't be read, null if it can.

        Cost: a list, and a read of each lease.
        """
        return metadata_rows.pin_rows(self._leases().all())

    def revoke(self, pin: str) -> bool:
        """End a lease, whose reader then may miss files; return whether it existed.

        Args:
            pin: Its id.

        Raises:
            InputError: It can't be the id of a lease.
            StorageError: It can't be deleted.
        """
        return self._leases().delete(pin)

    def _leases(self) -> Leases:
        return Leases(self._meta.storage.for_cause("lease"), SystemClock())

    def cleanable(self, policy: str | None = None, retain: int | None = None) -> CleanPreview:
        """Return what a clean would delete now; nothing is changed.

        Args:
            policy: ``KEEP_LATEST_COMMITS``, ``KEEP_LATEST_BY_HOURS`` or
                ``KEEP_LATEST_FILE_VERSIONS``; ``None`` for the first, Hudi's default.
            retain: Number of commits, hours or file versions; ``None``: Hudi's 10, 24 or 3.

        Returns:
            The files, each with its size and the rule by which it goes.

        Raises:
            ConfigError: There is no such policy, or ``retain`` is less than 1.
            CorruptMetadataError: The last clean, a savepoint or a commit can't be read.

        Cost: that of ``files``, and the reads of planning a clean.
        """
        return self._of_clean(clean_settings(policy, retain), preview)

    def archivable(
        self, keep_min: int | None = None, keep_max: int | None = None
    ) -> tuple[Instant, ...]:
        """Return the instants that an archival would move now; nothing is changed.

        Args:
            keep_min: Number of completed writes that stay; ``None`` for Hudi's default, 20.
            keep_max: Number of completed writes from which on the older ones go; ``None`` for 30.

        Raises:
            ConfigError: A number is too small, or the minimum isn't less than the maximum.
            CorruptMetadataError: The last clean can't be read.

        Cost: lists of the timeline and the leases, and a read of the last clean.
        """
        settings, since = archive_settings(keep_min, keep_max), held_from(self._leases().live())
        archiver = Archiver(self._meta, self._times(), settings, CleanSettings(), since)
        return of_one_state(lambda: archiver.plan(self._meta.active_timeline()))

    def compactable(self, strategy: str | None = None) -> pa.Table:
        """Return the file groups that a compaction would take now; nothing is changed.

        Args:
            strategy: Hudi's names as of ``hoodie.compaction.strategy``; ``None``: its default.

        Returns:
            One row per file group, those of planned compactions first, with the columns
            ``partition``, ``file_id``, ``base_file`` (string; its name, null for logs alone),
            ``logs`` (int64; their number), ``bytes`` (int64; their size) and ``compaction``
            (string; requested time of the planned one, else null). Empty for copy-on-write.

        Raises:
            ConfigError: There is no such strategy, or it doesn't fit the table's partitions.

        Cost: that of ``files``.
        """
        settings = compaction_settings(strategy)
        return self._of_one_view(lambda v: CompactionPlanner(self._meta, v, settings).preview())

    def why(self, file: str, policy: str | None = None, retain: int | None = None) -> FileFate:
        """Return why a data file is still there, or gone.

        It names the rule, the instant, the savepoint, the lease or the pending service that keeps
        the file, or the clean that has deleted it, or will. Timeline and archive tell: no trace is
        kept for it.

        Args:
            file: Path of a base or log file under the base path, or with it.
            policy: As of ``cleanable``.
            retain: As of ``cleanable``.

        Raises:
            InputError: It is no path of a data file of this table; or the table has no such file,
                and no clean has deleted one.
            ConfigError: As of ``cleanable``.
            CorruptMetadataError: An instant can't be read.

        Cost: a list of the partition; if the file is gone, a read of each clean, and the archive.
        """
        return self._of_clean(clean_settings(policy, retain), partial(why, file=file))

    def doctor(self, deep: bool = False) -> pa.Table:
        """Return what is wrong with the table, with the columns of ``FINDINGS_SCHEMA``.

        Nothing is changed; ``WriteClient.repair`` puts right what is ``fixable``. A table whose
        properties can't be read has no ``Table``; ``strandline doctor`` examines that, too.

        Args:
            deep: Whether to open the newest base files: their Parquet footers, numbers of rows and
                ranges of keys; and to read what archived writes wrote, to find the loss of their
                base files, too. Otherwise only the last bytes of logs are read of data files.

        Returns:
            One row a finding, errors first; docs/doctor.md describes each code:

            * ``code``: string, such as ``orphan-file``;
            * ``severity``: string: ``info``, ``warning`` or ``error``;
            * ``what``: string; what was found;
            * ``partition``: string, null if the finding is about none;
            * ``names``: list of string; paths of the files, under the base path;
            * ``bytes``: int64; their size, as far as it matters;
            * ``remedy``: string; what to do;
            * ``fixable``: bool; whether ``repair`` would change these files now.

        Raises:
            StorageError: Something can't be listed or read.

        Cost: a list for each directory; a read for each instant of the timeline; the archived
            timeline without its contents; two small reads for each log of the newest slices;
            ``deep``: a read or two for each of their base files.
        """
        return findings_table(examine(self._meta.storage, SystemClock(), deep=deep))

    def _times(self) -> TimeGenerator:
        return TimeGenerator(SystemClock(), self.config.timezone)

    def _of_clean(self, settings: CleanSettings, ask: Callable[[CleanPlanner, Timeline], T]) -> T:
        def answer(view: FileSystemView) -> T:
            planner = CleanPlanner(self._meta, view, self._times(), settings)
            return ask(planner, self._meta.active_timeline())

        return self._of_one_view(answer)

    def _of_one_view(self, ask: Callable[[FileSystemView], T]) -> T:
        """Return what is asked of a view of the newest instant; again if the table changed."""

        def answer() -> T:
            with closing(self._slices.view()) as view:
                return ask(view)

        return of_one_state(answer)

    def earliest_instant(self) -> str | None:
        """Return the earliest instant as of which ``scan`` reads rows; ``None`` without a write.

        The next clean may delete files that this instant needs.

        Returns:
            The requested time of a write.

        Raises:
            CorruptMetadataError: A clean can't be read.

        Cost: a list, and a read of each clean on the timeline.
        """
        return earliest_time(self._meta, self._meta.active_timeline()) or None

    def incremental(
        self,
        since: str | datetime,
        until: str | datetime | None = None,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        limit: int | None = None,
        *,
        threads: int | None = None,
    ) -> Scan:
        """Return a scan of the rows that commits after ``since`` wrote, in their newest state.

        They are the rows at ``until`` whose last change is by a commit in (since, until]; deleted
        rows are absent. From table version 8 on commits are ordered by their completion times, as
        ``history`` shows them, in version 6 by their requested times. Compaction and clustering
        don't count, as they keep the commit times of rows.

        Args:
            since: A time in the forms of ``scan``'s ``as_of``; ``"earliest"`` or ``"000"`` for the
                rows of all commits. To continue after a scan, its ``next_since``.
            until: A time in the same forms; ``None`` for the newest commit.
            columns: As of ``scan``.
            filter: As of ``scan``.
            limit: As of ``scan``.
            threads: As of ``scan``.

        Raises:
            InputError: ``since`` is after ``until``, or no time; commits after ``since`` were
                archived, or files at ``until`` may have been cleaned; the message names the
                earliest time. Columns and filter as in ``scan``.
            UnsupportedTableError: The table has no meta columns; else as in ``scan``.
            CorruptMetadataError: As in ``scan``.

        Cost: that of ``scan``, and a read of each commit of the range.
        """
        return Scan.of_range(self._meta, since, until, columns, filter, limit, threads=threads)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read the newest committed rows, as ``scan(columns).to_arrow()`` does."""
        return self.scan(columns).to_arrow()

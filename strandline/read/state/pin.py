"""The state of a table that a scan reads: its instants, schema and file slices at one time.

In all table versions an ``as_of`` is compared, as text, with the requested times of instants and
log blocks. A state can't be read any more if a clean may have deleted its files. A clean that
retains a number of commits records the earliest instant that it retained; one that retains a number
of file versions certainly retains the newest commit before it. No clean deletes files that a
savepoint protects.

Source: Hudi 1.2.0 ``TimelineUtils.validateTimestampAsOf``, ``HoodieFileIndex``. Unlike these, all
cleans on the timeline count, pending ones included, not only the last; and commits with savepoints
can be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Final

import pyarrow as pa

from executor_proxy.view_location import ViewLocation
from fsview.model.file_group import FileSlice
from strandline.read.filter.partition_filter import WantedPartitions, matching_partitions
from strandline.read.filter.path_values import PathRules
from strandline.read.filter.row_filter import RowFilter
from strandline.read.instants import first_write_time
from strandline.read.iso_time import IsoTime
from strandline.read.logs.log_blocks import needs_merge
from strandline.read.logs.mergeable import refuse_other_formats
from strandline.read.state.changed_table import of_one_state
from strandline.read.state.slice_source import NEWEST, source_of
from strandline.records.commit_history import CommitHistory, CommitSchema
from strandline.records.file.base_file import read_stored_schema
from strandline.records.meta_fields import with_meta_fields
from strandline.records.schema.avro_schema import readable_columns
from strandline.records.schema.cast import OnceMicros, once_in_micros
from strandline.records.schema.column_ids import (
    HISTORY_FOLDER,
    HISTORY_SUFFIX,
    LATEST_SCHEMA,
    column_history,
    column_ids,
)
from timeline.clock import UTC, format_instant_time, parse_instant_time
from timeline.errors import CorruptMetadataError, InputError, UnsupportedTableError
from timeline.instant import CLEAN, SAVEPOINT, Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata
from timeline.table.config import TableConfig
from timeline.table.property_name import CREATE_SCHEMA, DROPS_PARTITION_COLUMNS, listed
from timeline.timeline import Timeline

RefuseCleaned = Callable[[TableMetaClient, Timeline, str, str], None]
"""As ``refuse_cleaned``."""
_INSTANT: Final = re.compile(r"[0-9]{14}([0-9]{3})?")
_TIMES: Final = (
    "allowed: an instant of 17 or 14 digits, yyyyMMddHHmmssSSS; an ISO date or time, such as"
    " 2024-01-02T03:04:05+01:00; or a datetime with a time zone"
)


@dataclass(frozen=True, slots=True)
class Pin:
    """A table at one time.

    Attributes:
        meta: The table.
        timeline: Its active instants requested until then.
        schema: Its columns then, meta columns first.
        slices: The file slices that have its rows, by partition; none is empty.
        avro_schema: The schema as recorded in commits; ``None`` if none records it.
    """

    meta: TableMetaClient
    timeline: Timeline
    schema: pa.Schema
    slices: tuple[FileSlice, ...]
    avro_schema: str | None = None

    @property
    def instant(self) -> str | None:
        """Requested time of the last completed write; ``None`` if there is none."""
        last = self.timeline.write_timeline().completed().last
        return None if last is None else last.requested_time

    @classmethod
    def at(
        cls,
        meta: TableMetaClient,
        as_of: str | datetime | None,
        filter: Any = None,
        service: ViewLocation | None = None,
        *,
        name: str = "as_of",
        refuse: RefuseCleaned | None = None,
    ) -> Pin:
        """Return a table's state, now or at an earlier time.

        Args:
            meta: The table.
            as_of: Requested time of an instant, or any other time of 14 or 17 digits; ISO text; or
                a datetime with a time zone. ``None`` for now.
            filter: The condition on rows, as in ``RowFilter.of``: the state may lack slices of
                partitions without matching rows. ``None`` for all.
            service: The service that returns slices, unless ``as_of`` is given; ``None``: they are
                listed. They are also listed if the first commit has a savepoint (``source_of``).
            name: The name of ``as_of`` in errors.
            refuse: Refuses a time whose files may have been cleaned; ``None`` for the error below.

        Raises:
            InputError: ``as_of`` is invalid, or earlier than the earliest time that can still be
                read, which the message names. Or the filter doesn't fit the table.
            UnsupportedTableError: Base files lack columns or aren't Parquet, or columns were
                renamed.
            CorruptMetadataError: No commit or property records the schema, or an instant can't be
                read.

        Cost: lists of the timeline, of each partition left, and, unless the filter fixes the
            values of all partition columns, of each directory above them; with ``as_of``: the
            timeline again, and a read of each clean.
        """
        time = NEWEST if as_of is None else instant_time(as_of, meta.config.timezone, name)
        meta.config.refuse_incomplete_files(meta.storage.base_path)
        refuse = refuse or refuse_cleaned
        with closing(source_of(meta, None if as_of is not None else service)) as source:
            if as_of is not None:
                refuse(meta, source.timeline, time, name)
            timeline = source.timeline.filter(lambda i: i.requested_time <= time)
            avro_schema = _committed_schema(meta, timeline)
            schema = _columns_of(avro_schema, meta.config)
            wanted = None
            if filter is not None and schema is not None:
                wanted = WantedPartitions.of(RowFilter.of(filter, schema), schema, meta.config)
            slices = tuple(s for s in source.slices(wanted, time) if not s.is_empty)
            if as_of is not None:
                # A clean that began meanwhile may have deleted files before they were listed.
                refuse(meta, meta.active_timeline(), time, name)
        return cls._of(meta, timeline, avro_schema, slices)

    @classmethod
    def of_slices(
        cls, meta: TableMetaClient, timeline: Timeline, slices: Sequence[FileSlice]
    ) -> Pin:
        """Return the state at a timeline whose slices are known; errors as in ``at``."""
        return cls._of(meta, timeline, _committed_schema(meta, timeline), tuple(slices))

    @classmethod
    def _of(
        cls,
        meta: TableMetaClient,
        timeline: Timeline,
        avro_schema: str | None,
        slices: tuple[FileSlice, ...],
    ) -> Pin:
        refuse_other_formats(slices)
        columns = _columns_of(avro_schema, meta.config) or _stored_schema(meta, slices)
        _refuse_untold_columns(meta, columns, {found.partition for found in slices})
        return cls(meta, timeline, columns, slices, avro_schema)

    @property
    def once_micros(self) -> OnceMicros:
        """Returns the columns that once were in microseconds; reads commits at its first call."""
        return cache(partial(_once_in_micros, self.meta, self.timeline, self.schema))

    @property
    def partitions(self) -> tuple[str, ...]:
        """Paths of the partitions with slices."""
        return tuple(dict.fromkeys(found.partition for found in self.slices))

    def matching(self, row_filter: RowFilter) -> Pin:
        """Return this state with only the partitions that may have rows matching a filter."""
        paths = matching_partitions(self.partitions, row_filter, self.schema, self.meta.config)
        return replace(self, slices=tuple(s for s in self.slices if s.partition in paths))

    def base_files_only(self) -> Pin:
        """Return this state without logs and without slices that have no base file."""
        based = (found for found in self.slices if found.base_file is not None)
        return replace(self, slices=tuple(replace(found, log_files=()) for found in based))


def instant_time(as_of: Any, zone: str, name: str = "as_of") -> str:
    """Return a time as the text of an instant of a table whose times are in ``zone``.

    Args:
        as_of: The caller's argument: digits, ISO text or a datetime. Digits, and ISO text without a
            time zone, are in ``zone``; a date is its first moment.
        zone: ``"UTC"`` or ``"LOCAL"``.
        name: The name of that argument, for errors.

    Returns:
        14 or 17 digits; less than a millisecond is cut off.

    Raises:
        InputError: It has another form, is a datetime without a time zone, or has an invalid value
            such as month 13.
    """
    if isinstance(as_of, datetime):
        if as_of.utcoffset() is None:
            raise InputError(
                f"{name} is {as_of!r}, without a time zone; allowed: one with it, such as"
                " datetime(2026, 1, 31, tzinfo=timezone.utc)"
            )
        return _instant_text(IsoTime.of(as_of), zone)
    try:
        moment = IsoTime.parse(as_of) if isinstance(as_of, str) else None
    except ValueError as exc:
        raise InputError(f"{name} is {as_of!r}, which is no time; {_TIMES}") from exc
    if moment is not None:
        return _instant_text(moment, zone)
    if not isinstance(as_of, str) or not _INSTANT.fullmatch(as_of):
        raise InputError(f"{name} is {as_of!r}; {_TIMES}")
    try:
        parse_instant_time(as_of, UTC)
    except ValueError as exc:
        raise InputError(f"{name} is {as_of!r}, which is no time; {_TIMES}") from exc
    return as_of


def _instant_text(moment: IsoTime, zone: str) -> str:
    """Return a time as the text of an instant; one without a zone is in the table's."""
    return format_instant_time(moment.nanos // 1_000_000, zone if moment.has_zone else UTC)


def earliest_time(meta: TableMetaClient, timeline: Timeline) -> str:
    """Return the requested time of the earliest write at which a table can be read.

    Raises:
        CorruptMetadataError: A clean can't be read.
    """
    retained = (retained_by(meta, timeline, i) for i in timeline if i.action == CLEAN)
    return max((first_write_time(timeline), *retained))


def savepoint_times(timeline: Timeline) -> list[str]:
    """Return the requested times of the completed savepoints."""
    return [i.requested_time for i in timeline if i.action == SAVEPOINT and i.is_completed]


def retained_by(meta: TableMetaClient, timeline: Timeline, clean: Instant) -> str:
    """Return the earliest write whose files a clean retained, or will; ``""`` for all.

    Raises:
        CorruptMetadataError: The clean can't be read.
    """
    metadata = meta.read(clean) if clean.is_completed else meta.read_plan(clean)
    if isinstance(metadata, CleanMetadata):
        earliest, deletes = metadata.earliest_commit_to_retain, metadata.total_files_deleted > 0
    else:
        assert isinstance(metadata, CleanerPlan)
        first = metadata.earliest_instant_to_retain
        earliest, deletes = "" if first is None else first.timestamp, True
    if earliest or not deletes:
        return earliest
    writes = timeline.write_timeline().completed()
    before = (i.requested_time for i in writes if i.requested_time < clean.requested_time)
    return max(before, default="")


def newest_schema(meta: TableMetaClient) -> pa.Schema | None:
    """Return the columns of the newest instant, meta columns first; ``None`` if no commit has them.

    Raises:
        CorruptMetadataError: A commit can't be read.
        UnsupportedTableError: Base files lack columns, or columns were renamed.
    """
    meta.config.refuse_incomplete_files(meta.storage.base_path)
    avro_schema = of_one_state(lambda: _committed_schema(meta, meta.active_timeline()))
    return _columns_of(avro_schema, meta.config)


def refuse_cleaned(meta: TableMetaClient, timeline: Timeline, time: str, name: str) -> None:
    """Refuse a time if a clean may have deleted files that a reader at that time needs.

    Args:
        meta: The table.
        timeline: Its active timeline.
        time: A requested time.
        name: The name of the time in errors.

    Raises:
        InputError: It did, and the time isn't that of a savepoint.
        CorruptMetadataError: A clean can't be read.

    Cost: a read of each clean on the timeline.
    """
    saved = savepoint_times(timeline)
    if time in saved:  # No clean deletes the files of its commit, however many follow it.
        return
    earliest = earliest_time(meta, timeline)
    if time < earliest:
        beside = f"; its savepoints can, too: {listed(saved)}" if saved else ""
        raise InputError(
            f"{name} {time} is before {earliest}, the earliest instant as of which"
            f" {meta.storage.base_path} can be read{beside}",
            hint="files of earlier ones may have been deleted; writers keep more with a greater"
            " hoodie.clean.commits.retained",
        )


def _committed_schema(meta: TableMetaClient, timeline: Timeline) -> str | None:
    """Return the Avro schema of the newest commit that records a readable one.

    If there is no such commit, the schema with which the table was created; ``None`` without both.

    Source: Hudi 1.2.0 ``TableSchemaResolver.getTableSchemaInternal``, also for the order.
    """
    newest = CommitHistory().newest_schema(meta, timeline)
    if newest is not None:
        if newest.column_ids:
            _refuse_renamed(meta, timeline, newest)
        return newest.avro
    created = meta.config.properties.get(CREATE_SCHEMA)
    if not created:
        return None
    try:
        readable_columns(created)
    except CorruptMetadataError as exc:
        raise CorruptMetadataError(
            f"{meta.storage.base_path} has a bad {CREATE_SCHEMA}: {exc.message}"
        ) from exc
    return created


def _columns_of(avro_schema: str | None, config: TableConfig) -> pa.Schema | None:
    """Return the columns of a table from its schema, meta columns first, dropped ones last."""
    if avro_schema is None:
        return None
    return _with_dropped_columns(with_meta_fields(readable_columns(avro_schema)), config)


def _refuse_renamed(meta: TableMetaClient, timeline: Timeline, newest: CommitSchema) -> None:
    """Refuse columns with ids if one of them has another name in older files.

    Raises:
        CorruptMetadataError: Their history can't be read.
        UnsupportedTableError: A column was renamed, or dropped and added again; or there is no
            history.

    Cost: a list and a read.
    """
    ids = column_ids(newest.column_ids, newest.path)
    told = f"{newest.path} gives columns ids ({LATEST_SCHEMA})"
    history = _history_of(meta, timeline)
    if history is None:
        raise UnsupportedTableError(
            f"{told}, and {meta.storage.base_path}/{HISTORY_FOLDER} doesn't have their history: a"
            " column may have another name in older files"
        )
    storage = meta.storage.for_cause("table")
    for older in column_history(storage.read(history), f"{meta.storage.base_path}/{history}"):
        found = ids.differing(older) if older.version <= ids.version else None
        if found is not None:
            raise UnsupportedTableError(
                f"{told}, and column {found}: older files would show nulls, or other values",
                hint="Hudi reads it with hoodie.schema.on.read.enable",
            )


def _history_of(meta: TableMetaClient, timeline: Timeline) -> str | None:
    """Return the path of the newest history of columns that a completed commit has written.

    Histories of commits that were rolled back don't count. Commits before the timeline are
    archived.
    """
    completed = {instant.requested_time for instant in timeline.completed()}
    first = first_write_time(timeline)
    names = (info.name for info in meta.storage.for_cause("table").list(HISTORY_FOLDER))
    times = {
        name.partition(".")[0].partition("_")[0]: name
        for name in names
        if name.endswith(HISTORY_SUFFIX)
    }
    newest = max((time for time in times if time in completed or time < first), default=None)
    return None if newest is None else f"{HISTORY_FOLDER}/{times[newest]}"


def _once_in_micros(meta: TableMetaClient, timeline: Timeline, schema: pa.Schema) -> frozenset[str]:
    earlier = CommitHistory().avro_schemas(meta, timeline)
    return once_in_micros(schema, map(readable_columns, earlier))


def _stored_schema(meta: TableMetaClient, slices: Sequence[FileSlice]) -> pa.Schema:
    """Return the schema of the newest base file, for a table that records none elsewhere."""
    bases = [found.base_file for found in slices if found.base_file is not None]
    if not bases and any(map(needs_merge, slices)):
        raise CorruptMetadataError(
            f"no commit of {meta.storage.base_path} has the table's schema, nor is there a"
            " base file that has it"
        )
    if not bases:
        return with_meta_fields(pa.schema([]))
    newest = max(bases, key=lambda base: base.instant)
    schema = read_stored_schema(meta.storage, newest.path)
    return _with_dropped_columns(
        pa.schema([field.remove_metadata() for field in schema]), meta.config
    )


def _refuse_untold_columns(
    meta: TableMetaClient, schema: pa.Schema, partitions: Collection[str]
) -> None:
    """Refuse partitions whose paths don't determine columns that the files lack."""
    if not meta.config.drops_partition_columns:
        return
    rules = PathRules.of(schema, meta.config)
    for path in sorted(partitions):
        told = rules.values(path)
        missing = [
            name for name in rules.fields if name not in told.known and name not in told.unsettled
        ]
        if missing:
            raise UnsupportedTableError(
                f"{meta.storage.base_path} has {DROPS_PARTITION_COLUMNS}=true, so that its files"
                f" lack the columns {missing}, and the path of partition {path!r} doesn't"
                " determine them",
                hint="paths determine columns of a SIMPLE or COMPLEX key generator, with hive style"
                " or without slashes in values; let Hudi rewrite the table without that property",
            )


def _with_dropped_columns(schema: pa.Schema, config: TableConfig) -> pa.Schema:
    """Return the columns of a table from those of its files or commits.

    Source: Hudi 1.2.0 ``TableSchemaResolver.appendPartitionColumns``.
    """
    if not config.drops_partition_columns:
        return schema
    dropped = [name for name in config.partition_fields if name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, pa.string()) for name in dropped)])

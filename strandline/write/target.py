"""``Target``: the table that a write changes, existing or described by the options.

``open_target`` opens it and makes the checks that need no rows: its type and version, features that
this writer would break, options that contradict its properties, unreadable metadata. Methods check
its schema, its index, and changes by other writers since it was opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import pyarrow as pa

from fsview.model.file_name import parse_base_name
from strandline.commit.conflict import REPEAT
from strandline.commit.settings import conflict_strategy
from strandline.read.instants import Archive, may_lack_writes
from strandline.read.state.changed_table import of_one_state
from strandline.records.commit_history import CommitHistory
from strandline.records.file.base_file import MIN_KEY, read_footer
from strandline.records.key.generator import COMPLEX, KeyGenerator
from strandline.records.merge_rule import MergeProperties
from strandline.records.schema.avro_schema import avro_to_arrow, readable_columns
from strandline.records.schema.cast import has_millis, once_in_micros
from strandline.records.schema.schema_evolution import (
    EvolutionRules,
    check_keys_kept,
    columns_after,
    columns_of_keys,
)
from strandline.settings.setting import Refusals, Settings
from strandline.write.index.bucket import stored_buckets
from strandline.write.last_timeline import LastTimeline
from strandline.write.operation import Operation, Replaces
from strandline.write.options import settings
from strandline.write.options.client_options import merge_mode
from strandline.write.options.index_settings import (
    BLOOM_UPDATES_PARTITION,
    GLOBAL_BLOOM,
    GLOBAL_SIMPLE,
    SIMPLE_UPDATES_PARTITION,
    IndexOptions,
    stored_index,
)
from strandline.write.options.table_options import (
    generator_of,
    new_config,
    refuse_disagreement,
    refuse_for_logs,
    refuse_metadata_table,
    refuse_unsupported,
    row_rules,
)
from strandline.write.tasks.placement import Sizing, StoredFile, average_record_bytes
from timeline.errors import (
    ConcurrentWriteError,
    ConfigError,
    CorruptMetadataError,
    PathNotFoundError,
    TableNotFoundError,
    UnsupportedTableError,
    WriteConflictError,
)
from timeline.instant import COMMIT, DELTA_COMMIT, RESTORE
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.table.config import CONFIG_PATH, TableConfig
from timeline.table.config_file import read_table_config, write_table_config
from timeline.table.partition_metadata import FILE_NAME
from timeline.table.property_name import (
    EVENT_TIME,
    MERGE_ON_READ,
    PARTIAL_UPDATE_MODE,
    SLASHED_DATES,
)
from timeline.timeline import Timeline

_DEFAULT_RULES: Final = EvolutionRules()
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Target:
    """A table to be written.

    Attributes:
        meta: The table's meta client.
        exists: Whether the table exists; if not, its properties come from the options.
        timeline: The active timeline; empty for a new table.
        is_left: Whether the timeline wasn't read, but kept from the client's last write.
        avro_schema: The table's schema without the meta columns, as it is after the write once
            ``columns_of`` was called; ``None`` if no commit has one yet.
        generator: Makes the table's record keys and partition paths.
        merge_mode: The table's merge mode; that of the options if the table has none.
        index: How stored keys are found.
        first_written: The columns that this write adds to the table, or whose type it changes.
    """

    meta: TableMetaClient
    exists: bool
    timeline: Timeline
    avro_schema: str | None
    generator: KeyGenerator
    merge_mode: str
    index: IndexOptions
    is_left: bool = False
    first_written: tuple[str, ...] = ()

    @property
    def config(self) -> TableConfig:
        """The table's properties."""
        return self.meta.config

    @property
    def merges_on_read(self) -> bool:
        """Whether updates go to logs."""
        return self.config.table_type == MERGE_ON_READ

    def action_of(self, operation: Operation) -> str:
        """Return the action of the instant of a write."""
        is_delta = self.merges_on_read and operation.action == COMMIT
        return DELTA_COMMIT if is_delta else operation.action

    @property
    def event_time(self) -> bool:
        """Whether the ordering columns decide which of two rows wins."""
        return self.merge_mode == EVENT_TIME and bool(self.config.ordering_fields)

    @property
    def merge_properties(self) -> MergeProperties:
        """The table properties that mark rows as deletes, and values as missing."""
        return MergeProperties.of(self.config, self.avro_schema)

    @property
    def schema(self) -> pa.Schema:
        """The table's own columns; requires ``avro_schema``."""
        assert self.avro_schema is not None
        return avro_to_arrow(self.avro_schema)

    def columns_of(
        self,
        incoming: pa.Schema,
        history: CommitHistory,
        rules: EvolutionRules = _DEFAULT_RULES,
    ) -> tuple[Target, pa.Schema]:
        """Return the target with its schema after the write, and the schema to cast rows to.

        Args:
            incoming: Schema of the caller's rows; meta columns in it are ignored.
            history: The client's facts of the table's commits.
            rules: How the write may change the table's schema.

        Raises:
            InputError: A column can't be stored, or the rules refuse it.

        Cost: none, or if a column is new a read for each commit that isn't in ``history``.
        """
        earlier = history.avro_schemas(self.meta, self.timeline)
        name = self.config.name
        avro_schema, columns = columns_after(incoming, self.avro_schema, name, rules, earlier)
        known = replace(self, avro_schema=avro_schema)
        if self.avro_schema != avro_schema:
            before = pa.schema([]) if self.avro_schema is None else self.schema
            types = dict(zip(before.names, before.types, strict=True))
            new = (each.name for each in known.schema if types.get(each.name) != each.type)
            known = replace(known, first_written=tuple(new))
        if self.avro_schema not in (None, avro_schema):
            keys = self.config.record_key_fields + self.config.partition_fields
            check_keys_kept(self.schema, known.schema, keys, self.config.ordering_fields)
        return known, columns

    def check_archived(self, operation: Operation) -> None:
        """Refuse look-ups and replacements if archived writes hide file groups.

        A savepoint keeps its commit on the timeline while later commits are archived. Neither Hudi
        nor a service shows the file groups that the archived ones began, so their rows would be
        written twice. This package's reader shows them.

        Raises:
            UnsupportedTableError: There are such writes; the message names the first.
            CorruptMetadataError: The archive can't be read.

        Cost: none unless the timeline's first write has a savepoint; else the archive.
        """
        looks = operation.needs_match or operation.replaces is not Replaces.NOTHING
        first = self.timeline.write_timeline().first
        if not looks or first is None or not may_lack_writes(self.timeline):
            return
        later = sorted(t for t in Archive(self.meta).write_times if t > first.requested_time)
        if later:
            raise UnsupportedTableError(
                f"{operation.name} into {self.config.name!r}: {len(later)} writes from {later[0]}"
                f" on were archived while a savepoint keeps {first.requested_time}, so the rows of"
                " file groups that they began can't be found",
                hint="rows can be inserted without a look-up; or delete the savepoint, and have"
                " Hudi archive its commit",
            )

    def check_index(self, history: CommitHistory) -> None:
        """Check that stored files fit the bucket index, if the options ask for one.

        A write to new partitions only sees no stored file, but later writes would search keys in
        the wrong buckets.

        Raises:
            UnsupportedTableError: The newest commit's file doesn't belong to a bucket index, or its
                bucket is too large.

        Cost: none if the properties name the bucket index; else it uses what ``open_target`` read.
        """
        if not self.index.is_bucket or stored_index(self.config):
            return
        path = history.newest_file(self.meta, self.timeline)
        if path is not None:
            partition, _, name = path.rpartition("/")
            parsed = parse_base_name(name)
            file = StoredFile(partition, parsed[0] if parsed else name, name, 0)
            stored_buckets(partition, [file], self.index.buckets)

    def once_in_micros(self, history: CommitHistory) -> frozenset[str]:
        """Return the columns in milliseconds that were in microseconds (``cast.once_in_micros``).

        Cost: none unless the table has milliseconds, else a read for each commit that isn't in
            ``history``.
        """
        if self.avro_schema is None or not has_millis(self.schema):
            return frozenset()
        earlier = history.avro_schemas(self.meta, self.timeline)
        return once_in_micros(self.schema, map(readable_columns, earlier))

    def check_forms_of_dates(self, partitions: Iterable[str]) -> None:
        """Check that no partition of a write is stored with the other form of its date.

        ``slash.separated.date.partitioning`` writes ``2024-03-01`` as ``2024/03/01``. With
        hive-style paths the properties don't record it, and writers may have used both forms.

        Args:
            partitions: Paths of the write.

        Raises:
            UnsupportedTableError: A partition is or may be stored so; the message names both.

        Cost: none unless the table may have such dates; a stat for each partition, with hive style
            a list for each year.
        """
        if not self.config.may_slash_dates:
            return
        storage = self.meta.storage.for_cause("table")
        if self.generator.slash_dates:
            for partition in partitions:
                prefix, value = _named_value(partition)
                other = prefix + value.replace("/", "-")
                if other != partition and storage.stat(f"{other}/{FILE_NAME}") is not None:
                    raise self._other_form(partition, other)
            return
        years: dict[str, str] = {}
        for partition in partitions:
            prefix, value = _named_value(partition)
            if _DATE.match(value):
                years.setdefault(prefix + value.partition("-")[0], partition)
        for year, partition in years.items():
            if any(found.is_dir for found in storage.list(year)):
                raise self._other_form(partition, f"{year}/...")

    def _other_form(self, partition: str, stored: str) -> UnsupportedTableError:
        return UnsupportedTableError(
            f"{self.meta.storage.base_path} has partition {stored!r}, with which {partition!r} may"
            f" share a date: writers of the table differ in {SLASHED_DATES}",
            hint="nothing was written; rewrite the table with one form of dates in its paths",
        )

    def key_columns_of(self, incoming: pa.Schema) -> pa.Schema:
        """Return the schema to cast the keys of deletes to: the table's key and partition columns.

        Args:
            incoming: Schema of the caller's rows, which has these columns; others are ignored.

        Raises:
            InputError: A column has a type that an upsert refuses.
        """
        config = self.config
        keys = config.record_key_fields + config.partition_fields
        return columns_of_keys(incoming, self.avro_schema, config.name, keys)

    def created(self) -> Target:
        """Return the target as an existing table, creating it if necessary.

        Raises:
            ConfigError: No table can be at the base path, because it is a file or below one.
        """
        if self.exists:
            return self
        try:
            write_table_config(self.meta.storage.for_cause("table"), self.config, create=True)
        except PathNotFoundError as exc:
            raise ConfigError(
                f"base path {self.meta.storage.base_path} can't be created: {exc.message};"
                " allowed: a folder, or a path where one can be made",
                hint=exc.hint,
            ) from exc
        return replace(self, exists=True)

    def check_pinned(self, timeline: Timeline, history: CommitHistory) -> None:
        """Check that the rows fit the table at the timeline of the write's look-ups.

        Commits between the two timelines aren't compared when this write completes.

        Args:
            timeline: The timeline that the write's look-ups are pinned to.
            history: The client's facts of the table's commits.

        Raises:
            WriteConflictError: Another writer has changed the schema, or the form of keys.

        Cost: none without new commits; else the same reads per commit as in ``open_target``.
        """
        before, now = (each.completed().write_timeline() for each in (self.timeline, timeline))
        if before == now:
            return
        avro_schema = history.avro_schema(self.meta, now)
        # A first commit's schema is that of the incoming rows; another writer's may be the same.
        if avro_schema not in (history.avro_schema(self.meta, before), self.avro_schema):
            raise self._changed("schema")
        generator = replace(self.generator, name_single_key=True)
        if generator_as_stored(generator, self.meta, now, history) != self.generator:
            raise self._changed("form of record keys")

    def _changed(self, what: str) -> WriteConflictError:
        return WriteConflictError(
            f"another writer changed the {what} of {self.meta.storage.base_path} during this write",
            hint=REPEAT,
        )

    def check_unchanged(self) -> None:
        """Check that the table can still be written, and has the same layout.

        Raises:
            UnsupportedTableError: It now has a feature that this writer would break.
            ConcurrentWriteError: Its version or the rules for its rows have changed, or it now has
                a metadata table.

        Cost: one read.
        """
        storage = self.meta.storage.for_cause("table")
        config = read_table_config(storage)
        refuse_unsupported(config, storage.base_path)
        partitions = config.named_metadata_partitions
        if partitions:
            raise ConcurrentWriteError(
                f"another writer gave {storage.base_path} a metadata table during this write"
                f" ({', '.join(partitions)}), which this commit would leave stale",
                hint=f"set {settings.METADATA_TABLE.name}=false in every writer of the table, and"
                " repeat the write",
            )
        if config.version != self.config.version:
            raise ConcurrentWriteError(
                f"{storage.base_path} was changed from version {self.config.version} to"
                f" {config.version} during this write",
                hint="repeat the write",
            )
        before, now = ((row_rules(each), stored_index(each)) for each in (self.config, config))
        if before != now:
            raise self._changed("properties")

    def sizing(self, values: Settings, history: CommitHistory) -> Sizing:
        """Return the target size of files, and the record size estimated from recent commits."""
        small = values.get(settings.SMALL_FILE_LIMIT)
        commits = history.newest_first(self.meta, self.timeline)
        newest = islice(commits, values.get(settings.RECORD_SIZE_COMMITS))
        record = average_record_bytes(
            [(facts.bytes_written, facts.records_written) for facts in newest],
            default=values.get(settings.RECORD_SIZE),
            threshold_bytes=values.get(settings.RECORD_SIZE_THRESHOLD) * small,
        )
        return Sizing(values.get(settings.MAX_FILE_SIZE), small, record)


def _named_value(partition: str) -> tuple[str, str]:
    """Split a path with one column into its hive-style ``name=``, if any, and its value."""
    name, equals, value = partition.partition("=")
    return (name + equals, value) if equals else ("", partition)


def generator_as_stored(
    generator: KeyGenerator, meta: TableMetaClient, timeline: Timeline, history: CommitHistory
) -> KeyGenerator:
    """Return the generator with the form of keys that the table has.

    Below version 9 releases of Hudi differ in how a single COMPLEX key column is written, so a
    stored key decides.
    """
    fields = generator.record_key_fields
    if generator.type != COMPLEX or len(fields) > 1 or meta.config.version >= 9:
        return generator
    stored = history.newest_file(meta, timeline)
    if stored is None:
        return generator
    key = read_footer(meta.storage.for_cause("table"), stored).get(MIN_KEY)
    return generator if key is None else generator.matching(key)


def open_target(
    storage: Storage,
    values: Settings,
    history: CommitHistory,
    *,
    create: bool,
    last: LastTimeline | None = None,
) -> Target:
    """Open a table for writing, or describe the one to be created.

    Args:
        storage: Storage at the table's base path.
        values: The client's settings.
        history: The client's facts of the table's commits.
        create: Whether the write may create the table.
        last: The timeline after the client's last write, if the caller checks afterwards whether
            another writer has been active since.

    Raises:
        TableNotFoundError: There is no table, and ``create`` is false.
        UnsupportedTableError: The table has a version, type or feature that can't be written.
        ConfigError: The options contradict the table, or lack what a new table requires.
        CorruptMetadataError: The properties or a commit can't be read, or instants exist without
            properties.

    Cost: one read, one list if the timeline isn't known (two without a table); a read for each of
        the newest commits that isn't in ``history``.
    """
    try:
        config = read_table_config(storage.for_cause("table"))
    except TableNotFoundError:
        if not create:
            raise
        remains = _remains(storage)
        if remains is None:
            return _new_target(storage, values)
        config = _config_of_remains(storage, remains)
    refuse_unsupported(config, storage.base_path)
    if not values.is_set(settings.METADATA_TABLE):
        refuse_metadata_table(config, storage.base_path)
    refusals = Refusals()
    with refusals.kept():
        refuse_disagreement(config, values)
    with refusals.kept():
        index = _index(values, config)
    with refusals.kept():
        generator = generator_of(config, values)
    refusals.raise_any()
    _refuse_moves(config, index, storage.base_path)
    meta = TableMetaClient(storage, config)
    left = None if last is None else last.take(config)

    def of_one_timeline() -> Target:
        timeline = meta.active_timeline() if left is None else left
        _refuse_restore(timeline, storage.base_path)
        # An unreadable commit must fail here, before anything is written.
        list(islice(history.newest_first(meta, timeline), values.get(settings.RECORD_SIZE_COMMITS)))
        avro_schema = history.avro_schema(meta, timeline)
        stored = generator_as_stored(generator, meta, timeline, history)
        mode = None if config.names_merge_mode else merge_mode(values)
        mode = mode or config.record_merge_mode
        is_left = left is not None
        return Target(meta, True, timeline, avro_schema, stored, mode, index, is_left)

    # Others may archive commits, or clean, between the list and the reads.
    return of_one_state(of_one_timeline)


def open_for_table_service(storage: Storage, values: Settings) -> TableMetaClient:
    """Open a table that is to be cleaned or archived, of which no rows are read or written.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedTableError: It was bootstrapped, has another table format, an unfinished restore,
            or a metadata table that isn't given up by an option.
        ConfigError: The options contradict the table.
        CorruptMetadataError: The properties can't be read.

    Cost: one read, one list.
    """
    config = read_table_config(storage.for_cause("table"))
    config.refuse_incomplete_files(storage.base_path)
    if not values.is_set(settings.METADATA_TABLE):
        refuse_metadata_table(config, storage.base_path)
    refuse_disagreement(config, values)
    meta = TableMetaClient(storage, config)
    _refuse_restore(meta.active_timeline(), storage.base_path)
    return meta


def may_write(config: TableConfig, base_path: str) -> bool:
    """Whether this writer writes a table, and so may roll back what was written to it."""
    try:
        refuse_unsupported(config, base_path)
    except UnsupportedTableError:
        return False
    return True


def _new_target(storage: Storage, values: Settings) -> Target:
    """Return the new table that the options describe."""
    config, refusals = new_config(values), Refusals()
    with refusals.kept():
        index = _index(values, config)
    with refusals.kept():
        generator = generator_of(config, values)
    refusals.raise_any()
    meta = TableMetaClient(storage, config.with_properties(index.properties))
    return Target(meta, False, Timeline(), None, generator, config.record_merge_mode, index)


def _refuse_restore(timeline: Timeline, base_path: str) -> None:
    """Refuse a table with an unfinished restore, which deletes all later writes."""
    for instant in timeline.pending():
        if instant.action == RESTORE:
            raise UnsupportedTableError(
                f"{base_path} has an unfinished restore, {instant.requested_time}, which must be"
                " finished in Hudi first"
            )


def _refuse_moves(config: TableConfig, index: IndexOptions, base_path: str) -> None:
    """Refuse to move partial rows: their missing values would stay in the old partition."""
    mode = MergeProperties.of(config, None).mode
    if mode and index.moves_rows and index.type in (GLOBAL_SIMPLE, GLOBAL_BLOOM):
        updates = (SIMPLE_UPDATES_PARTITION, BLOOM_UPDATES_PARTITION)
        setting = updates[index.type == GLOBAL_BLOOM]
        raise UnsupportedTableError(
            f"{base_path} has {PARTIAL_UPDATE_MODE}={mode}: {setting.name}=true moves rows without"
            " the stored values that they lack; allowed: false"
        )


def _index(values: Settings, config: TableConfig) -> IndexOptions:
    """Return a table's index; refuse one, or a conflict strategy, that it doesn't allow."""
    index = IndexOptions.of(values, config)
    if config.table_type == MERGE_ON_READ:
        refuse_for_logs(values)
    conflict_strategy(values, by_bucket=index.is_bucket)
    return index


def _remains(storage: Storage) -> str | None:
    """Return the path of an instant in a table without properties; ``None`` if there is none."""
    for version in (6, 9):  # one of each timeline layout
        meta = TableMetaClient(storage, TableConfig.create(name="t", version=version))
        if instants := meta.active_timeline().instants:
            return meta.path_of(instants[-1])
    return None


def _config_of_remains(storage: Storage, instant: str) -> TableConfig:
    """Return the properties of a table that another writer has created meanwhile.

    Raises:
        CorruptMetadataError: There are still none: the table has lost them.
    """
    try:
        return read_table_config(storage.for_cause("table"))
    except TableNotFoundError as error:
        raise CorruptMetadataError(
            f"{storage.base_path} has instants, such as {instant}, but its {CONFIG_PATH} is"
            " missing",
            hint="restore that file; a new table needs another base path",
        ) from error

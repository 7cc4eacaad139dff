"""``Target``: the table that a client writes to, as it is or as the options say that it will be.

Everything that can be refused about a table is refused here, before anything is written: its type
and version, features that this writer would break, options that contradict its properties, metadata
that can't be read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from strandline.records.base_file import MIN_KEY, read_footer
from strandline.records.commit_history import CommitHistory
from strandline.records.schema import (
    arrow_to_avro,
    avro_to_arrow,
    check_against_table,
    without_meta_fields,
)
from strandline.settings.setting import Setting, Settings
from strandline.write import settings as options
from strandline.write.bucket import Sizing, average_record_bytes
from strandline.write.key_generator import COMPLEX, TYPES, KeyGenerator
from timeline.errors import (
    ConfigError,
    CorruptMetadataError,
    TableNotFoundError,
    UnsupportedTableError,
)
from timeline.instant import RESTORE
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.table.config import CONFIG_PATH, TableConfig
from timeline.table.config_file import read_table_config, write_table_config
from timeline.table.property_name import (
    COMMIT_TIME,
    COPY_ON_WRITE,
    CUSTOM,
    EVENT_TIME,
    METADATA_PARTITIONS,
)
from timeline.timeline import Timeline

_FALSE_PROPERTIES: Final = (
    "hoodie.table.cdc.enabled",
    "hoodie.datasource.write.drop.partition.columns",
    "hoodie.table.multiple.base.file.formats.enable",
)
"""Properties that must not be true for this writer."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table about to be written.

    Attributes:
        meta: Its client.
        exists: Whether it is there; else the properties are what the options make of it.
        timeline: Its active timeline; empty for a new table.
        avro_schema: Its schema, without the meta columns; ``None`` as long as no commit tells.
        generator: Makes its keys and partition paths.
    """

    meta: TableMetaClient
    exists: bool
    timeline: Timeline
    avro_schema: str | None
    generator: KeyGenerator

    @property
    def config(self) -> TableConfig:
        """The table's properties."""
        return self.meta.config

    @property
    def event_time(self) -> bool:
        """Whether the ordering columns decide which of two rows stays."""
        return self.config.record_merge_mode == EVENT_TIME and bool(self.config.ordering_fields)

    @property
    def schema(self) -> pa.Schema:
        """The table's own columns; to be asked only when the Avro schema is known."""
        assert self.avro_schema is not None
        return avro_to_arrow(self.avro_schema)

    def columns_of(self, incoming: pa.Schema) -> tuple[Target, pa.Schema]:
        """Return the target with its schema known, and the columns to bring ``incoming`` rows into.

        Raises:
            InputError: A column doesn't fit the table's.
        """
        known = self
        if self.avro_schema is None:
            avro_schema = arrow_to_avro(without_meta_fields(incoming), self.config.name)
            known = replace(self, avro_schema=avro_schema)
        return known, check_against_table(incoming, known.schema)

    def created(self) -> Target:
        """Return the target as a table that exists, making it if it doesn't."""
        if self.exists:
            return self
        write_table_config(self.meta.storage.for_cause("table"), self.config, create=True)
        return replace(self, exists=True)

    def sizing(self, settings: Settings, history: CommitHistory) -> Sizing:
        """Return how big its files should get."""
        small = settings.get(options.SMALL_FILE_LIMIT)
        commits = history.newest_first(self.meta, self.timeline)
        newest = islice(commits, settings.get(options.RECORD_SIZE_COMMITS))
        record = average_record_bytes(
            [(facts.bytes_written, facts.records_written) for facts in newest],
            default=settings.get(options.RECORD_SIZE),
            threshold_bytes=settings.get(options.RECORD_SIZE_THRESHOLD) * small,
        )
        return Sizing(settings.get(options.MAX_FILE_SIZE), small, record)


def open_target(
    storage: Storage, settings: Settings, history: CommitHistory, *, create: bool
) -> Target:
    """Open a table for writing, or work out the one to be made.

    Args:
        storage: At the table's base path.
        settings: The client's.
        history: What the client knows of the table's commits.
        create: Whether the write may make the table.

    Raises:
        TableNotFoundError: There is no table, and none is to be made.
        UnsupportedTableError: The table has a version, type or feature that can't be written.
        ConfigError: The options contradict the table, or lack what a new table needs.
        CorruptMetadataError: The properties or a commit can't be read, or there are instants and no
            properties.

    Cost: one read, one list (two where there is no table); a read for each of the newest commits
        that isn't known yet.
    """
    try:
        config = read_table_config(storage.for_cause("table"))
    except TableNotFoundError:
        if not create:
            raise
        _refuse_remains(storage)
        config = _new_config(settings)
        generator = _generator(config)
        return Target(TableMetaClient(storage, config), False, Timeline(), None, generator)
    _refuse_unsupported(config, storage.base_path)
    _refuse_disagreement(config, settings)
    meta = TableMetaClient(storage, config)
    timeline = meta.active_timeline()
    for instant in timeline.pending():
        if instant.action == RESTORE:
            raise UnsupportedTableError(
                f"{storage.base_path} has an unfinished restore, {instant.requested_time}; whoever"
                " began it must finish it first"
            )
    # Read before anything is written, so that a commit that can't be read is found in time.
    list(islice(history.newest_first(meta, timeline), settings.get(options.RECORD_SIZE_COMMITS)))
    avro_schema = history.avro_schema(meta, timeline)
    generator = _as_stored(_generator(config), meta, timeline, history)
    return Target(meta, True, timeline, avro_schema, generator)


def _refuse_remains(storage: Storage) -> None:
    """Refuse to make a table over the timeline of one whose properties are gone."""
    for version in (6, 9):  # one of each timeline layout
        meta = TableMetaClient(storage, TableConfig.create(name="t", version=version))
        if instants := meta.active_timeline().instants:
            raise CorruptMetadataError(
                f"{storage.base_path} has instants, such as {meta.path_of(instants[-1])}, but its"
                f" {CONFIG_PATH} is missing",
                hint="restore that file; a new table needs another place",
            )


def _new_config(settings: Settings) -> TableConfig:
    """Return the properties of the table that the options describe."""
    if not settings.get(options.TABLE_NAME):
        raise ConfigError(f"{options.TABLE_NAME.name} is missing; a new table needs a name")
    keys = options.columns(settings, options.RECORD_KEY)
    if not keys:
        raise ConfigError(f"{options.RECORD_KEY.name} is missing; a new table needs key columns")
    ordering = options.columns(settings, options.ORDERING)
    mode = _merge_mode(settings)
    if mode == EVENT_TIME and not ordering:
        raise ConfigError(
            f"{options.MERGE_MODE.name} is {EVENT_TIME} and {options.ORDERING.name} is empty;"
            " name columns"
        )
    return TableConfig.create(
        name=settings.get(options.TABLE_NAME),
        version=settings.get(options.TABLE_VERSION),
        record_key_fields=keys,
        partition_fields=options.columns(settings, options.PARTITION_PATH),
        ordering_fields=ordering,
        hive_style=settings.get(options.HIVE_STYLE),
        url_encode=settings.get(options.URL_ENCODE),
        database=settings.get(options.DATABASE),
        merge_mode=mode,
        key_generator_type=_key_generator_type(settings),
        timezone=settings.get(options.TIMEZONE),
    )


def _merge_mode(settings: Settings) -> str | None:
    """Return the merge mode that the options name by either setting; ``None`` for neither."""
    payload = settings.get(options.PAYLOAD_CLASS)
    by_payload = (
        (COMMIT_TIME if "OverwriteWithLatest" in payload else EVENT_TIME) if payload else ""
    )
    named = settings.get(options.MERGE_MODE)
    if named and by_payload and named != by_payload:
        raise ConfigError(
            f"{options.MERGE_MODE.name} is {named} and {options.PAYLOAD_CLASS.name} is {payload},"
            f" which means {by_payload}"
        )
    return named or by_payload or None


def _key_generator_type(settings: Settings) -> str | None:
    """Return the key generator's type that the options name; ``None`` when they don't."""
    named = (
        settings.get(options.KEY_GENERATOR_CLASS).rpartition(".")[2].removesuffix("KeyGenerator")
    )
    by_class = {"Nonpartitioned": "NON_PARTITION"}.get(named, named.upper())
    kind = settings.get(options.KEY_GENERATOR_TYPE)
    if kind and by_class and kind != by_class:
        raise ConfigError(
            f"{options.KEY_GENERATOR_TYPE.name} is {kind} and {options.KEY_GENERATOR_CLASS.name}"
            f" means {by_class}"
        )
    return kind or by_class or None


def _refuse_unsupported(config: TableConfig, base_path: str) -> None:
    """Refuse a table that this writer can't write, or would damage."""
    if config.table_type != COPY_ON_WRITE:
        raise UnsupportedTableError(
            f"{base_path} is {config.table_type}; only {COPY_ON_WRITE} tables can be written"
        )
    if config.metadata_partitions:
        raise UnsupportedTableError(
            f"{base_path} has a metadata table ({METADATA_PARTITIONS}="
            f"{','.join(config.metadata_partitions)}), which this write would leave stale",
            hint="disable it in Hudi: hoodie.metadata.enable=false in its next write",
        )
    if config.key_generator_type not in TYPES:
        raise UnsupportedTableError(
            f"{base_path} has key generator {config.key_generator_type}; allowed:"
            f" {', '.join(TYPES)}"
        )
    if not config.record_key_fields:
        raise UnsupportedTableError(
            f"{base_path} has no record key columns; its keys are generated"
        )
    if not config.populate_meta_fields:
        raise UnsupportedTableError(
            f"{base_path} has no meta columns (hoodie.populate.meta.fields)"
        )
    if config.record_merge_mode == CUSTOM:
        raise UnsupportedTableError(f"{base_path} merges records by a class of its own")
    if config.base_file_extension != ".parquet":
        raise UnsupportedTableError(
            f"{base_path} has {config.base_file_extension} files, not Parquet"
        )
    for name in _FALSE_PROPERTIES:
        if config.properties.get(name, "false").lower() == "true":
            raise UnsupportedTableError(f"{base_path} has {name}=true, which can't be written")


def _refuse_disagreement(config: TableConfig, settings: Settings) -> None:
    """Refuse options that say something else than the table's properties."""
    columns: tuple[tuple[Setting[str], tuple[str, ...]], ...] = (
        (options.RECORD_KEY, config.record_key_fields),
        (options.PARTITION_PATH, config.partition_fields),
        (options.ORDERING, config.ordering_fields),
    )
    for listed, stored in columns:
        if settings.is_set(listed):
            _expect(listed.name, ",".join(options.columns(settings, listed)), ",".join(stored))
    values: tuple[tuple[Setting[Any], object], ...] = (
        (options.TABLE_NAME, config.name),
        (options.DATABASE, config.database),
        (options.TABLE_VERSION, config.version),
        (options.HIVE_STYLE, config.hive_style_partitioning),
        (options.URL_ENCODE, config.url_encode_partitioning),
        (options.TIMEZONE, config.timezone),
    )
    for setting, value in values:
        if settings.is_set(setting):
            _expect(setting.name, settings.get(setting), value)
    _expect(options.MERGE_MODE.name, _merge_mode(settings), config.record_merge_mode)
    _expect(
        options.KEY_GENERATOR_TYPE.name, _key_generator_type(settings), config.key_generator_type
    )


def _expect(name: str, asked: object, stored: object) -> None:
    if asked is not None and asked != stored:
        raise ConfigError(f"{name} is {asked!r}, but the table has {stored!r}")


def _generator(config: TableConfig) -> KeyGenerator:
    return KeyGenerator(
        record_key_fields=config.record_key_fields,
        partition_fields=config.partition_fields,
        type=config.key_generator_type,
        hive_style=config.hive_style_partitioning,
        url_encode=config.url_encode_partitioning,
        table_version=config.version,
    )


def _as_stored(
    generator: KeyGenerator, meta: TableMetaClient, timeline: Timeline, history: CommitHistory
) -> KeyGenerator:
    """Return the generator that makes keys as the table has them.

    Below version 9 releases differ in how a single COMPLEX key column is written; a stored key
    tells.
    """
    fields = generator.record_key_fields
    if generator.type != COMPLEX or len(fields) > 1 or generator.table_version >= 9:
        return generator
    files = (facts.file for facts in history.newest_first(meta, timeline))
    stored = next((file for file in files if file is not None), None)
    if stored is None:
        return generator
    key = read_footer(meta.storage.for_cause("table"), stored).get(MIN_KEY)
    return generator if key is None else generator.matching(key)

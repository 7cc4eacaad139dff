"""What options say about a table: the properties of a new one, or the same as an existing one's.

Tables with properties that this writer can't honour are refused before anything is written.

Hudi has two names each for the merge mode and the key generator, by type and by class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from strandline.commit.lock.settings import PROVIDER
from strandline.records.file.base_file import EXTENSION
from strandline.records.incomplete_files import refuse_dropped_columns, refuse_incomplete_files
from strandline.records.key.generator import CUSTOM, TYPES
from strandline.records.merge_properties import unknown_merge_properties
from strandline.settings.setting import Refusals, Setting, Settings
from strandline.write.options import settings
from strandline.write.options.client_options import (
    column_names,
    key_generator_type,
    merge_mode,
)
from strandline.write.options.settings import METADATA_TABLE
from strandline.write.options.table_keys import plain_names, with_time_settings
from timeline.errors import ConfigError, UnsupportedTableError
from timeline.table.config import TableConfig
from timeline.table.property_name import COPY_ON_WRITE, EVENT_TIME, METADATA_PARTITIONS
from timeline.table.property_name import CUSTOM as CUSTOM_MERGE

_FALSE_PROPERTIES: Final = (
    "hoodie.table.cdc.enabled",
    "hoodie.table.multiple.base.file.formats.enable",
)
"""Properties that this writer requires to be false."""


def new_config(values: Settings) -> TableConfig:
    """Return the properties of the table that the options describe.

    Raises:
        ConfigError: Options are missing, or contradict each other.
    """
    keys = column_names(values, settings.RECORD_KEY)
    ordering = column_names(values, settings.ORDERING)
    mode = merge_mode(values)
    missing = (
        (
            not values.get(settings.TABLE_NAME),
            f"{settings.TABLE_NAME.name} is missing; a new table needs a name",
        ),
        (not keys, f"{settings.RECORD_KEY.name} is missing; a new table needs key columns"),
        (
            mode == EVENT_TIME and not ordering,
            f"{settings.MERGE_MODE.name} is {EVENT_TIME} and {settings.ORDERING.name} is empty;"
            " allowed: at least one column",
        ),
    )
    refusals = Refusals()
    refusals.add(*(ConfigError(message) for is_missing, message in missing if is_missing))
    refusals.raise_any()
    partitions = column_names(values, settings.PARTITION_PATH)
    kind = key_generator_type(values) or (CUSTOM if any(":" in p for p in partitions) else None)
    version = values.get(settings.TABLE_VERSION)
    config = TableConfig.create(
        name=values.get(settings.TABLE_NAME),
        version=version,
        record_key_fields=keys,
        # Hudi stores the types of CUSTOM from version 8 on.
        partition_fields=plain_names(partitions) if version < 8 else partitions,
        ordering_fields=ordering,
        hive_style=values.get(settings.HIVE_STYLE),
        url_encode=values.get(settings.URL_ENCODE),
        database=values.get(settings.DATABASE),
        merge_mode=mode,
        key_generator_type=kind,
        timezone=values.get(settings.TIMEZONE),
    )
    return with_time_settings(config, values)


def refuse_disagreement(config: TableConfig, values: Settings) -> None:
    """Refuse options that contradict the table's properties; those that aren't set don't.

    Raises:
        ConfigError: The message names each option and both values.
    """
    refusals = Refusals()
    lists: tuple[tuple[Setting[str], tuple[str, ...]], ...] = (
        (settings.RECORD_KEY, config.record_key_fields),
        (settings.PARTITION_PATH, config.partition_fields),
        (settings.ORDERING, config.ordering_fields),
    )
    for listed, stored in lists:
        if values.is_set(listed):
            names = plain_names(column_names(values, listed))
            refusals.add(*_differing(values.called(listed), ",".join(names), ",".join(stored)))
    scalars: tuple[tuple[Setting[Any], object], ...] = (
        (settings.TABLE_NAME, config.name),
        (settings.DATABASE, config.database),
        (settings.TABLE_VERSION, config.version),
        (settings.HIVE_STYLE, config.hive_style_partitioning),
        (settings.URL_ENCODE, config.url_encode_partitioning),
        (settings.TIMEZONE, config.timezone),
    )
    for setting, value in scalars:
        if values.is_set(setting):
            refusals.add(*_differing(values.called(setting), values.get(setting), value))
    if config.names_merge_mode:
        mode_name = _given(values, settings.MERGE_MODE, settings.PAYLOAD_CLASS)
        refusals.add(*_differing(mode_name, merge_mode(values), config.record_merge_mode))
    type_name = _given(values, settings.KEY_GENERATOR_TYPE, settings.KEY_GENERATOR_CLASS)
    refusals.add(*_differing(type_name, key_generator_type(values), config.key_generator_type))
    refusals.raise_any()


def _given(values: Settings, by_name: Setting[str], by_class: Setting[str]) -> str:
    """Return which of two settings of one thing the options contain, as it was given."""
    return values.called(by_name if values.is_set(by_name) else by_class)


def _differing(name: str, asked: object, stored: object) -> Iterator[ConfigError]:
    if asked is not None and asked != stored:
        yield ConfigError(
            f"{name} is {asked!r}, but the table has {stored!r}",
            hint="leave the option out, or write to another base path",
        )


def refuse_unsupported(config: TableConfig, base_path: str) -> None:
    """Refuse a table that this writer can't write or would damage.

    Raises:
        UnsupportedTableError: The message names the property.
    """
    refuse_incomplete_files(config, base_path)
    for reason in unknown_merge_properties(config):
        raise UnsupportedTableError(f"{base_path} has {reason}")
    refuse_dropped_columns(config, base_path)
    refusals = [
        (config.table_type != COPY_ON_WRITE, f"is {config.table_type}; allowed: {COPY_ON_WRITE}"),
        (
            config.key_generator_type not in TYPES,
            f"has key generator {config.key_generator_type}; allowed: {', '.join(TYPES)}",
        ),
        (not config.record_key_fields, "has no record key columns; its keys are generated"),
        (not config.populate_meta_fields, "has no meta columns (hoodie.populate.meta.fields)"),
        (config.record_merge_mode == CUSTOM_MERGE, "merges records by a custom class"),
        (
            config.base_file_extension != EXTENSION,
            f"has {config.base_file_extension} files; allowed: {EXTENSION}",
        ),
    ]
    refusals += [
        (config.properties.get(name, "false").lower() == "true", f"has {name}=true; allowed: false")
        for name in _FALSE_PROPERTIES
    ]
    for refused, reason in refusals:
        if refused:
            raise UnsupportedTableError(f"{base_path} {reason}")


def refuse_metadata_table(config: TableConfig, base_path: str) -> None:
    """Refuse a table with a metadata table, which a write would have to drop.

    Raises:
        UnsupportedTableError: It has one; the hint says which options let a write drop it.
    """
    partitions = config.named_metadata_partitions
    if partitions:
        raise UnsupportedTableError(
            f"{base_path} has a metadata table ({METADATA_PARTITIONS}={','.join(partitions)}),"
            " which this writer doesn't maintain",
            hint=f"set {METADATA_TABLE.name}=false in all writers of the table: the next write then"
            f" drops it; if several write at a time, set {PROVIDER.name} as well",
        )

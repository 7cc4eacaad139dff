"""What options say about a table: the properties of a new one, or the same as an existing one's.

Hudi has two names each for the merge mode and the key generator, by type and by class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.records.key.generator import CUSTOM
from strandline.settings.setting import Refusals, Setting, Settings
from strandline.write.options import settings
from strandline.write.options.client_options import (
    column_names,
    key_generator_type,
    merge_mode,
)
from strandline.write.options.table_keys import plain_names, with_time_settings
from timeline.errors import ConfigError
from timeline.table.config import TableConfig
from timeline.table.property_name import EVENT_TIME


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

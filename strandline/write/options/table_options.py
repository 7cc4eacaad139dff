"""What options say about a table: the properties of a new one, or the same as an existing one's.

Hudi has two names each for the merge mode and the key generator, by type and by class.
"""

from __future__ import annotations

from typing import Any

from strandline.records.key.generator import CUSTOM
from strandline.settings.setting import Setting, Settings
from strandline.write.options import settings
from strandline.write.options.client_options import column_names
from strandline.write.options.table_keys import plain_names, with_time_settings
from timeline.errors import ConfigError
from timeline.table.config import TableConfig
from timeline.table.property_name import COMMIT_TIME, EVENT_TIME


def new_config(values: Settings) -> TableConfig:
    """Return the properties of the table that the options describe.

    Raises:
        ConfigError: Options are missing, or contradict each other.
    """
    if not values.get(settings.TABLE_NAME):
        raise ConfigError(f"{settings.TABLE_NAME.name} is missing; a new table needs a name")
    keys = column_names(values, settings.RECORD_KEY)
    if not keys:
        raise ConfigError(f"{settings.RECORD_KEY.name} is missing; a new table needs key columns")
    ordering = column_names(values, settings.ORDERING)
    mode = merge_mode(values)
    if mode == EVENT_TIME and not ordering:
        raise ConfigError(
            f"{settings.MERGE_MODE.name} is {EVENT_TIME} and {settings.ORDERING.name} is empty;"
            " allowed: at least one column"
        )
    partitions = column_names(values, settings.PARTITION_PATH)
    kind = _key_generator_type(values) or (CUSTOM if any(":" in p for p in partitions) else None)
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


def merge_mode(values: Settings) -> str | None:
    """Return the merge mode that the options set directly or by the payload; ``None`` if unset."""
    payload = values.get(settings.PAYLOAD_CLASS)
    mode = COMMIT_TIME if "OverwriteWithLatest" in payload else EVENT_TIME
    return _agreed(values, settings.MERGE_MODE, settings.PAYLOAD_CLASS, mode)


def _key_generator_type(values: Settings) -> str | None:
    """Return the key generator type that the options set directly or by class, if any."""
    name = values.get(settings.KEY_GENERATOR_CLASS).rpartition(".")[2].removesuffix("KeyGenerator")
    other = {"Nonpartitioned": "NON_PARTITION", "TimestampBased": "TIMESTAMP"}
    kind = other.get(name, name.upper())
    return _agreed(values, settings.KEY_GENERATOR_TYPE, settings.KEY_GENERATOR_CLASS, kind)


def _agreed(
    values: Settings, by_name: Setting[str], by_class: Setting[str], meaning: str
) -> str | None:
    """Return what two settings of one thing say; ``None`` if neither is set.

    Args:
        values: The options.
        by_name: The setting of its name.
        by_class: The setting of its class in Java.
        meaning: The name that the class has, if it is set.

    Raises:
        ConfigError: They say different things.
    """
    named, class_name = values.get(by_name), values.get(by_class)
    if named and class_name and named != meaning:
        raise ConfigError(
            f"{values.called(by_name)} is {named} and {values.called(by_class)} is {class_name},"
            f" which means {meaning}"
        )
    return named or (meaning if class_name else None)


def refuse_disagreement(config: TableConfig, values: Settings) -> None:
    """Refuse options that contradict the table's properties; those that aren't set don't.

    Raises:
        ConfigError: The message names the option and both values.
    """
    lists: tuple[tuple[Setting[str], tuple[str, ...]], ...] = (
        (settings.RECORD_KEY, config.record_key_fields),
        (settings.PARTITION_PATH, config.partition_fields),
        (settings.ORDERING, config.ordering_fields),
    )
    for listed, stored in lists:
        if values.is_set(listed):
            names = plain_names(column_names(values, listed))
            _expect(values.called(listed), ",".join(names), ",".join(stored))
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
            _expect(values.called(setting), values.get(setting), value)
    if config.names_merge_mode:
        mode_name = _given(values, settings.MERGE_MODE, settings.PAYLOAD_CLASS)
        _expect(mode_name, merge_mode(values), config.record_merge_mode)
    type_name = _given(values, settings.KEY_GENERATOR_TYPE, settings.KEY_GENERATOR_CLASS)
    _expect(type_name, _key_generator_type(values), config.key_generator_type)


def _given(values: Settings, by_name: Setting[str], by_class: Setting[str]) -> str:
    """Return which of two settings of one thing the options contain, as it was given."""
    return values.called(by_name if values.is_set(by_name) else by_class)


def _expect(name: str, asked: object, stored: object) -> None:
    if asked is not None and asked != stored:
        raise ConfigError(
            f"{name} is {asked!r}, but the table has {stored!r}",
            hint="leave the option out, or write to another base path",
        )

"""Options that describe a table: they define a new table, and must agree with an existing one.

Tables with properties that this writer can't honour are refused before anything is written.

Hudi has two settings each for the merge mode and the key generator, one by type and one by class.

The key generator comes from the properties, and from options for what they lack. Hudi stores the
settings of ``TIMESTAMP`` with the table. For ``CUSTOM`` it stores the types of the partition
columns from version 9 on, but never the time format of paths: each writer must set that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from strandline.commit.lock.settings import PROVIDER
from strandline.read.logs.mergeable import refuse_unmergeable
from strandline.records.file.base_file import EXTENSION
from strandline.records.key.generator import CUSTOM, SIMPLE, TIMESTAMP, TYPES, KeyGenerator
from strandline.records.key.timestamp_path import (
    INPUT_ZONE,
    OLD_PREFIX,
    OUTPUT_FORMAT,
    OUTPUT_ZONE,
    PREFIX,
    TYPE,
    ZONE,
    TimestampFormat,
)
from strandline.records.merge_rule import MergeProperties, unknown_merge_properties
from strandline.settings.setting import Refusals, Setting, Settings
from strandline.write.options import settings
from strandline.write.options.client_options import (
    column_names,
    key_generator_type,
    merge_mode,
)
from strandline.write.options.settings import METADATA_TABLE, TIME_SETTINGS
from timeline.errors import ConfigError, UnsupportedTableError
from timeline.table.config import TableConfig
from timeline.table.property_name import CUSTOM as CUSTOM_MERGE
from timeline.table.property_name import (
    DROPS_PARTITION_COLUMNS,
    EVENT_TIME,
    MERGE_ON_READ,
    METADATA_PARTITIONS,
    PARTITION_FIELDS,
)

_LOG_COMPACTION: Final = "hoodie.log.compaction.inline"

_FALSE_PROPERTIES: Final = (
    "hoodie.table.cdc.enabled",
    "hoodie.table.multiple.base.file.formats.enable",
)
"""Properties that this writer requires to be false."""

_BY_NAME: Final[Mapping[str, Setting[str]]] = {
    setting.name.removeprefix(PREFIX): setting for setting in TIME_SETTINGS
}
_REQUIRED: Final = frozenset({TYPE, OUTPUT_FORMAT})
"""Settings that paths require: a table with these stores all others that aren't defaults, too."""


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
    version, table_type = values.get(settings.TABLE_VERSION), values.get(settings.TABLE_TYPE)
    config = TableConfig.create(
        name=values.get(settings.TABLE_NAME),
        version=version,
        table_type=table_type,
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
    """Refuse options that contradict the table's properties; unset options don't.

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
        (settings.TABLE_TYPE, config.table_type),
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
    """Return which of two settings for the same thing is set, under its given name."""
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
    config.refuse_incomplete_files(base_path)
    for reason in unknown_merge_properties(config):
        raise UnsupportedTableError(f"{base_path} has {reason}")
    if config.drops_partition_columns:
        raise UnsupportedTableError(
            f"{base_path} has {DROPS_PARTITION_COLUMNS}=true; allowed: false",
            hint="write it with Hudi, or write the rows of its scan to a new table without that"
            " property",
        )
    refusals = [
        (
            config.key_generator_type not in TYPES,
            f"has key generator {config.key_generator_type}; allowed: {', '.join(TYPES)}",
        ),
        (not config.record_key_fields, "has no record key columns; its keys are generated"),
        (not config.populate_meta_fields, "has no meta columns (hoodie.populate.meta.fields)"),
        (
            config.record_merge_mode == CUSTOM_MERGE and config.table_type != MERGE_ON_READ,
            "merges records by a custom class",
        ),
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
    if config.table_type == MERGE_ON_READ:
        # A writer must know by which rule readers merge its logs.
        refuse_unmergeable(config)


def refuse_for_logs(values: Settings) -> None:
    """Refuse options that a merge-on-read table can't be written with.

    Raises:
        ConfigError: An option asks for a log compaction.
    """
    refusals = Refusals()
    given = values.other.get(_LOG_COMPACTION, "").strip().lower()
    if given == "true":
        refusals.add(
            ConfigError(
                f"{_LOG_COMPACTION} is {given}, but the table is merge-on-read, and this writer"
                " only compacts logs into base files; allowed: false",
                hint="hoodie.compact.inline=true compacts after writes",
            )
        )
    refusals.raise_any()


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


def generator_of(config: TableConfig, values: Settings) -> KeyGenerator:
    """Return the key generator of a table, with the default form of keys.

    Raises:
        ConfigError: A setting that the generator needs is in neither the properties nor the
            options, isn't supported, or differs between them.
    """
    kind = config.key_generator_type
    timed: frozenset[str] = frozenset()
    if kind == CUSTOM:
        types = _types(config, values)
        timed = frozenset(name for name, each in types.items() if each == TIMESTAMP)
    return KeyGenerator(
        record_key_fields=config.record_key_fields,
        partition_fields=config.partition_fields,
        type=kind,
        hive_style=config.hive_style_partitioning,
        url_encode=config.url_encode_partitioning,
        times=_times(config, values) if kind == TIMESTAMP or timed else None,
        timed=timed,
        slash_dates=config.slash_separated_dates and config.may_slash_dates,
    )


def with_time_settings(config: TableConfig, values: Settings) -> TableConfig:
    """Return the properties of a new table plus the ``TIMESTAMP`` settings in the options."""
    if config.key_generator_type != TIMESTAMP:
        return config
    return config.with_properties(
        {each.name: values.get(each) for each in _BY_NAME.values() if values.is_set(each)}
    )


def row_rules(config: TableConfig) -> tuple[object, ...]:
    """Return the properties that decide a row's key and place, and which of two rows wins."""
    times = [config.properties.get(each.name) for each in _BY_NAME.values()]
    return (
        config.record_key_fields,
        config.properties.get(PARTITION_FIELDS),
        config.key_generator_type,
        config.hive_style_partitioning,
        config.url_encode_partitioning,
        config.slash_separated_dates,
        times,
        config.ordering_fields,
        config.record_merge_mode,
        config.names_merge_mode,
        MergeProperties.of(config, None),
    )


def plain_names(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return partition columns without the types that ``CUSTOM`` gives them."""
    return tuple(field.partition(":")[0] for field in fields)


def _types(config: TableConfig, values: Settings) -> dict[str, str]:
    """Return partition column → its type, ``SIMPLE`` or ``TIMESTAMP``."""
    if not config.partition_fields:
        return {}
    given = column_names(values, settings.PARTITION_PATH)
    stored = tuple(config.properties[PARTITION_FIELDS].split(","))
    types = _by_name(stored if all(":" in field for field in stored) else given or stored)
    if given and _by_name(given) != types:
        raise ConfigError(
            f"{values.called(settings.PARTITION_PATH)} is {','.join(given)!r}, but the table has"
            f" {','.join(stored)!r}",
            hint="leave the option out, or write to another base path",
        )
    allowed = (SIMPLE, TIMESTAMP)
    wrong = [(name, kind) for name, kind in types.items() if not name or kind not in allowed]
    if wrong:
        fields = ", ".join(repr(f"{name}:{kind}" if kind else name) for name, kind in wrong)
        raise ConfigError(
            f"{values.called(settings.PARTITION_PATH)} has {fields} for the key generator CUSTOM;"
            " allowed: column:SIMPLE, column:TIMESTAMP"
        )
    return types


def _by_name(fields: Iterable[str]) -> dict[str, str]:
    """Return column → type of fields such as ``ts:TIMESTAMP``."""
    pairs = (field.strip().partition(":") for field in fields)
    return {name: kind.upper() for name, _, kind in pairs}


def _times(config: TableConfig, values: Settings) -> TimestampFormat:
    """Return the time format of the table; if it has none, that of the options.

    In a table with a format, settings that aren't stored have their defaults: an option that
    changes one would give stored rows another path.
    """
    stored = _expanded(_stored_times(config))
    given = {name: values.get(each) for name, each in _BY_NAME.items() if values.is_set(each)}
    known = stored if _REQUIRED.issubset(stored) else {**_expanded(given), **stored}
    found = TimestampFormat.of(known)

    def changes_paths(options: Mapping[str, str]) -> bool:
        return not TimestampFormat.of({**known, **_expanded(options)}).makes_paths_of(found)

    if not changes_paths(given):
        return found
    # Some options, such as patterns and their delimiter, may only differ together.
    alone = (name for name, value in given.items() if changes_paths({name: value}))
    name = next(alone, next(iter(given)))
    held = next((stored[each] for each in _expanded({name: ""}) if stored.get(each)), None)
    default = f"its default, {_BY_NAME[name].default or 'UTC'!r}"
    raise ConfigError(
        f"{values.called(_BY_NAME[name])} is {given[name]!r}, but the table has"
        f" {default if held is None else repr(held)}",
        hint="leave the option out, or write to another base path; if Hudi wrote the table without"
        f" a zone and in another one, set {PREFIX}{ZONE} in hoodie.properties",
    )


def _stored_times(config: TableConfig) -> dict[str, str]:
    """Return the table's time settings, by name without ``PREFIX``."""
    return {
        name: config.properties[key]
        for name in _BY_NAME
        for key in (OLD_PREFIX + name, PREFIX + name)
        if key in config.properties
    }


def _expanded(found: Mapping[str, str]) -> dict[str, str]:
    """Return time settings with the common zone, if set, expanded to the two that it replaces."""
    made = {name: value for name, value in found.items() if name != ZONE}
    if found.get(ZONE) is not None:
        made |= {INPUT_ZONE: found[ZONE], OUTPUT_ZONE: found[ZONE]}
    return made

"""The key generator of a table: from its properties, and from options that they lack.

Hudi stores the settings of ``TIMESTAMP`` with the table. Of ``CUSTOM`` it stores the types of the
partition columns from version 9 on, and never how times become paths: each writer must bring that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from strandline.records.key.generator import CUSTOM, SIMPLE, TIMESTAMP, KeyGenerator
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
from strandline.records.merge_properties import MergeProperties
from strandline.settings.setting import Setting, Settings
from strandline.write.options import settings
from strandline.write.options.client_options import column_names
from strandline.write.options.settings import TIME_SETTINGS
from timeline.errors import ConfigError
from timeline.table.config import TableConfig
from timeline.table.property_name import PARTITION_FIELDS

_BY_NAME: Final[Mapping[str, Setting[str]]] = {
    setting.name.removeprefix(PREFIX): setting for setting in TIME_SETTINGS
}
_REQUIRED: Final = frozenset({TYPE, OUTPUT_FORMAT})
"""Settings without which there are no paths: a table that has them has all that aren't defaults."""


def generator_of(config: TableConfig, values: Settings) -> KeyGenerator:
    """Return the key generator of a table, as the table's keys are by default.

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
    """Return the properties of a new table with those of ``TIMESTAMP`` that the options set."""
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
    """Return the format of times; if the table has none, that of the options.

    What a table with a format leaves out has its default there: an option that changes it would
    give stored rows another path.
    """
    stored = _expanded(_stored_times(config))
    given = {name: values.get(each) for name, each in _BY_NAME.items() if values.is_set(each)}
    known = stored if _REQUIRED.issubset(stored) else {**_expanded(given), **stored}
    found = TimestampFormat.of(known)

    def changes_paths(options: Mapping[str, str]) -> bool:
        return not TimestampFormat.of({**known, **_expanded(options)}).makes_paths_of(found)

    if not changes_paths(given):
        return found
    # Some options, such as patterns and their delimiter, may differ together only.
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
    """Return the table's settings of times by their names behind ``PREFIX``."""
    return {
        name: config.properties[key]
        for name in _BY_NAME
        for key in (OLD_PREFIX + name, PREFIX + name)
        if key in config.properties
    }


def _expanded(found: Mapping[str, str]) -> dict[str, str]:
    """Return settings of times with the zone for both, if set, as the two that it replaces."""
    made = {name: value for name, value in found.items() if name != ZONE}
    if found.get(ZONE) is not None:
        made |= {INPUT_ZONE: found[ZONE], OUTPUT_ZONE: found[ZONE]}
    return made

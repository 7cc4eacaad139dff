"""Parses the options of a write client into ``Settings``.

Hudi has several names for some settings. ``ALIASES`` maps them to the name used here; two that
disagree are refused. Unknown options that begin with ``hoodie.`` are listed in one warning; other
unknown options are meant for other libraries and ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from strandline.commit.lock.settings import LOCK_ALIASES, LOCK_SETTINGS
from strandline.commit.settings import COMMIT_SETTINGS
from strandline.records.base_file import BaseFileSettings
from strandline.services.clean.policy import CLEAN_SETTINGS
from strandline.settings.service import SERVICE_SETTINGS
from strandline.settings.setting import Setting, Settings, shortened
from strandline.write import settings
from timeline.errors import ConfigError

logger = logging.getLogger(__name__)

ALIASES: Final[Mapping[str, str]] = {
    "hoodie.table.type": settings.TABLE_TYPE.name,
    "hoodie.table.version": settings.TABLE_VERSION.name,
    "hoodie.table.recordkey.fields": settings.RECORD_KEY.name,
    "hoodie.table.partition.fields": settings.PARTITION_PATH.name,
    "hoodie.datasource.write.precombine.field": settings.ORDERING.name,
    "hoodie.table.precombine.field": settings.ORDERING.name,
    "hoodie.datasource.write.record.merge.mode": settings.MERGE_MODE.name,
    "hoodie.compaction.payload.class": settings.PAYLOAD_CLASS.name,
    "hoodie.table.keygenerator.type": settings.KEY_GENERATOR_TYPE.name,
    "hoodie.table.keygenerator.class": settings.KEY_GENERATOR_CLASS.name,
    "hoodie.cleaner.policy.failed.writes": settings.FAILED_WRITES.name,
    **LOCK_ALIASES,
}
"""Hudi's other name of a setting → its name here."""

_SHOWN: Final = 40
"""Maximum length of each of two values shown in one message."""


def parse_options(options: Mapping[str, object]) -> Settings:
    """Parse a write client's options.

    Raises:
        ConfigError: A value isn't allowed, asks for something this writer lacks, or two names of
            one setting disagree.
    """
    ours = (*settings.WRITE_SETTINGS, *COMMIT_SETTINGS, *LOCK_SETTINGS, *CLEAN_SETTINGS)
    known = (*ours, *SERVICE_SETTINGS)
    parsed = Settings.parse(_without_aliases(options), known)
    unknown = sorted(name for name in parsed.other if name.startswith("hoodie."))
    if unknown:
        logger.warning("ignoring unknown options: %s", ", ".join(unknown))
    return parsed


def column_names(values: Settings, setting: Setting[str]) -> tuple[str, ...]:
    """Return the column names that a setting lists."""
    return tuple(name.strip() for name in values.get(setting).split(",") if name.strip())


def base_file_settings(values: Settings) -> BaseFileSettings:
    """Return the settings of base files."""
    return BaseFileSettings(
        compression=values.get(settings.CODEC),
        row_group_bytes=values.get(settings.ROW_GROUP),
        bloom_entries=values.get(settings.BLOOM_ENTRIES) or None,
        bloom_error_rate=values.get(settings.BLOOM_ERROR_RATE),
        bloom_max_entries=values.get(settings.BLOOM_MAX_ENTRIES),
        bloom_type=values.get(settings.BLOOM_TYPE),
    )


def _without_aliases(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options under the names used here."""
    named: dict[str, object] = {}
    given_as: dict[str, str] = {}
    for name, value in options.items():
        main = ALIASES.get(name, name)
        if main in named and str(named[main]) != str(value):
            raise ConfigError(
                f"{given_as[main]} is {shortened(repr(named[main]), _SHOWN)} and {name} is"
                f" {shortened(repr(value), _SHOWN)}; both set {main}"
            )
        named[main] = value
        given_as[main] = name
    return named

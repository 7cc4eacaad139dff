"""Parses the options of a write client into ``Settings``.

Every option is in one of three lists: supported (the tables of settings), refused with a reason, or
harmless (``strandline.write.options.foreign_options``). Hudi has several names for some settings.
``ALIASES`` maps them to the name used here; two that disagree are refused.

An option in none of the lists is refused if at most two letters make it a name of a list: a
misspelt option would otherwise be ignored, and a table without partitions, say, is so for good.
Other unknown options that begin with ``hoodie.`` or ``strandline.`` are named in one warning of the
log and in the client's first result; the rest is meant for other libraries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from strandline.commit.lock.settings import LOCK_ALIASES, LOCK_SETTINGS
from strandline.commit.settings import COMMIT_SETTINGS
from strandline.records.file.base_file_writer import BaseFileSettings
from strandline.records.key.timestamp_path import NAMES, OLD_PREFIX, PREFIX
from strandline.records.schema.schema_evolution import EvolutionRules
from strandline.settings.service import SERVICE_SETTINGS
from strandline.settings.setting import Setting, Settings, masked, refusal, shortened
from strandline.table_services.clean.policy import CLEAN_SETTINGS
from strandline.table_services.rollback.policy import FAILED_WRITES, ROLLBACK_SETTINGS
from strandline.write.options import settings
from strandline.write.options.foreign_options import HARMLESS, REFUSED, find
from strandline.write.options.index_settings import BLOOM, GLOBAL_BLOOM, INDEX_SETTINGS, INDEX_TYPE
from timeline.errors import ConfigError

logger = logging.getLogger(__name__)

ALIASES: Final[Mapping[str, str]] = {
    "hoodie.datasource.write.table.name": settings.TABLE_NAME.name,
    "hoodie.datasource.write.storage.type": settings.TABLE_TYPE.name,
    "hoodie.table.type": settings.TABLE_TYPE.name,
    "hoodie.table.version": settings.TABLE_VERSION.name,
    "hoodie.table.recordkey.fields": settings.RECORD_KEY.name,
    "hoodie.table.partition.fields": settings.PARTITION_PATH.name,
    "hoodie.datasource.write.precombine.field": settings.ORDERING.name,
    "hoodie.table.precombine.field": settings.ORDERING.name,
    "hoodie.payload.ordering.field": settings.ORDERING.name,
    "hoodie.datasource.write.record.merge.mode": settings.MERGE_MODE.name,
    "hoodie.write.record.merge.mode": settings.MERGE_MODE.name,
    "hoodie.compaction.payload.class": settings.PAYLOAD_CLASS.name,
    "hoodie.table.keygenerator.type": settings.KEY_GENERATOR_TYPE.name,
    "hoodie.table.keygenerator.class": settings.KEY_GENERATOR_CLASS.name,
    "hoodie.cleaner.policy.failed.writes": FAILED_WRITES.name,
    **{OLD_PREFIX + name: PREFIX + name for name in NAMES},
    **LOCK_ALIASES,
}
"""Hudi's other name of a setting → its name here."""

WRITER_SETTINGS: Final = (
    *settings.WRITE_SETTINGS,
    *INDEX_SETTINGS,
    *COMMIT_SETTINGS,
    *LOCK_SETTINGS,
    *ROLLBACK_SETTINGS,
    *CLEAN_SETTINGS,
    *SERVICE_SETTINGS,
)
"""All settings that a write client reads."""

_OURS: Final = ("hoodie.", "strandline.")
_MISSPELT: Final = 2
"""Number of letters by which a misspelt name may differ from the right one."""
_SHOWN: Final = 40
"""Maximum length of each of two values shown in one message."""


def parse_options(options: Mapping[str, object]) -> Settings:
    """Parse a write client's options.

    Raises:
        ConfigError: The options aren't a mapping of text to single values; a value isn't allowed,
            asks for something this writer lacks, or two names of one setting disagree; or an
            option's name is a misspelt one.
    """
    _check_form(options)
    named, given_as = _without_aliases(options)
    parsed = Settings.parse(named, WRITER_SETTINGS, given_as)
    listed = [name for entry in (*REFUSED, *HARMLESS) for name in entry.names]
    exact = [name for name in listed if not name.endswith(".")]
    known = [each.name for each in WRITER_SETTINGS]
    _refuse_unlisted(parsed.other, frozenset([*known, *ALIASES, *exact]))
    unknown = unknown_options(parsed)
    if unknown:
        logger.warning("ignoring unknown options: %s", ", ".join(unknown))
    return parsed


def unknown_options(values: Settings) -> tuple[str, ...]:
    """Return the names of Hudi's and Strandline's options that are in no list, sorted."""
    listed = (*REFUSED, *HARMLESS)
    return tuple(sorted(n for n in values.other if n.startswith(_OURS) and find(n, listed) is None))


def _check_form(options: object) -> None:
    """Refuse options whose text would be mistaken for a value, such as that of a list."""
    if not isinstance(options, Mapping):
        raise ConfigError(f"options are {options!r}; allowed: a mapping of names to values")
    for name, value in options.items():
        if not isinstance(name, str):
            raise ConfigError(f"the name of an option is {name!r}; allowed: text")
        if name.startswith(_OURS) and isinstance(value, Iterable) and not isinstance(value, str):
            allowed = "; allowed: text, a number or a boolean; several names separated by commas"
            raise refusal(name, _shown(name, value), allowed)


def _refuse_unlisted(options: Mapping[str, str], names: frozenset[str]) -> None:
    """Refuse options that the writer can't honour, and misspelt ones.

    Raises:
        ConfigError: The message names the reason, or the right name.
    """
    for name, value in options.items():
        if name not in names:
            # Before the prefixes, which match whatever is misspelt behind them.
            _refuse_misspelt(name, value, names)
        refused, harmless = find(name, REFUSED), find(name, HARMLESS)
        if refused and (harmless is None or refused[0] > harmless[0]):
            option = refused[1]
            if value.strip().lower() not in option.asks_nothing:
                raise refusal(name, _shown(name, value), f"; refused: {option.reason}")


def _refuse_misspelt(name: str, value: str, names: Iterable[str]) -> None:
    right = sorted(each for each in names if _is_within(name, each, _MISSPELT))
    if right:
        why = f"; there is no such option; did you mean {right[0]}?"
        raise refusal(name, _shown(name, value), why)


def _is_within(left: str, right: str, edits: int) -> bool:
    """Whether so many edits make two texts equal: letters added, left out, replaced or swapped."""
    if abs(len(left) - len(right)) > edits:
        return False
    ends = min(len(left), len(right))
    same = next((at for at in range(ends) if left[at] != right[at]), ends)
    left, right = left[same:], right[same:]
    if not edits or not left or not right:
        return max(len(left), len(right)) <= edits
    swapped = len(left) > 1 and left[:2] == right[1::-1]
    return (
        _is_within(left[1:], right[1:], edits - 1)
        or _is_within(left[1:], right, edits - 1)
        or _is_within(left, right[1:], edits - 1)
        or (swapped and _is_within(left[2:], right[2:], edits - 1))
    )


def _shown(name: str, value: object) -> str:
    return masked(name, repr(value))


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
        # As in HoodieFileWriterFactory.enableBloomFilter: an index that needs filters gets them.
        has_bloom=values.get(settings.BLOOM_ENABLED)
        or values.get(INDEX_TYPE) in (BLOOM, GLOBAL_BLOOM),
    )


def evolution_rules(values: Settings) -> EvolutionRules:
    """Return how writes may change the table's schema."""
    return EvolutionRules(
        reconcile=values.get(settings.RECONCILE_SCHEMA),
        set_null=values.get(settings.SET_NULL),
        validate=values.get(settings.VALIDATE_SCHEMA),
        allow_drop=values.get(settings.ALLOW_DROP),
    )


def _without_aliases(options: Mapping[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """Return the options under the names used here, and these names → those that were given."""
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
    return named, given_as

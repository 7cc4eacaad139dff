"""Parses the options of a write client into ``Settings``.

Every option is in one of four lists: supported (the tables of settings), refused with a reason,
without effect, or harmless (``strandline.write.options.foreign_options``). Hudi has several names
for some settings. ``ALIASES`` maps them to the name used here; two that disagree are refused, as
are settings that contradict each other. All refusals are one error.

An option in none of the lists is refused if changing at most two letters makes it a listed name: a
misspelt option would otherwise be ignored, with lasting results such as a table without partitions.
One that begins with ``strandline.`` is refused if it is like any of this package's settings.
Warnings in the log and in the client's first result name other unknown options that begin with
``hoodie.`` or ``strandline.``, and options without effect. The rest is meant for other libraries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from strandline.commit import settings as commit_settings
from strandline.commit.lock import settings as lock_settings
from strandline.commit.settings import check_concurrency, conflict_strategy
from strandline.records.file import base_file_writer, log_file_writer
from strandline.records.file.base_file_writer import BaseFileSettings
from strandline.records.file.log_file_writer import LogFileSettings
from strandline.records.key.timestamp_path import NAMES, OLD_PREFIX, PREFIX
from strandline.records.schema import schema_evolution
from strandline.settings.service import SERVICE_SETTINGS
from strandline.settings.setting import (
    Refusals,
    Setting,
    Settings,
    declared,
    masked,
    nearest,
    refusal,
    shortened,
)
from strandline.table_services.archive import policy as archive_policy
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.clean import policy as clean_policy
from strandline.table_services.clean.policy import (
    ASYNC,
    HOURS,
    MAX_COMMITS,
    PARALLELISM,
    POLICY,
    RETAINED,
    VERSIONS,
)
from strandline.table_services.compact import policy as compact_policy
from strandline.table_services.compact.policy import CompactionSettings
from strandline.table_services.rollback import policy as rollback_policy
from strandline.table_services.rollback.policy import FAILED_WRITES
from strandline.write.options import index_settings, settings, stream_settings
from strandline.write.options.foreign_options import HARMLESS, REFUSED, WITHOUT_EFFECT, find
from strandline.write.options.index_settings import (
    BLOOM,
    GLOBAL_BLOOM,
    INDEX_TYPE,
    bucket_contradictions,
)
from timeline.errors import ConfigError
from timeline.table.property_name import COMMIT_TIME, EVENT_TIME

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
    "hoodie.cleaner.policy": POLICY.name,
    "hoodie.cleaner.commits.retained": RETAINED.name,
    "hoodie.cleaner.hours.retained": HOURS.name,
    "hoodie.cleaner.fileversions.retained": VERSIONS.name,
    "hoodie.clean.async": ASYNC.name,
    "hoodie.clean.max.commits": MAX_COMMITS.name,
    "hoodie.cleaner.parallelism": PARALLELISM.name,
    **{OLD_PREFIX + name: PREFIX + name for name in NAMES},
    **lock_settings.LOCK_ALIASES,
}
"""Hudi's other name of a setting → its name here."""

WRITER_SETTINGS: Final = (
    *declared(
        settings,
        schema_evolution,
        base_file_writer,
        log_file_writer,
        index_settings,
        commit_settings,
        lock_settings,
        rollback_policy,
        clean_policy,
        archive_policy,
        compact_policy,
        stream_settings,
    ),
    *SERVICE_SETTINGS,
)
"""All settings that a write client reads."""

_BY_NAME: Final[Mapping[str, Setting[Any]]] = {each.name: each for each in WRITER_SETTINGS}
_OWN: Final = "strandline."
_OURS: Final = ("hoodie.", _OWN)
_MISSPELT: Final = 2
"""Number of letters by which a misspelt name may differ from the right one."""
_SHOWN: Final = 40
"""Maximum length of each of two values shown in one message."""


def parse_options(options: Mapping[str, object], refusals: Refusals | None = None) -> Settings:
    """Parse a write client's options.

    Args:
        options: Name → value.
        refusals: Collects refusals, for a caller that has more to check; without it they are
            raised.

    Raises:
        ConfigError: The options aren't a mapping of text to single values; or values aren't
            allowed, ask for a feature this writer lacks, or contradict each other, or an option's
            name is misspelt. The message names all of them.
    """
    if not isinstance(options, Mapping):
        raise ConfigError(f"options are {options!r}; allowed: a mapping of names to values")
    refused = Refusals() if refusals is None else refusals
    named, given_as = _without_aliases(_well_formed(options, refused), refused)
    parsed = Settings.parse(named, WRITER_SETTINGS, given_as, refused)
    listed = [name for entry in (*REFUSED, *WITHOUT_EFFECT, *HARMLESS) for name in entry.names]
    exact = [name for name in listed if not name.endswith(".")]
    known = frozenset([*_BY_NAME, *ALIASES, *exact])
    for name, value in parsed.other.items():
        with refused.kept():
            _refuse_unlisted(name, value, known)
    _refuse_contradictions(parsed, refused)
    with refused.kept():
        ArchiveSettings.of(parsed)
    with refused.kept():
        CompactionSettings.of(parsed)
    if refusals is None:
        refused.raise_any()
    for warning in option_warnings(parsed):
        logger.warning("%s", warning)
    return parsed


def option_warnings(values: Settings) -> tuple[str, ...]:
    """Return warnings about ignored options: unknown ones, and those without effect."""
    listed = (*REFUSED, *WITHOUT_EFFECT, *HARMLESS)
    ours = [(n, v) for n, v in sorted(values.other.items()) if n.startswith(_OURS)]
    unknown = [name for name, _ in ours if find(name, listed) is None]
    warnings = [f"ignored unknown options: {', '.join(unknown)}"] if unknown else []
    for entry in WITHOUT_EFFECT:
        names = [name for name, value in ours if name in entry.names and entry.asks(value)]
        if names:
            warnings.append(f"ignored {', '.join(names)}: {entry.reason}")
    return tuple(warnings)


def _well_formed(options: Mapping[str, object], refusals: Refusals) -> dict[str, object]:
    """Return the options without those whose text would be misread, such as lists."""
    kept: dict[str, object] = {}
    for name, value in options.items():
        with refusals.kept():
            if not isinstance(name, str):
                raise ConfigError(f"the name of an option is {name!r}; allowed: text")
            if (
                name.startswith(_OURS)
                and isinstance(value, Iterable)
                and not isinstance(value, str)
            ):
                allowed = (
                    "; allowed: text, a number or a boolean; several names separated by commas"
                )
                raise refusal(name, _shown(name, value), allowed)
            kept[name] = value
    return kept


def _refuse_unlisted(name: str, value: str, names: frozenset[str]) -> None:
    """Refuse an option that the writer can't honour, or a misspelt one.

    Raises:
        ConfigError: The message names the reason, or the right name.
    """
    if name not in names:
        # Check before the prefixes, which would match names that are misspelt after them.
        _refuse_misspelt(name, value, names)
    refused, ignored = find(name, REFUSED), find(name, (*WITHOUT_EFFECT, *HARMLESS))
    if refused and (ignored is None or refused[0] > ignored[0]) and refused[1].asks(value):
        raise refusal(name, _shown(name, value), f"; refused: {refused[1].reason}")


def _refuse_contradictions(values: Settings, refusals: Refusals) -> None:
    """Refuse settings that contradict each other, whatever the table."""
    for check in (merge_mode, key_generator_type, check_concurrency, _check_file_sizes):
        with refusals.kept():
            check(values)
    with refusals.kept():
        conflict_strategy(values, by_bucket=True)  # a table's own index is known later
    if values.is_set(INDEX_TYPE):
        refusals.add(*bucket_contradictions(values, values.get(INDEX_TYPE)))


def _check_file_sizes(values: Settings) -> None:
    """Refuse a small-file limit above the maximum file size."""
    most, small = settings.MAX_FILE_SIZE, settings.SMALL_FILE_LIMIT
    if values.is_set(most) and values.is_set(small) and values.get(most) < values.get(small):
        raise ConfigError(
            f"{most.name} is {values.get(most)} and {small.name} is {values.get(small)}; allowed:"
            " a limit of small files up to the size of files"
        )


def merge_mode(values: Settings) -> str | None:
    """Return the merge mode that the options set directly or by the payload; ``None`` if unset."""
    payload = values.get(settings.PAYLOAD_CLASS)
    mode = COMMIT_TIME if "OverwriteWithLatest" in payload else EVENT_TIME
    return _agreed(values, settings.MERGE_MODE, settings.PAYLOAD_CLASS, mode)


def key_generator_type(values: Settings) -> str | None:
    """Return the key generator type that the options set directly or by class, if any."""
    name = values.get(settings.KEY_GENERATOR_CLASS).rpartition(".")[2].removesuffix("KeyGenerator")
    other = {"Nonpartitioned": "NON_PARTITION", "TimestampBased": "TIMESTAMP"}
    kind = other.get(name, name.upper())
    return _agreed(values, settings.KEY_GENERATOR_TYPE, settings.KEY_GENERATOR_CLASS, kind)


def _agreed(
    values: Settings, by_name: Setting[str], by_class: Setting[str], meaning: str
) -> str | None:
    """Return the common value of two settings for the same thing; ``None`` if neither is set.

    Args:
        values: The options.
        by_name: The setting that takes a name.
        by_class: The setting that takes a Java class.
        meaning: The name for that class, if it is set.

    Raises:
        ConfigError: They contradict each other.
    """
    named, class_name = values.get(by_name), values.get(by_class)
    if named and class_name and named != meaning:
        raise ConfigError(
            f"{values.called(by_name)} is {named} and {values.called(by_class)} is {class_name},"
            f" which means {meaning}"
        )
    return named or (meaning if class_name else None)


def _refuse_misspelt(name: str, value: str, names: Iterable[str]) -> None:
    right = sorted(each for each in names if _is_within(name, each, _MISSPELT))
    if not right and name.startswith(_OWN) and not _is_of_serve(name):
        # All settings with this prefix are known, whereas Hudi's are too many to know.
        own = [each.removeprefix(_OWN) for each in names if each.startswith(_OWN)]
        close = nearest(name.removeprefix(_OWN), own)
        right = [] if close is None else [_OWN + close]
    if right:
        why = f"; there is no such option; did you mean {right[0]}?"
        raise refusal(name, _shown(name, value), why)


def _is_of_serve(name: str) -> bool:
    """Whether it is a setting of ``strandline serve``, which a job's options may have beside."""
    # Only such names need the module, which loads all stores of views.
    from strandline.settings.command_line import SERVE_SETTINGS  # noqa: PLC0415

    return any(name == each.name for each in SERVE_SETTINGS)


def _is_within(left: str, right: str, edits: int) -> bool:
    """Whether ``edits`` letters added, removed, replaced or swapped suffice to make texts equal."""
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
    # As in HoodieFileWriterFactory.enableBloomFilter: an index that needs filters gets them.
    needs_bloom = values.get(INDEX_TYPE) in (BLOOM, GLOBAL_BLOOM)
    return values.read(BaseFileSettings, **({"has_bloom": True} if needs_bloom else {}))


def log_file_settings(values: Settings) -> LogFileSettings:
    """Return the settings of logs."""
    return values.read(LogFileSettings, parquet=base_file_settings(values))


def _without_aliases(
    options: Mapping[str, object], refusals: Refusals
) -> tuple[dict[str, object], dict[str, str]]:
    """Return the options under the names used here, and a map of these names to the given ones."""
    named: dict[str, object] = {}
    given_as: dict[str, str] = {}
    for name, value in options.items():
        main = ALIASES.get(name, name)
        if main in named:
            if not _same(main, named[main], value):
                error = ConfigError(
                    f"{given_as[main]} is {shortened(repr(named[main]), _SHOWN)} and {name} is"
                    f" {shortened(repr(value), _SHOWN)}; both set {main}"
                )
                refusals.add(error)
        else:
            named[main] = value
            given_as[main] = name
    return named, given_as


def _same(name: str, left: object, right: object) -> bool:
    """Whether two values of an option mean the same; whether they are allowed is checked later."""
    if str(left) == str(right):
        return True
    setting: Setting[Any] | None = _BY_NAME.get(name)
    try:
        return setting is not None and setting.parse(str(left)) == setting.parse(str(right))
    except ConfigError:
        return False

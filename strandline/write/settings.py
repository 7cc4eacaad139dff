"""The writer's part of the table of settings, and how a write's options become values.

Names and defaults are Hudi's; where a default differs its ``doc`` says why. Several names for one
thing are Hudi's, too: ``ALIASES`` leads each to the one that is used here, and two that disagree
are refused. Options that begin with ``hoodie.`` and that nothing here knows are named in one
warning; other options concern others. What Hudi has and this writer has not is refused by name, so
that nobody believes it is on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from strandline.clean.policy import CLEAN_SETTINGS
from strandline.records.base_file import CODECS, BaseFileSettings
from strandline.settings.service import SERVICE_SETTINGS
from strandline.settings.setting import Setting, Settings, shortened
from timeline.errors import ConfigError

logger = logging.getLogger(__name__)

_MB: Final = 1024 * 1024
_KEYGEN: Final = "org.apache.hudi.keygen."
_PAYLOAD: Final = "org.apache.hudi.common.model."

TABLE_NAME: Final = Setting(
    "hoodie.table.name", "", "The table's name; a new table needs one.", "table"
)
DATABASE: Final = Setting(
    "hoodie.database.name", "", "The database's name; part of the properties' checksum.", "table"
)
TABLE_TYPE: Final = Setting(
    "hoodie.datasource.write.table.type",
    "COPY_ON_WRITE",
    "The table's type; this release writes copy-on-write tables only.",
    "table",
    allowed=("COPY_ON_WRITE",),
)
TABLE_VERSION: Final = Setting(
    "hoodie.write.table.version",
    9,
    "Version of a new table: 6 (read by Hudi 0.14 and later), 8 (1.0) or 9 (1.1).",
    "table",
)
RECORD_KEY: Final = Setting(
    "hoodie.datasource.write.recordkey.field",
    "",
    "Columns that make the record key, separated by commas.",
    "table",
)
PARTITION_PATH: Final = Setting(
    "hoodie.datasource.write.partitionpath.field",
    "",
    "Columns that make the partition path, separated by commas; none: a table without partitions.",
    "table",
)
ORDERING: Final = Setting(
    "hoodie.table.ordering.fields",
    "",
    "Columns that say which of two rows with one key is newer, separated by commas; none: the row"
    " written later is.",
    "table",
)
MERGE_MODE: Final = Setting(
    "hoodie.record.merge.mode",
    "",
    "Whether the ordering columns or the order of writes decide; when empty the ordering columns,"
    " if there are any.",
    "table",
    allowed=("", "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"),
)
PAYLOAD_CLASS: Final = Setting(
    "hoodie.datasource.write.payload.class",
    "",
    "Hudi's older way to say the merge mode.",
    "table",
    allowed=(
        "",
        _PAYLOAD + "DefaultHoodieRecordPayload",
        _PAYLOAD + "EventTimeAvroPayload",
        _PAYLOAD + "OverwriteWithLatestAvroPayload",
    ),
)
KEY_GENERATOR_TYPE: Final = Setting(
    "hoodie.datasource.write.keygenerator.type",
    "",
    "How keys and paths are made; from the number of key and partition columns when empty.",
    "table",
    allowed=("", "SIMPLE", "COMPLEX", "NON_PARTITION"),
)
KEY_GENERATOR_CLASS: Final = Setting(
    "hoodie.datasource.write.keygenerator.class",
    "",
    "Hudi's older way to say the key generator's type.",
    "table",
    allowed=(
        "",
        _KEYGEN + "SimpleKeyGenerator",
        _KEYGEN + "ComplexKeyGenerator",
        _KEYGEN + "NonpartitionedKeyGenerator",
    ),
)
HIVE_STYLE: Final = Setting(
    "hoodie.datasource.write.hive_style_partitioning",
    False,
    "Whether a partition path's segments are field=value.",
    "table",
)
URL_ENCODE: Final = Setting(
    "hoodie.datasource.write.partitionpath.urlencode",
    False,
    "Whether values are percent-encoded in partition paths.",
    "table",
)
TIMEZONE: Final = Setting(
    "hoodie.table.timeline.timezone",
    "UTC",
    "Zone of the instants' times of a new table. Hudi's default is LOCAL, whose clock goes back"
    " once a year in many places.",
    "table",
    allowed=("UTC", "LOCAL"),
)
COMBINE_UPSERT: Final = Setting(
    "hoodie.combine.before.upsert",
    True,
    "Whether of several rows with one key only the newest is upserted. Must stay true: a file holds"
    " a key once.",
    "client",
)
COMBINE_INSERT: Final = Setting(
    "hoodie.combine.before.insert",
    False,
    "Whether of several rows with one key only the newest is inserted.",
    "client",
)
MAX_FILE_SIZE: Final = Setting(
    "hoodie.parquet.max.file.size",
    120 * _MB,
    "Size that base files are filled up to.",
    "table",
    unit="bytes",
    minimum=1,
)
SMALL_FILE_LIMIT: Final = Setting(
    "hoodie.parquet.small.file.limit",
    100 * _MB,
    "Base files below this size take inserts; 0 opens new file groups only.",
    "table",
    unit="bytes",
    minimum=0,
)
RECORD_SIZE: Final = Setting(
    "hoodie.copyonwrite.record.size.estimate",
    1024,
    "Size of a record as long as no commit tells.",
    "table",
    unit="bytes",
    minimum=1,
)
RECORD_SIZE_THRESHOLD: Final = Setting(
    "hoodie.record.size.estimation.threshold",
    1.0,
    "Only commits that wrote more than this part of the small-file limit tell a record's size.",
    "table",
    minimum=0,
)
RECORD_SIZE_COMMITS: Final = Setting(
    "hoodie.record.size.estimator.max.commits",
    5,
    "How many of the newest commits are asked for the size of a record.",
    "table",
    minimum=1,
)
CODEC: Final = Setting(
    "hoodie.parquet.compression.codec",
    "gzip",
    "Compression of base files.",
    "table",
    allowed=CODECS,
)
ROW_GROUP: Final = Setting(
    "hoodie.parquet.block.size",
    120 * _MB,
    "Size of a base file's row groups in memory.",
    "table",
    unit="bytes",
    minimum=1024,
)
BLOOM_ENTRIES: Final = Setting(
    "hoodie.index.bloom.num_entries",
    0,
    "Keys that a base file's filter is made for; 0 takes the file's rows, up to Hudi's 60000, whose"
    " filter alone takes 431 kB.",
    "table",
    minimum=0,
)
BLOOM_ERROR_RATE: Final = Setting(
    "hoodie.index.bloom.fpp",
    1e-9,
    "How often the filter may be wrong.",
    "table",
    minimum=1e-12,
    maximum=0.5,
)
BLOOM_TYPE: Final = Setting(
    "hoodie.bloom.index.filter.type",
    "DYNAMIC_V0",
    "Kind of the filter.",
    "table",
    allowed=("DYNAMIC_V0", "SIMPLE"),
)
BLOOM_MAX_ENTRIES: Final = Setting(
    "hoodie.bloom.index.filter.dynamic.max.entries",
    100_000,
    "Keys up to which a dynamic filter grows.",
    "table",
    minimum=1,
)
INDEX_TYPE: Final = Setting(
    "hoodie.index.type",
    "SIMPLE",
    "How keys are found: in the files of the row's partition whose key range may hold them.",
    "table",
    allowed=("SIMPLE", "BLOOM"),
)
FAILED_WRITES: Final = Setting(
    "hoodie.clean.failed.writes.policy",
    "EAGER",
    "When failed writes are rolled back: by the next write.",
    "client",
    allowed=("EAGER",),
)
CONCURRENCY: Final = Setting(
    "hoodie.write.concurrency.mode",
    "SINGLE_WRITER",
    "How many write at once; this release allows one writer a table.",
    "client",
    allowed=("SINGLE_WRITER",),
)
LOCK_PROVIDER: Final = Setting(
    "hoodie.write.lock.provider",
    "",
    "Where writers lock; with a single writer in its own process.",
    "client",
    allowed=("", "org.apache.hudi.client.transaction.lock.InProcessLockProvider"),
)
MARKERS_TYPE: Final = Setting(
    "hoodie.write.markers.type",
    "DIRECT",
    "Where markers are kept: as files that the tasks make. Hudi's default has its timeline server"
    " make them.",
    "client",
    allowed=("DIRECT",),
)
METADATA_TABLE: Final = Setting(
    "hoodie.metadata.enable",
    False,
    "Whether a metadata table is kept; Hudi's default is true. Must stay false: the service does"
    " its job.",
    "table",
)
META_FIELDS: Final = Setting(
    "hoodie.populate.meta.fields",
    True,
    "Whether rows carry Hudi's meta columns. Must stay true.",
    "table",
)
DROP_PARTITION_COLUMNS: Final = Setting(
    "hoodie.datasource.write.drop.partition.columns",
    False,
    "Whether partition columns are left out of the files. Must stay false.",
    "table",
)

WRITE_SETTINGS: Final[tuple[Setting[Any], ...]] = (
    TABLE_NAME,
    DATABASE,
    TABLE_TYPE,
    TABLE_VERSION,
    RECORD_KEY,
    PARTITION_PATH,
    ORDERING,
    MERGE_MODE,
    PAYLOAD_CLASS,
    KEY_GENERATOR_TYPE,
    KEY_GENERATOR_CLASS,
    HIVE_STYLE,
    URL_ENCODE,
    TIMEZONE,
    COMBINE_UPSERT,
    COMBINE_INSERT,
    MAX_FILE_SIZE,
    SMALL_FILE_LIMIT,
    RECORD_SIZE,
    RECORD_SIZE_THRESHOLD,
    RECORD_SIZE_COMMITS,
    CODEC,
    ROW_GROUP,
    BLOOM_ENTRIES,
    BLOOM_ERROR_RATE,
    BLOOM_TYPE,
    BLOOM_MAX_ENTRIES,
    INDEX_TYPE,
    FAILED_WRITES,
    CONCURRENCY,
    LOCK_PROVIDER,
    MARKERS_TYPE,
    METADATA_TABLE,
    META_FIELDS,
    DROP_PARTITION_COLUMNS,
)
"""What the writer can be told."""

ALIASES: Final[Mapping[str, str]] = {
    "hoodie.table.type": TABLE_TYPE.name,
    "hoodie.table.version": TABLE_VERSION.name,
    "hoodie.table.recordkey.fields": RECORD_KEY.name,
    "hoodie.table.partition.fields": PARTITION_PATH.name,
    "hoodie.datasource.write.precombine.field": ORDERING.name,
    "hoodie.table.precombine.field": ORDERING.name,
    "hoodie.datasource.write.record.merge.mode": MERGE_MODE.name,
    "hoodie.compaction.payload.class": PAYLOAD_CLASS.name,
    "hoodie.table.keygenerator.type": KEY_GENERATOR_TYPE.name,
    "hoodie.table.keygenerator.class": KEY_GENERATOR_CLASS.name,
    "hoodie.cleaner.policy.failed.writes": FAILED_WRITES.name,
}
"""Hudi's other names of a setting → the name it has here."""

_FIXED: Final[tuple[tuple[Setting[bool], bool], ...]] = (
    (METADATA_TABLE, False),
    (META_FIELDS, True),
    (DROP_PARTITION_COLUMNS, False),
    (COMBINE_UPSERT, True),
)
"""Switches that this release can't turn the other way."""


_SHOWN: Final = 40
"""Longest value that is shown in full where two are refused together."""


def parse_options(options: Mapping[str, object]) -> Settings:
    """Read a write client's options.

    Raises:
        ConfigError: A value isn't allowed, two names of one setting disagree, or something is asked
            for that this writer has not.
    """
    known = (*WRITE_SETTINGS, *CLEAN_SETTINGS, *SERVICE_SETTINGS)
    settings = Settings.parse(_by_one_name(options), known)
    for setting, only in _FIXED:
        if settings.get(setting) is not only:
            raise ConfigError(
                f"{setting.name} is {str(not only).lower()}; allowed: {str(only).lower()}",
                hint=setting.doc,
            )
    if settings.get(TABLE_VERSION) not in (6, 8, 9):
        raise ConfigError(
            f"{TABLE_VERSION.name} is {settings.get(TABLE_VERSION)}; allowed: 6, 8, 9"
        )
    unknown = sorted(name for name in settings.other if name.startswith("hoodie."))
    if unknown:
        logger.warning("options that are not known here have no effect: %s", ", ".join(unknown))
    return settings


def columns(settings: Settings, setting: Setting[str]) -> tuple[str, ...]:
    """Return a setting that lists columns."""
    return tuple(name.strip() for name in settings.get(setting).split(",") if name.strip())


def base_file_settings(settings: Settings) -> BaseFileSettings:
    """Return how base files are written."""
    return BaseFileSettings(
        compression=settings.get(CODEC),
        row_group_bytes=settings.get(ROW_GROUP),
        bloom_entries=settings.get(BLOOM_ENTRIES) or None,
        bloom_error_rate=settings.get(BLOOM_ERROR_RATE),
        bloom_max_entries=settings.get(BLOOM_MAX_ENTRIES),
        bloom_type=settings.get(BLOOM_TYPE),
    )


def _by_one_name(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options under one name each."""
    named: dict[str, object] = {}
    came_as: dict[str, str] = {}
    for name, value in options.items():
        main = ALIASES.get(name, name)
        if main in named and str(named[main]) != str(value):
            raise ConfigError(
                f"{came_as[main]} is {shortened(repr(named[main]), _SHOWN)} and {name} is"
                f" {shortened(repr(value), _SHOWN)}; they mean one thing"
            )
        named[main] = value
        came_as[main] = name
    return named

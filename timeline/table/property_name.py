"""The names of a table's properties, and the properties of a new table.

Source: Hudi 1.2.0 ``HoodieTableConfig``, ``HoodieTableMetaClient.TableBuilder``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from timeline.clock import LOCAL, UTC
from timeline.errors import ConfigError

COPY_ON_WRITE: Final = "COPY_ON_WRITE"
MERGE_ON_READ: Final = "MERGE_ON_READ"
VERSIONS: Final = (6, 8, 9)
"""Table versions that can be read and written."""

BASE_FILE_FORMATS: Final = ("PARQUET", "ORC", "HFILE", "LANCE")
"""Formats of base files in Hudi; files with other extensions don't belong to a table."""

EVENT_TIME: Final = "EVENT_TIME_ORDERING"
COMMIT_TIME: Final = "COMMIT_TIME_ORDERING"
CUSTOM: Final = "CUSTOM"

NAME: Final = "hoodie.table.name"
DATABASE: Final = "hoodie.database.name"
TYPE: Final = "hoodie.table.type"
VERSION: Final = "hoodie.table.version"
LAYOUT_VERSION: Final = "hoodie.timeline.layout.version"
CHECKSUM: Final = "hoodie.table.checksum"
RECORD_KEY_FIELDS: Final = "hoodie.table.recordkey.fields"
PARTITION_FIELDS: Final = "hoodie.table.partition.fields"
ORDERING_FIELDS: Final = "hoodie.table.ordering.fields"
PRECOMBINE_FIELD: Final = "hoodie.table.precombine.field"
MERGE_MODE: Final = "hoodie.record.merge.mode"
PAYLOAD_CLASS: Final = "hoodie.compaction.payload.class"
MERGE_STRATEGY_ID: Final = "hoodie.record.merge.strategy.id"
PARTIAL_UPDATE_MODE: Final = "hoodie.table.partial.update.mode"
MERGE_PROPERTY: Final = "hoodie.record.merge.property."
"""Prefix of the names of properties that refine the merge mode."""
KEY_GENERATOR_TYPE: Final = "hoodie.table.keygenerator.type"
KEY_GENERATOR_CLASS: Final = "hoodie.table.keygenerator.class"
HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
SLASHED_DATES: Final = "hoodie.datasource.write.slash.separated.date.partitioning"
PARTITION_EXTRACTOR: Final = "hoodie.table.partition_extractor_class"
DAY_EXTRACTOR: Final = "SlashEncodedDayPartitionValueExtractor"
TIMEZONE: Final = "hoodie.table.timeline.timezone"
CREATE_SCHEMA: Final = "hoodie.table.create.schema"
BASE_FILE_FORMAT: Final = "hoodie.table.base.file.format"
MULTIPLE_FORMATS: Final = "hoodie.table.multiple.base.file.formats.enable"
METADATA_PARTITIONS: Final = "hoodie.table.metadata.partitions"
METADATA_PARTITIONS_INFLIGHT: Final = "hoodie.table.metadata.partitions.inflight"
INDEX_DEFINITIONS: Final = "hoodie.table.index.defs.path"
POPULATE_META_FIELDS: Final = "hoodie.populate.meta.fields"
TIMELINE_PATH: Final = "hoodie.timeline.path"
CHANGE_DATA: Final = "hoodie.table.cdc.enabled"
HISTORY_PATH: Final = "hoodie.timeline.history.path"
ARCHIVE_FOLDER: Final = "hoodie.archivelog.folder"

BOOTSTRAPPED: Final = "hoodie.bootstrap.base.path"
DROPS_PARTITION_COLUMNS: Final = "hoodie.datasource.write.drop.partition.columns"
TABLE_FORMAT: Final = "hoodie.table.format"
NATIVE: Final = "native"

_PAYLOADS: Final = "org.apache.hudi.common.model"
MODE_OF_PAYLOAD: Final = {
    f"{_PAYLOADS}.DefaultHoodieRecordPayload": EVENT_TIME,
    f"{_PAYLOADS}.EventTimeAvroPayload": EVENT_TIME,
    f"{_PAYLOADS}.OverwriteWithLatestAvroPayload": COMMIT_TIME,
}
_PAYLOAD_OF_MODE: Final = {
    EVENT_TIME: f"{_PAYLOADS}.DefaultHoodieRecordPayload",
    COMMIT_TIME: f"{_PAYLOADS}.OverwriteWithLatestAvroPayload",
}
STRATEGY_OF_MODE: Final = {
    EVENT_TIME: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    COMMIT_TIME: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
}
_KEY_GENERATORS: Final = {
    "SIMPLE": "SimpleKeyGenerator",
    "COMPLEX": "ComplexKeyGenerator",
    "NON_PARTITION": "NonpartitionedKeyGenerator",
    "TIMESTAMP": "TimestampBasedKeyGenerator",
    "CUSTOM": "CustomKeyGenerator",
    "GLOBAL_DELETE": "GlobalDeleteKeyGenerator",
}
TYPE_OF_KEY_GENERATOR: Final = {name: kind for kind, name in _KEY_GENERATORS.items()}


CONSTANT: Final = {
    BASE_FILE_FORMAT: "PARQUET",
    POPULATE_META_FIELDS: "true",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.partition.metafile.use.base.format": "false",
    CHANGE_DATA: "false",
}
"""Properties that every new table has."""


SHOWN: Final = 100
"""Characters of a property's value in a message."""


def check_new(
    name: str, version: int, table_type: str, mode: str, generator: str, timezone: str
) -> None:
    """Refuse values that no new table can have.

    Raises:
        ConfigError: A value isn't allowed.
    """
    if not name:
        raise ConfigError(f"{NAME} is empty; it must name the table")
    for key, value, allowed in (
        (VERSION, version, VERSIONS),
        (TYPE, table_type, (COPY_ON_WRITE, MERGE_ON_READ)),
        (MERGE_MODE, mode, _PAYLOAD_OF_MODE),
        (KEY_GENERATOR_TYPE, generator, _KEY_GENERATORS),
        (TIMEZONE, timezone, (UTC, LOCAL)),
    ):
        if value not in allowed:
            raise ConfigError(f"{key} is {value!r}; allowed: {listed(allowed)}")


def listed(values: Iterable[object]) -> str:
    """Return allowed values as text for a message."""
    return ", ".join(str(value) for value in values)


def of_version(version: int, mode: str, generator: str, ordering: str) -> dict[str, str]:
    """Return the properties that a new table has in one version only, or under another name."""
    merging = {
        PAYLOAD_CLASS: _PAYLOAD_OF_MODE[mode],
        PRECOMBINE_FIELD: ordering,
    }
    if version == 6:
        return {
            **merging,
            LAYOUT_VERSION: "1",
            ARCHIVE_FOLDER: "archived",
            KEY_GENERATOR_CLASS: f"org.apache.hudi.keygen.{_KEY_GENERATORS[generator]}",
        }
    if version == 8:
        merging[MERGE_STRATEGY_ID] = STRATEGY_OF_MODE[mode]
    else:
        merging = {ORDERING_FIELDS: ordering}
    return {
        **merging,
        LAYOUT_VERSION: "2",
        MERGE_MODE: mode,
        "hoodie.table.initial.version": str(version),
        TIMELINE_PATH: "timeline",
        HISTORY_PATH: "history",
        ARCHIVE_FOLDER: "history",
        KEY_GENERATOR_TYPE: generator,
        "hoodie.table.format": "native",
        MULTIPLE_FORMATS: "false",
    }

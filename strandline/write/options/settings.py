"""Settings of the writer.

Names and defaults are Hudi's; where a default differs, ``doc`` says why. A Hudi feature that this
writer lacks is a setting with one allowed value, so that asking for it is refused by name, not
ignored. ``strandline.write.options.client_options`` parses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strandline.records.key import timestamp_path
from strandline.settings.setting import ClientSetting, Setting, TableSetting, declared
from timeline.table.property_name import COPY_ON_WRITE, MERGE_ON_READ

UNSORTED: Final = "NONE"
PARTITION_SORT: Final = "PARTITION_SORT"
GLOBAL_SORT: Final = "GLOBAL_SORT"

_MB: Final = 1024 * 1024
_KEYGEN: Final = "org.apache.hudi.keygen."
_PAYLOAD: Final = "org.apache.hudi.common.model."


def _time_text(name: str, default: str, doc: str, *, allowed: Iterable[str] = ()) -> Setting[str]:
    """Declare a setting of timestamp partitions, stored in the table's properties."""
    return Setting(timestamp_path.PREFIX + name, default, doc, "table", allowed=tuple(allowed))


TABLE_NAME: Final = Setting(
    "hoodie.table.name", "", "The table's name; required for a new table.", "table"
)
DATABASE: Final = TableSetting(
    "hoodie.database.name",
    "",
    "The database's name; part of the checksum of hoodie.properties.",
)
TABLE_TYPE: Final = TableSetting(
    "hoodie.datasource.write.table.type",
    COPY_ON_WRITE,
    "The table's type: with `MERGE_ON_READ` updates and deletes go to logs.",
    allowed=(COPY_ON_WRITE, MERGE_ON_READ),
)
TABLE_VERSION: Final = TableSetting(
    "hoodie.write.table.version",
    9,
    "Version of a new table: 6 (read by Hudi 0.14 and later), 8 (1.0) or 9 (1.1).",
    allowed=("6", "8", "9"),
)
RECORD_KEY: Final = TableSetting(
    "hoodie.datasource.write.recordkey.field",
    "",
    "Columns of the record key, separated by commas.",
)
PARTITION_PATH: Final = TableSetting(
    "hoodie.datasource.write.partitionpath.field",
    "",
    "Columns of the partition path, separated by commas; empty for a table without partitions. For"
    " the key generator CUSTOM with types: region:SIMPLE,ts:TIMESTAMP.",
)
ORDERING: Final = TableSetting(
    "hoodie.table.ordering.fields",
    "",
    "Columns that decide which of two rows with one key is newer, separated by commas; if empty,"
    " the row written later is.",
)
MERGE_MODE: Final = TableSetting(
    "hoodie.record.merge.mode",
    "",
    "Whether the ordering columns or the order of writes decide which row is newer; if empty, the"
    " ordering columns, if there are any.",
    allowed=("", "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"),
)
PAYLOAD_CLASS: Final = TableSetting(
    "hoodie.datasource.write.payload.class",
    "",
    "Hudi's older way to set the merge mode.",
    allowed=(
        "",
        _PAYLOAD + "DefaultHoodieRecordPayload",
        _PAYLOAD + "EventTimeAvroPayload",
        _PAYLOAD + "OverwriteWithLatestAvroPayload",
    ),
)
KEY_GENERATOR_TYPE: Final = TableSetting(
    "hoodie.datasource.write.keygenerator.type",
    "",
    "How keys and paths are made; if empty, inferred from the number of key and partition columns.",
    allowed=("", "SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM"),
)
KEY_GENERATOR_CLASS: Final = TableSetting(
    "hoodie.datasource.write.keygenerator.class",
    "",
    "Hudi's older way to set the key generator's type.",
    allowed=(
        "",
        _KEYGEN + "SimpleKeyGenerator",
        _KEYGEN + "ComplexKeyGenerator",
        _KEYGEN + "NonpartitionedKeyGenerator",
        _KEYGEN + "TimestampBasedKeyGenerator",
        _KEYGEN + "CustomKeyGenerator",
    ),
)
HIVE_STYLE: Final = TableSetting(
    "hoodie.datasource.write.hive_style_partitioning",
    False,
    "Whether segments of partition paths are written as field=value.",
)
URL_ENCODE: Final = TableSetting(
    "hoodie.datasource.write.partitionpath.urlencode",
    False,
    "Whether values in partition paths are percent-encoded.",
)
TIMEZONE: Final = TableSetting(
    "hoodie.table.timeline.timezone",
    "UTC",
    "Time zone of a new table's instants. Hudi's default is LOCAL, where the clock goes back once a"
    " year in many places.",
    allowed=("UTC", "LOCAL"),
)
OPERATION: Final = ClientSetting(
    "hoodie.datasource.write.operation",
    "",
    "The operation, which is the method that is called; another method is refused.",
    allowed=(
        "",
        "upsert",
        "insert",
        "bulk_insert",
        "delete",
        "insert_overwrite",
        "insert_overwrite_table",
        "delete_partition",
    ),
)
COMBINE_UPSERT: Final = ClientSetting(
    "hoodie.combine.before.upsert",
    True,
    "Whether only the newest of several rows with one key is upserted. Always true: a file holds a"
    " key once.",
    allowed=("true",),
)
COMBINE_INSERT: Final = ClientSetting(
    "hoodie.combine.before.insert",
    False,
    "Whether only the newest of several rows with one key is inserted.",
)
SORT_MODE: Final = ClientSetting(
    "hoodie.bulkinsert.sort.mode",
    UNSORTED,
    "Order of the rows of a bulk insert: `NONE`, as they come; `PARTITION_SORT`, by record key in"
    " each file; `GLOBAL_SORT`, and a partition's files have disjoint key ranges.",
    allowed=(UNSORTED, PARTITION_SORT, GLOBAL_SORT),
)
MAX_FILE_SIZE: Final = TableSetting(
    "hoodie.parquet.max.file.size",
    120 * _MB,
    "Size up to which base files are filled.",
    unit="bytes",
    minimum=1,
)
SMALL_FILE_LIMIT: Final = TableSetting(
    "hoodie.parquet.small.file.limit",
    100 * _MB,
    "Base files below this size receive inserts; with 0, inserts only open new file groups.",
    unit="bytes",
    minimum=0,
)
SMALL_FILE_CANDIDATES: Final = TableSetting(
    "hoodie.merge.small.file.group.candidates.limit",
    1,
    "In a merge-on-read table, number of small base files without logs of a partition, the smallest"
    " first, that inserts rewrite.",
    minimum=0,
)
RECORD_SIZE: Final = TableSetting(
    "hoodie.copyonwrite.record.size.estimate",
    1024,
    "Assumed size of a record until a commit shows it.",
    unit="bytes",
    minimum=1,
)
RECORD_SIZE_THRESHOLD: Final = TableSetting(
    "hoodie.record.size.estimation.threshold",
    1.0,
    "Fraction of the small-file limit that a commit must exceed to count for the record size.",
    minimum=0,
)
RECORD_SIZE_COMMITS: Final = TableSetting(
    "hoodie.record.size.estimator.max.commits",
    5,
    "Number of newest commits that the record size is estimated from.",
    minimum=1,
)
DIRECT: Final = "DIRECT"
TIMELINE_SERVER_BASED: Final = "TIMELINE_SERVER_BASED"
MARKERS_TYPE: Final = ClientSetting(
    "hoodie.write.markers.type",
    DIRECT,
    "Where markers are kept: `DIRECT`, as files that tasks create, or `TIMELINE_SERVER_BASED`, in"
    " a few files that the service writes. Hudi's default is the latter on Spark with an embedded"
    " server, else the former; here it is the former, which depends on no service.",
    allowed=(DIRECT, TIMELINE_SERVER_BASED),
)
METADATA_TABLE: Final = TableSetting(
    "hoodie.metadata.enable",
    False,
    "Whether a metadata table is maintained; Hudi's default is true. Always false: the service"
    " takes its place. A table that has one is written only if false is set: the write drops it.",
    allowed=("false",),
    instead="the timeline service lists files in its place; Hudi's readers list storage",
)
META_FIELDS: Final = TableSetting(
    "hoodie.populate.meta.fields",
    True,
    "Whether rows carry Hudi's meta columns. Always true.",
    allowed=("true",),
)
DROP_PARTITION_COLUMNS: Final = TableSetting(
    "hoodie.datasource.write.drop.partition.columns",
    False,
    "Whether partition columns are left out of the files. Always false.",
    allowed=("false",),
)

DRIVER_MAX_ROWS: Final = ClientSetting(
    "strandline.write.driver.max.rows",
    50_000,
    "Rows of a batch up to which the driver writes it itself, on its own cores, if the next two"
    " settings allow it; ten times as many where no keys are looked up, as in bulk inserts. With 0,"
    " Spark's executors write every batch.",
    minimum=0,
)
DRIVER_MAX_BYTES: Final = ClientSetting(
    "strandline.write.driver.max.bytes",
    64 * _MB,
    "Size in memory of a batch up to which the driver writes it itself. A task of Spark also"
    " returns at most 2 MiB of its rows, compressed.",
    unit="bytes",
    minimum=0,
)
DRIVER_MAX_REWRITE: Final = ClientSetting(
    "strandline.write.driver.max.rewrite.bytes",
    128 * _MB,
    "Total size of the stored files up to which the driver rewrites them itself; beyond, it hands"
    " the rows to the executors.",
    unit="bytes",
    minimum=0,
)

TIME_TYPE: Final = _time_text(
    timestamp_path.TYPE,
    "",
    "What a partition column of times holds, for the key generators TIMESTAMP and CUSTOM.",
    allowed=("", *timestamp_path.TYPES),
)
TIME_UNIT: Final = _time_text(
    timestamp_path.UNIT,
    "SECONDS",
    "Unit of the numbers with the type SCALAR.",
    allowed=timestamp_path.NANOSECONDS,
)
TIME_INPUT_FORMAT: Final = _time_text(
    timestamp_path.INPUT_FORMAT, "", "Patterns of the text with the types DATE_STRING and MIXED."
)
TIME_DELIMITER: Final = _time_text(
    timestamp_path.DELIMITER, ",", "Character between the patterns of text."
)
TIME_INPUT_ZONE: Final = _time_text(
    timestamp_path.INPUT_ZONE, "", "Zone of text without an offset; if empty, UTC."
)
TIME_OUTPUT_FORMAT: Final = _time_text(
    timestamp_path.OUTPUT_FORMAT, "", "Pattern of partition paths."
)
TIME_OUTPUT_ZONE: Final = _time_text(
    timestamp_path.OUTPUT_ZONE,
    "",
    "Zone of partition paths; if empty, UTC, or the offset of the text. Hudi takes the zone of its"
    " Java process.",
)
TIME_ZONE: Final = _time_text(
    timestamp_path.ZONE, "", "Zone of text and of partition paths, in place of those two settings."
)
TIME_SETTINGS: Final[tuple[Setting[str], ...]] = tuple(
    each for each in declared(globals()) if each.name.startswith(timestamp_path.PREFIX)
)
"""Settings of timestamp partitions, for the key generators TIMESTAMP and CUSTOM."""

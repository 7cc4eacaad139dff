"""Settings of partitions of times, for the key generators TIMESTAMP and CUSTOM."""

from __future__ import annotations

from typing import Final

from strandline.records import timestamp_path
from strandline.records.timestamp_path import PREFIX
from strandline.settings.setting import Setting, declared

TIME_TYPE: Final = Setting(
    PREFIX + timestamp_path.TYPE,
    "",
    "What a partition column of times holds, for the key generators TIMESTAMP and CUSTOM.",
    "table",
    allowed=("", *timestamp_path.TYPES),
)
TIME_UNIT: Final = Setting(
    PREFIX + timestamp_path.UNIT,
    "SECONDS",
    "Unit of the numbers with the type SCALAR.",
    "table",
    allowed=tuple(timestamp_path.NANOSECONDS),
)
TIME_INPUT_FORMAT: Final = Setting(
    PREFIX + timestamp_path.INPUT_FORMAT,
    "",
    "Patterns of the text with the types DATE_STRING and MIXED.",
    "table",
)
TIME_DELIMITER: Final = Setting(
    PREFIX + timestamp_path.DELIMITER,
    ",",
    "Character between the patterns of text.",
    "table",
)
TIME_INPUT_ZONE: Final = Setting(
    PREFIX + timestamp_path.INPUT_ZONE,
    "",
    "Zone of text without an offset; if empty, UTC.",
    "table",
)
TIME_OUTPUT_FORMAT: Final = Setting(
    PREFIX + timestamp_path.OUTPUT_FORMAT,
    "",
    "Pattern of partition paths.",
    "table",
)
TIME_OUTPUT_ZONE: Final = Setting(
    PREFIX + timestamp_path.OUTPUT_ZONE,
    "",
    "Zone of partition paths; if empty, UTC, or the offset of the text. Hudi takes the zone of its"
    " Java process.",
    "table",
)
TIME_ZONE: Final = Setting(
    PREFIX + timestamp_path.ZONE,
    "",
    "Zone of text and of partition paths, in place of those two settings.",
    "table",
)
TIME_SETTINGS: Final[tuple[Setting[str], ...]] = declared(globals())
"""All settings of this module."""

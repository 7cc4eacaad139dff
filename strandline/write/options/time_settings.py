"""Settings of partitions of times, for the key generators TIMESTAMP and CUSTOM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strandline.records.key import timestamp_path
from strandline.records.key.timestamp_path import PREFIX
from strandline.settings.setting import Setting, declared


def _text(name: str, default: str, doc: str, *, allowed: Iterable[str] = ()) -> Setting[str]:
    """Declare a setting that is stored in the table's properties."""
    return Setting(PREFIX + name, default, doc, "table", allowed=tuple(allowed))


TIME_TYPE: Final = _text(
    timestamp_path.TYPE,
    "",
    "What a partition column of times holds, for the key generators TIMESTAMP and CUSTOM.",
    allowed=("", *timestamp_path.TYPES),
)
TIME_UNIT: Final = _text(
    timestamp_path.UNIT,
    "SECONDS",
    "Unit of the numbers with the type SCALAR.",
    allowed=timestamp_path.NANOSECONDS,
)
TIME_INPUT_FORMAT: Final = _text(
    timestamp_path.INPUT_FORMAT, "", "Patterns of the text with the types DATE_STRING and MIXED."
)
TIME_DELIMITER: Final = _text(
    timestamp_path.DELIMITER, ",", "Character between the patterns of text."
)
TIME_INPUT_ZONE: Final = _text(
    timestamp_path.INPUT_ZONE, "", "Zone of text without an offset; if empty, UTC."
)
TIME_OUTPUT_FORMAT: Final = _text(timestamp_path.OUTPUT_FORMAT, "", "Pattern of partition paths.")
TIME_OUTPUT_ZONE: Final = _text(
    timestamp_path.OUTPUT_ZONE,
    "",
    "Zone of partition paths; if empty, UTC, or the offset of the text. Hudi takes the zone of its"
    " Java process.",
)
TIME_ZONE: Final = _text(
    timestamp_path.ZONE, "", "Zone of text and of partition paths, in place of those two settings."
)
TIME_SETTINGS: Final[tuple[Setting[str], ...]] = declared(globals())
"""All settings of this module."""

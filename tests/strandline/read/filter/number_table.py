"""A merge-on-read table of numbers, with NaN, null and signed zero in base file and log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from strandline import Table
from strandline.records.schema.avro_schema import arrow_to_avro, avro_with_meta_fields
from tests.kit.formats.log_files import avro_block
from tests.strandline.read.logs.log_table import LogTable, row
from timeline.storage.local import LocalStorage

NAN = float("nan")
NUMBERS = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("f", pa.float32()),
        ("n", pa.int32()),
        ("m", pa.int32()),
        ("flag", pa.bool_()),
        ("p", pa.string()),
    ]
)
FLOATS = [0.1, -0.0, 0.0, NAN, None, 1.0, float("inf"), 2.5, float("-inf"), NAN, None]


def numbers(base: Path) -> Table:
    """Return the table, whose only slice has a log."""
    rows = [
        row(str(at), 1)
        | {"x": x, "y": FLOATS[-at], "f": x, "n": at % 4 or None, "m": at % 3}
        | {"flag": [True, False, None][at % 3]}
        for at, x in enumerate(FLOATS)
    ]
    for each in rows:
        del each["v"], each["_hoodie_is_deleted"]
    table = LogTable(LocalStorage(str(base)), schema=NUMBERS)
    table.base(rows[:7], NUMBERS)
    late = [each | {"ts": 2} for each in rows[3:]]
    avro = avro_with_meta_fields(arrow_to_avro(NUMBERS, "t"))
    table.log(lambda time: avro_block(time, avro, late))
    return Table(base)

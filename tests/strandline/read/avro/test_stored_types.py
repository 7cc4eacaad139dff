"""Base files whose columns have other types than the table's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline import Table
from tests.strandline.read.logs.log_table import SCHEMA, LogTable, row
from timeline.errors import TableError
from timeline.storage.local import LocalStorage


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize(
    ("name", "kind", "value", "message"),
    [
        ("v", pa.list_(pa.int32()), [1], r"list<element: int32>|list<item: int32>"),
        ("v", pa.binary(), b"\xff", "binary"),
        ("ts", pa.string(), "zz", "string"),
        ("ts", pa.struct([("x", pa.int32())]), {"x": 1}, "struct<x: int32>"),
    ],
)
def test_a_type_that_does_not_fit_is_named_with_its_file(
    with_log, name, kind, value, message, tmp_path
):
    table = LogTable(LocalStorage(str(tmp_path)))
    at = SCHEMA.get_field_index(name)
    path = table.base([row("a", 1) | {name: value}], SCHEMA.set(at, pa.field(name, kind)))
    if with_log:
        table.rows_log(row("a", 2))
    scan = Table(tmp_path).scan(["id", name])
    needed = rf"{path} .*column '{name}' is ({message}) and doesn't fit {SCHEMA.field(at).type}: "
    with pytest.raises(TableError, match=needed):
        scan.to_arrow()

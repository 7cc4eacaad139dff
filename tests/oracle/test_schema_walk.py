"""Our writer and real Hudi take turns at one table whose columns change: rows equal a model's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from strandline.records.meta_fields import without_meta_fields
from strandline.table import Table
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.oracle.hudi import Hudi, Rows, rows_of
from tests.oracle.schema_answers import WRITE

pytestmark = pytest.mark.oracle

STEPS: Final = 10
KINDS: Final = (pa.int32(), pa.int64(), pa.float64())
NAMES: Final = ("n0", "n1", "n2")
OPTIONS: Final = {
    **WRITE,
    "hoodie.write.set.null.for.missing.columns": "true",
    "hoodie.datasource.write.operation": "upsert",
}
OURS: Final = {
    name: value for name, value in OPTIONS.items() if name != "hoodie.datasource.write.operation"
}
VECTORS: Final = "spark.sql.parquet.enableVectorizedReader"


def batch(choice: random.Random, number: int) -> pa.Table:
    """Return some rows, with some columns and fields of a struct, of some types, in some order."""
    columns, fields = (
        {name: choice.choice(KINDS) for name in choice.sample(NAMES, choice.randint(1, 3))}
        for _ in range(2)
    )
    schema = pa.schema(
        [
            ("id", pa.string()),
            *columns.items(),
            ("s", pa.struct(list(fields.items()))),
            ("part", pa.string()),
        ]
    )
    rows = [
        {
            "id": str(key),
            "part": f"p{key % 2}",
            **{name: None if choice.random() < 0.2 else key * 10 + number for name in columns},
            "s": dict.fromkeys(fields, key * 100 + number),
        }
        for key in choice.sample(range(8), choice.randint(1, 5))
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def expected(model: dict[str, dict[str, Any]], seen: set[str], inside: set[str]) -> Rows:
    """Return the model's rows with all columns that the table has got."""
    return [
        {
            "id": key,
            "part": model[key]["part"],
            **{name: model[key].get(name) for name in seen},
            "s": {name: model[key]["s"].get(name) for name in inside},
        }
        for key in sorted(model)
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_equal_a_model_whoever_writes(hudi: Hudi, tmp_path: Path, seed: int) -> None:
    # The vectorised reader refuses nested columns whose types have changed.
    hudi.spark.conf.set(VECTORS, "false")
    choice, path = random.Random(seed), tmp_path / "t"
    model: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    inside: set[str] = set()
    for number in range(STEPS):
        rows = batch(choice, number)
        if choice.random() < 0.5:
            with WriteClient(LocalEngine(tasks=1), path, OURS) as client:
                client.upsert(rows)
        else:
            hudi.write(rows, path, OPTIONS, partitions=1)
        model |= {row["id"]: row for row in rows.to_pylist()}
        seen |= set(rows.schema.names) - {"id", "part", "s"}
        inside |= {field.name for field in rows.schema.field("s").type}
        found = Table(path).to_arrow()
        own = found.select(without_meta_fields(found.schema).names)
        assert rows_of(own) == expected(model, seen, inside), number
    assert hudi.read(path) == expected(model, seen, inside)
    hudi.spark.conf.unset(VECTORS)

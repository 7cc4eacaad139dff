"""Hudi's own classes read our base files and make our Bloom filters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.records.file.base_file import read_footer
from strandline.records.file.bloom import BloomFilter
from strandline.records.merge import Merger, MergeRules
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.schema.avro_schema import arrow_to_avro
from tests.kit.formats.all_types import ALL_TYPES, FULL_ROW
from tests.kit.formats.base_files import write_base_file
from tests.oracle.hudi import Hudi
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.oracle

# What Avro's text of a record shows for FULL_ROW, as raw values of the columns' Avro types.
AS_AVRO = {
    "id": "k", "flag": True, "i": -5, "n": 2**40, "f": 1.5, "x": 2.25, "raw": "\x00\xff",
    "day": -25567, "at": -1, "local": -1, "at_ms": -1, "local_ms": -1, "small": [-1, -49, -57],
    "big": [-10, -74, 79, 9, 15, -3, -52, -20, 59, -74, 111, -79, 51, -104, -70, -21],
    "words": ["a", None, ""], "grid": [[1, None], None, []], "points": [{"x": 1}, {"x": None}],
    "counts": {"a": 1, "b": None}, "deep": {"s": {"t": 1_577_836_800_000_000}},
}  # fmt: skip


@pytest.fixture
def base_file(tmp_path: Path) -> Path:
    """A file of ours with every type, one row full and one of nulls."""
    rows = [FULL_ROW, dict.fromkeys(FULL_ROW) | {"id": "none"}]
    table = pa.Table.from_pylist(rows, schema=ALL_TYPES)
    keyed = table.append_column(RECORD_KEY, table["id"])
    keyed = keyed.append_column(PARTITION_PATH, pa.array(["", ""]))
    rules = MergeRules(ALL_TYPES, (), False, "20250101000000000")
    file = Merger(keyed, rules, "f.parquet", 0).finish()
    write_base_file(LocalStorage(str(tmp_path)), "f.parquet", file, arrow_to_avro(ALL_TYPES, "t"))
    return tmp_path / "f.parquet"


def reader_of(hudi: Hudi, path: Path) -> Any:
    """Return Hudi's reader of base files, as its writers use it."""
    jvm: Any = hudi.spark._jvm
    conf = jvm.org.apache.hadoop.conf.Configuration()
    storage = jvm.org.apache.hudi.storage.hadoop.HoodieHadoopStorage(str(path), conf)
    where = jvm.org.apache.hudi.storage.StoragePath(str(path))
    return jvm.org.apache.hudi.io.storage.hadoop.HoodieAvroParquetReader(storage, where)


def test_hudis_reader_gives_back_every_type(hudi: Hudi, base_file: Path) -> None:
    reader = reader_of(hudi, base_file)
    records = reader.getRecordIterator(reader.getSchema())
    found = []
    while records.hasNext():
        found.append(json.loads(records.next().getData().toString()))
    reader.close()
    assert [{name: row[name] for name in ALL_TYPES.names} for row in found] == [
        AS_AVRO,
        dict.fromkeys(AS_AVRO) | {"id": "none"},
    ]
    assert {row["_hoodie_file_name"] for row in found} == {"f.parquet"}


def test_hudi_finds_our_footer(hudi: Hudi, base_file: Path) -> None:
    reader = reader_of(hudi, base_file)
    assert list(reader.readMinMaxRecordKeys()) == ["k", "none"]
    bloom = reader.readBloomFilter()
    reader.close()
    assert bloom.mightContain("k")
    assert not bloom.mightContain("another")
    footer = read_footer(LocalStorage(str(base_file.parent)), base_file.name)
    assert bloom.serializeToString() == footer["org.apache.hudi.bloomfilter"]


@pytest.mark.parametrize(
    ("kind", "entries", "most"),
    [("SIMPLE", 400, 0), ("DYNAMIC_V0", 150, 100_000), ("DYNAMIC_V0", 100, 250)],
)
def test_filters_are_the_bytes_that_hudi_makes(
    hudi: Hudi, kind: str, entries: int, most: int
) -> None:
    keys = [f"{'ключ-' * (i % 9)}{i}" for i in range(500)]
    jvm: Any = hudi.spark._jvm
    theirs = jvm.org.apache.hudi.common.bloom.BloomFilterFactory.createBloomFilter(
        entries, 1e-9, most, kind
    )
    for key in keys:
        theirs.add(key)
    ours = BloomFilter(entries, 1e-9, most, dynamic=kind == "DYNAMIC_V0")
    ours.add_all(pa.array(keys))
    assert ours.to_base64() == theirs.serializeToString()

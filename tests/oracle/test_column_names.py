"""Columns whose names have letters and digits of other scripts, which real Hudi takes."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from strandline.records.schema.avro_schema import arrow_to_avro
from strandline.table_api.table import Table
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.oracle.answers.schema_answers import stored_schema
from tests.oracle.hudi import Hudi, rows_of
from timeline.errors import InputError

SCHEMA = pa.schema(
    [
        ("schlüssel", pa.string()),
        ("時", pa.int64()),
        ("größe", pa.decimal128(6, 2)),
        ("straße", pa.struct([("nº", pa.int32()), ("ключи", pa.list_(pa.string()))])),
        ("x٣", pa.string()),
    ]
)
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "schlüssel",
    "hoodie.table.ordering.fields": "時",
    "hoodie.embed.timeline.server": "false",
}


def rows(*keys: str, at: int) -> pa.Table:
    inner = {"nº": at, "ключи": ["a"]}
    made = [(key, at, Decimal(at), inner, f"{key}@{at}") for key in keys]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in made], SCHEMA)


def theirs(operation: str) -> dict[str, str]:
    return {
        **OPTIONS,
        "hoodie.datasource.write.precombine.field": "時",
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
        ),
    }


@pytest.mark.oracle
def test_names_of_other_scripts_are_written_as_by_hudi(hudi: Hudi, tmp_path: Path) -> None:
    by_hudi, by_us = tmp_path / "hudi", tmp_path / "us"
    hudi.write(rows("a", "b", at=1), by_hudi, theirs("insert"))
    with WriteClient(LocalEngine(), str(by_us), OPTIONS) as client:
        client.insert(rows("a", "b", at=1))
        assert stored_schema(by_us) == stored_schema(by_hudi)
        for path in (by_hudi, by_us):
            hudi.write(rows("b", at=2), path, theirs("upsert"))
        client.upsert(rows("a", at=3))
    expected = rows_of(pa.concat_tables([rows("a", at=3), rows("b", at=2)]), by="schlüssel")
    assert hudi.read(by_us, by="schlüssel") == expected
    assert rows_of(Table(str(by_us)).to_arrow(), by="schlüssel") == expected


@pytest.mark.oracle
def test_avro_for_java_decides_by_the_same_characters(hudi: Hudi) -> None:
    """All characters whose category is near that of letters and digits, and some of the others."""
    create = hudi.jvm.org.apache.avro.Schema.createRecord
    near = {"Lm", "Lt", "Nd", "Nl", "No", "Mn", "Pc"}
    points = (point for point in range(128, sys.maxunicode, 1009))
    some = {chr(p) for p in points if unicodedata.category(chr(p)) not in ("Cn", "Cs", "Co")}
    by_category: dict[str, list[str]] = {}
    for point in range(128, 0x20000):
        by_category.setdefault(unicodedata.category(chr(point)), []).append(chr(point))
    some |= {character for name in near for character in by_category[name][:40]}
    assert len(some) > 300
    for character in sorted(some):
        for name in (character, f"x{character}"):
            assert is_taken(name) == java_takes(create, name), (name, hex(ord(character)))


def is_taken(name: str) -> bool:
    try:
        arrow_to_avro(pa.schema([(name, pa.int32())]), "t")
    except InputError:
        return False
    return True


def java_takes(create: Callable[..., object], name: str) -> bool:
    try:
        create(name, None, None, False)
    except Py4JJavaError:
        return False
    return True

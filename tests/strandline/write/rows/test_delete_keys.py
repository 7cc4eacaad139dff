"""Deletes whose key columns have other types than the table's."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.kit.tables import reader
from tests.strandline.write.refusals import refused
from tests.strandline.write.tables import client
from timeline.errors import InputError

TIME = datetime(2024, 1, 1, 0, 0, 0, 5000)
LESS, MORE = Decimal("1.5"), Decimal("2.5")
NEAR = [
    pytest.param(pa.timestamp("us"), pa.timestamp("ms"), TIME, TIME.replace(day=2), id="time"),
    pytest.param(pa.decimal128(10, 2), pa.decimal128(9, 1), LESS, MORE, id="decimal"),
    pytest.param(pa.int64(), pa.int32(), 5, 6, id="narrower"),
    pytest.param(pa.int32(), pa.int64(), 5, 6, id="wider"),
    pytest.param(pa.string(), pa.dictionary(pa.int8(), pa.string()), "a", "b", id="dictionary"),
]
FAR = [
    pytest.param(pa.timestamp("ms"), pa.timestamp("us"), TIME, TIME, id="finer time"),
    pytest.param(pa.timestamp("us"), pa.date32(), TIME, date(2024, 1, 1), id="date for time"),
    pytest.param(pa.int64(), pa.float64(), 5, 5.0, id="float for int"),
    pytest.param(pa.decimal128(10, 1), pa.decimal128(10, 2), LESS, LESS, id="more decimals"),
]


def rows(kind, *values, **columns):
    count = len(values)
    return pa.table({"id": pa.array(values, kind), "region": ["eu"] * count, **columns})


def made(base, kind, *values):
    with client(base) as c:
        c.upsert(rows(kind, *values, ts=pa.array([1] * len(values)), name=["n"] * len(values)))
    return base


@pytest.mark.parametrize(("stored", "given", "gone", "kept"), NEAR)
def test_keys_are_those_of_values_as_stored(tmp_path, stored, given, gone, kept):
    base = made(tmp_path / "t", stored, gone, kept)
    with client(base) as c:
        assert c.delete(rows(given, gone)).rows_deleted == 1
    assert [each["id"] for each in reader.rows(base)] == [kept]


@pytest.mark.parametrize(("stored", "given", "there", "key"), FAR)
def test_a_type_that_upserts_refuse_is_refused(tmp_path, stored, given, there, key):
    base = made(tmp_path / "t", stored, there)
    refused(base, InputError, "'?id'?", rows(given, key), "delete")


def test_a_key_in_a_struct_needs_no_other_field(tmp_path):
    stored = pa.struct([("at", pa.decimal128(10, 2)), ("n", pa.int64())])
    given = pa.struct([("at", pa.decimal128(9, 1))])
    with client(tmp_path / "t", datasource__write__recordkey__field="id.at") as c:
        values = [{"at": LESS, "n": 1}, {"at": MORE, "n": 2}]
        c.upsert(rows(stored, *values, ts=[1, 1], name=["n", "n"]))
        assert c.delete(rows(given, {"at": LESS})).rows_deleted == 1

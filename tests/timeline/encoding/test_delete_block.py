"""Delete blocks: what another encoder wrote, each type of ordering value, and damage."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.formats.log_files import delete_content
from timeline.encoding.delete_block import (
    DeletedRecord,
    DeleteVersionError,
    OrderingValue,
    ValueType,
    deleted_records,
)

VALUES = [
    ("Boolean", True, ValueType.BOOLEAN, True),
    ("Int", -7, ValueType.INT, -7),
    ("Long", 2**40, ValueType.LONG, 2**40),
    ("Long", 0, ValueType.LONG, 0),
    ("Float", 1.5, ValueType.FLOAT, 1.5),
    ("Double", -2.25, ValueType.DOUBLE, -2.25),
    ("Bytes", b"\xff\0", ValueType.BYTES, b"\xff\0"),
    ("String", "día", ValueType.STRING, "día"),
    ("Date", 19_000, ValueType.DATE, 19_000),
    ("Decimal", (-15 * 10**14).to_bytes(9, "big", signed=True), ValueType.DECIMAL, Decimal("-1.5")),
    ("TimeMicros", 5, ValueType.TIME_MICROS, 5),
    ("TimestampMicros", -1, ValueType.TIMESTAMP_MICROS, -1),
]
ALL = delete_content([("k", (name, given)) for name, given, _, _ in VALUES])


def test_a_value_has_its_type(subtests):
    for name, encoded, kind, value in VALUES:
        with subtests.test(name=name, value=value):
            expected = DeletedRecord("k", (OrderingValue(kind, value),))
            assert list(deleted_records(delete_content([("k", (name, encoded))]))) == [expected]


def test_a_delete_may_have_no_ordering_value(subtests):
    for ordering in [None, ("Int", 0)]:
        with subtests.test(ordering=ordering):
            assert list(deleted_records(delete_content([("k", ordering)]))) == [
                DeletedRecord("k", ())
            ]


def test_several_ordering_columns():
    lists = [[("Long", 5), None, ("LocalDate", 3)], [("Int", 0), ("Int", 0)]]
    found = list(deleted_records(delete_content([("a", lists[0]), ("b", lists[1])])))
    zero = OrderingValue(ValueType.INT, 0)
    first = (OrderingValue(ValueType.LONG, 5), None, OrderingValue(ValueType.LOCAL_DATE, 3))
    assert found == [DeletedRecord("a", first), DeletedRecord("b", (zero, zero))]


def test_other_versions_are_refused(subtests):
    for version in [1, 2, 4]:
        with (
            subtests.test(version=version),
            pytest.raises(DeleteVersionError, match=f"version {version}; supported: 3"),
        ):
            list(deleted_records(delete_content([("k", None)], version)))


def test_a_block_that_is_cut_is_refused(subtests):
    for size in range(len(ALL)):
        with subtests.test(size=size), pytest.raises(ValueError):  # noqa: PT011 - of any message
            list(deleted_records(ALL[:size]))


def test_what_is_no_list_of_deletes():
    for key in ("", None):
        with pytest.raises(ValueError, match="a deleted record with the key"):
            list(deleted_records(delete_content([(key, None)])))
    longer = (len(ALL) - 7).to_bytes(4, "big")
    with pytest.raises(ValueError, match="1 bytes after the last record"):
        list(deleted_records(ALL[:4] + longer + ALL[8:] + b"x"))


@settings(max_examples=100)
@given(st.binary(max_size=80), st.integers(8, len(ALL)))
def test_damage_is_a_value_error(noise, at):
    data = ALL[:at] + noise + ALL[at + len(noise) :]
    with suppress(ValueError):
        list(deleted_records(data))


def test_bytes_behind_the_records_are_damage():
    """A length that is too small would hide records."""
    whole = delete_content([("k", None), ("l", None)])
    with pytest.raises(ValueError, match="bytes after the"):
        list(deleted_records(whole + b"\0"))

"""The comparison behind the proof finds every kind of difference."""

import pyarrow as pa
import pytest

from demo.feed import SCHEMA, arrow, batches
from demo.prove import canonical, difference, prove
from demo.replay import replay


@pytest.fixture(scope="module")
def wanted(rows):
    return canonical(arrow(replay(batches(rows, 3)).rows))


def changed(rows, name, row, value):
    """Return rows with another value in one place."""
    values = rows[name].to_pylist()
    values[row] = value
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, name, pa.array(values, rows.schema.field(name).type))


def test_order_and_representation_do_not_matter(wanted):
    backwards = wanted.take(list(reversed(range(len(wanted)))))
    fields = [
        field.with_type(
            {
                pa.string(): pa.large_string(),
                pa.timestamp("us", tz="UTC"): pa.timestamp("ns", tz="Etc/UTC"),
                pa.int32(): pa.int64(),
            }[field.type]
        )
        for field in SCHEMA
    ]
    found = backwards.cast(pa.schema(fields)).append_column(
        "_hoodie_record_key", pa.nulls(len(wanted))
    )
    assert difference(wanted, found) is None


def test_another_value_is_named_with_its_flight(wanted):
    row = wanted["dep_delay"].to_pylist().index(2)
    key = "2013 1 1 "
    told = difference(wanted, changed(wanted, "dep_delay", row, 3))
    assert told is not None
    assert told.startswith(f"flight {key}")
    assert told.endswith("dep_delay is 3, it should be 2")


def test_a_null_is_not_a_value_and_a_value_is_not_null(wanted):
    known = wanted["tailnum"].is_valid().to_pylist().index(True)
    unknown = wanted["tailnum"].is_null().to_pylist().index(True)
    for row, value, words in (
        (known, None, "tailnum is None"),
        (unknown, "", "it should be None"),
    ):
        assert words in (difference(wanted, changed(wanted, "tailnum", row, value)) or "")


def test_missing_extra_and_duplicate_rows_are_reported(wanted):
    key = "2013 1 1 9E 3286 JFK"
    some = wanted.slice(1)
    twice = pa.concat_tables([wanted, wanted.slice(0, 1)])
    count = len(wanted)
    told = f"rows, there should be {count}; 1 missing, the first: flight {key}"
    assert difference(wanted, some) == f"{count - 1} {told}"
    told = f"{count} rows, there should be {count - 1}; 1 extra, the first: flight {key}"
    assert difference(some, wanted) == told
    told = f"{count + 1} rows, there should be {count}; 1 twice, the first: flight {key}"
    assert difference(wanted, twice) == told


def test_a_missing_column_is_reported(wanted):
    assert difference(wanted, wanted.drop_columns(["ts"])) == "no column ts"


def test_a_reader_that_fails_proves_nothing(tmp_path, wanted):
    proofs = prove(tmp_path / "no-table", wanted)
    assert not any(proof.holds for proof in proofs)
    assert "TableNotFoundError" in (proofs[0].difference or "")

"""The checksum of a record's rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fsview.record.rows import SNAPSHOT, RecordSum

NAMES = st.sampled_from(["p/a", "p/ab", "p/b", "replaced", "p/\udcff", SNAPSHOT])
CHANGES = st.lists(st.dictionaries(NAMES, st.none() | st.binary(max_size=3)), max_size=8)


@given(changes=CHANGES)
def test_the_sum_of_a_record_follows_from_its_rows_alone(
    changes: list[dict[str, bytes | None]],
) -> None:
    rows: dict[str, bytes] = {}
    kept = RecordSum()
    for changed in changes:
        told = kept.after(changed)
        kept.change(changed)
        rows = {n: row for n, row in {**rows, **changed}.items() if row is not None}
        assert told == kept.value == RecordSum(rows).value
        assert set(kept) == rows.keys() - {SNAPSHOT}


@given(
    rows=st.dictionaries(NAMES, st.binary(max_size=3)),
    other=st.dictionaries(NAMES, st.binary(max_size=3)),
)
def test_other_rows_have_another(rows: dict[str, bytes], other: dict[str, bytes]) -> None:
    counted, its = ({n: r for n, r in d.items() if n != SNAPSHOT} for d in (rows, other))
    assert (RecordSum(rows).value == RecordSum(other).value) == (counted == its)


def test_the_sum_of_a_record_is_that_of_earlier_processes() -> None:
    assert RecordSum().value == "0" * 16
    assert RecordSum({"p/a": b"", "p/b": b"[]"}).value == "dfbc9a8dab686b76"

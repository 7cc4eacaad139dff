"""Sequence numbers are a prefix and a number, however many digits that has."""

from itertools import product

import pyarrow as pa

from strandline.records.merge import sequence_numbers


def test_numbers_follow_one_another(subtests):
    for prefix, (first, count) in product(
        ["20250101000000000_3_", ""],
        [
            (0, 0),
            (0, 1),
            (0, 1_234),
            (9, 1),
            (9, 2),
            (98, 905),
            (99_999, 3),
            (10**15 - 1, 2),
            (10**15 - 9, 99),
        ],
    ):
        with subtests.test(prefix=prefix, first=first, count=count):
            made = sequence_numbers(prefix, first, count)
            made.validate(full=True)
            assert made.type == pa.string()
            assert made.to_pylist() == [f"{prefix}{n}" for n in range(first, first + count)]


def test_many_numbers_are_in_several_arrays():
    made = sequence_numbers("1_0_", 5, 50_000)
    assert made.num_chunks > 1
    assert made.equals(pa.chunked_array([[f"1_0_{n}" for n in range(5, 50_005)]]))

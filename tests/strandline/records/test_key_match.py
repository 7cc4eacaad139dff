"""Stored keys are matched with newer ones exactly, whatever their hashes are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.records.key.text import BLOCK, key_hashes
from strandline.records.key_match import KeyMatch, KeyTable

_START, _FACTOR = 0xD6E8_FEB8_6659_FD93, 0x9E37_79B9_7F4A_7C15


def keys_with_hash(number: int, count: int) -> list[str]:
    """Return keys of eight ASCII characters with one hash, found by undoing its steps."""
    lows = np.arange(5000 + 300 * count, dtype=np.uint64)
    state = np.uint64(number << 32) | lows

    def times_inverse_of(factor: int) -> None:
        nonlocal state
        state = state * np.uint64(pow(factor, -1, 1 << 64))

    def unshift() -> None:
        nonlocal state
        state = state ^ (state >> np.uint64(32))

    times_inverse_of(_START)
    unshift()
    times_inverse_of(_FACTOR)
    unshift()
    times_inverse_of(_START)
    unshift()
    times_inverse_of(_FACTOR)
    state = state ^ np.uint64(8 * _START % (1 << 64))
    is_ascii = (state & np.uint64(0x8080_8080_8080_8080)) == 0
    keys = [word.tobytes().decode() for word in state[is_ascii][:count].astype("<u8")]
    assert len(keys) == count
    assert set(key_hashes(pa.array(keys)).to_pylist()) == {number}
    return keys


def pairs(stored: pa.ChunkedArray, newer: pa.ChunkedArray | pa.Array) -> list[tuple[int, int]]:
    found = KeyTable.of(newer).match(stored)
    return list(zip(found.rows.tolist(), found.touched.tolist(), strict=True))


def expected(stored: list[str], newer: list[str]) -> list[tuple[int, int]]:
    number = {key: at for at, key in enumerate(newer)}
    return [(row, number[key]) for row, key in enumerate(stored) if key in number]


def check(stored: list[str], newer: list[str]) -> None:
    assert not KeyTable.of(pa.array(newer, pa.string())).has_duplicates
    wanted = expected(stored, newer)
    half = len(stored) // 2
    for old in (pa.string(), pa.large_string()):
        chunks = pa.chunked_array([[], stored[:half], stored[half:]], old)
        for new in (pa.string(), pa.large_string()):
            assert pairs(chunks, pa.array(newer, new)) == wanted


texts = st.text(st.sampled_from("ab\0é"), max_size=12)


@given(st.lists(texts), st.lists(texts, unique=True))
def test_keys_match_as_in_a_dictionary(stored, newer):
    check(stored, newer)


@pytest.mark.parametrize("form", ["key-{:09}", "{}", "{}-with-the-same-end-of-all-keys"])
def test_many_keys_match_as_in_a_dictionary(form):
    """In several blocks, stored keys twice, and newer ones that aren't stored."""
    random = np.random.default_rng(5)
    stored = [form.format(number) for number in random.integers(0, 30_000, 2 * BLOCK + 77)]
    newer = [form.format(number) for number in random.permutation(40_000)[:9_000]]
    assert len(expected(stored, newer)) > 5_000
    check(stored, newer)


@pytest.mark.property
def test_keys_with_one_hash_are_told_apart(subtests):
    """Also if a part of their hash is one by which the table marks slots."""
    for number, known in product([0, 1, 2, 0x8000_0000, 0xFFFF_FFFF, 0x1234_5678], [1, 2, 50]):
        with subtests.test(number=number, known=known):
            same = keys_with_hash(number, 60)
            others = [str(at) for at in range(1000)]
            newer = [*others[::2], *same[:known]]
            check([*others, *same], newer)
            check([*same[known:], *others], newer)
            check([*others, *same], same[:known])


@pytest.mark.property
def test_keys_that_meet_in_all_layers_match():
    """Hashes that differ in their lowest bits only: slots are chosen by higher ones."""
    newer = [key for number in range(0, 4000, 4) for key in keys_with_hash(number, 1)]
    behind = [key for number in range(0, 4000, 2) for key in keys_with_hash(number, 2)]
    check([*behind, *newer], newer)


@pytest.mark.parametrize("newer", [["a", "b", "a"], ["a"] * 5, [*map(str, range(999)), "7"]])
def test_duplicates_are_noticed(newer):
    assert KeyTable.of(pa.array(newer)).has_duplicates
    assert KeyTable.of(pa.chunked_array([newer[:1], newer[1:]])).has_duplicates


def test_nothing_matches_nothing():
    none = pa.chunked_array([], pa.string())
    assert pairs(none, pa.array([], pa.string())) == []
    assert pairs(none, pa.array(["a"])) == []
    assert pairs(pa.chunked_array([["a"]]), none) == []
    assert len(KeyMatch.joined([]).rows) == 0


def test_pairs_of_consecutive_rows_count_from_the_first():
    match = KeyMatch(np.array([1, 4, 5, 9]), np.array([7, 3, 0, 2]))
    rows, touched = match.between(4, 5)
    assert rows.tolist() == [0, 1]
    assert touched.tolist() == [3, 0]

"""Hashes of keys depend on the keys' bytes alone, and spread evenly."""

from __future__ import annotations

import itertools
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from strandline.records.key.text import BLOCK, hashes_of, key_hashes

KEYS = ["", "k", "ключ", "k" * 7, "k" * 8, "k" * 9, "k" * 15, "k" * 16, "k" * 1000, "12345678", "0"]


def hashes(keys: list[str]) -> list[int]:
    return key_hashes(pa.array(keys, pa.string())).to_pylist()


def test_a_key_has_one_hash_whatever_the_other_keys_are():
    together = hashes(KEYS)
    assert together == [hashes([key])[0] for key in KEYS]
    assert key_hashes(pa.array(KEYS).slice(3, 5)).to_pylist() == together[3:8]
    assert hashes([]) == []


def test_keys_of_one_length_have_the_hashes_that_they_have_among_others(subtests):
    for length in [1, 7, 8, 9, 24]:
        with subtests.test(length=length):
            keys = [f"{number:0{length}}" for number in range(10)]
            assert hashes(keys) == hashes([*keys, "longer than any other"])[:10]
            assert key_hashes(pa.array(["", *keys]).slice(3, 4)).to_pylist() == hashes(keys)[2:6]


def test_many_keys_have_the_hashes_that_each_has_alone():
    keys = [str(number) for number in range(50_000)]
    few = slice(49_000, 49_100)
    assert hashes(keys)[few] == hashes(keys[few])


def test_blocks_of_keys_have_the_hashes_of_each_key(subtests):
    """Also if all keys of a block have one length, whether whole words or not."""
    for form in ["key-{:07}", "{:08}", "{}", "{:040}", ""]:
        with subtests.test(form=form):
            keys = pa.array([form.format(number) for number in range(2 * BLOCK + 5)], pa.string())
            for begin in (0, 3):
                found = key_hashes(keys.slice(begin)).to_pylist()
                for at in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK, len(found) - 1):
                    assert hashes([keys[begin + at].as_py()]) == [found[at]]


def test_keys_of_both_widths_have_one_hash():
    wide = pa.array(["-", *KEYS], pa.large_string()).slice(1)
    assert hashes_of(wide).tolist() == hashes(KEYS)


def test_hashes_have_32_bits():
    assert all(0 <= each < 1 << 32 for each in hashes(KEYS))


@pytest.mark.parametrize(
    "keys",
    [
        KEYS,
        ["a", "a\0", "a\0\0", "\0a"],
        ["a" * 8, "a" * 8 + "\0", "a" * 16],
        ["12345678abcdefgh", "abcdefgh12345678"],
    ],
)
def test_other_keys_have_other_hashes(keys):
    assert len(set(hashes(keys))) == len(keys)


@pytest.mark.property
def test_consecutive_keys_spread_evenly(subtests):
    for form, shares in product(["{}", "key-{:010}", "{:036}", "{0}:{0},{0}"], [2, 10, 64]):
        with subtests.test(form=form, shares=shares):
            found = hashes([form.format(number) for number in range(64_000)])
            counts = np.bincount(np.array(found) * shares >> 32, minlength=shares)
            even = 64_000 / shares
            assert abs(counts - even).max() < 5 * even**0.5
            # Of 64,000 numbers drawn from 2**32, some 0.5 are drawn twice.
            assert len(set(found)) >= 63_990


@pytest.mark.parametrize("form", ["{}{}", "user-{}{}", "123456{}{}", "12345678123456{}{}", "{}:{}"])
def test_swapped_parts_of_keys_change_the_sum_of_hashes(form):
    """Sums are compared to see whether rows have changed."""
    first, second = "abcdefghijklm", "0123456789"
    swaps = itertools.combinations(first, 2), itertools.permutations(second, 2)
    pairs = list(itertools.product(*swaps))

    def hashed(left: int, right: int) -> np.ndarray:
        return np.array(hashes([form.format(a[left], b[right]) for a, b in pairs]))

    before, after = hashed(0, 0) + hashed(1, 1), hashed(0, 1) + hashed(1, 0)
    assert len(pairs) == 7020
    # Of 7,020 sums drawn at random, none is likely to be equal.
    assert (before == after).sum() == 0

"""Bloom filters: the bytes that Java writes, and no false negatives."""

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.file.bloom import BloomFilter
from tests.kit.short_runs import examples
from tests.strandline.records.file.bloom_reader import BloomReader

GOLDEN = Path(__file__).parents[3] / "golden" / "base_files" / "bloom_filters.json.gz"
LETTERS = "abcXYZ019-_:,é中😀"


def long_keys(count):
    """Keys of 2 to 77 bytes; the Java class was given the same."""
    return [
        "".join(LETTERS[(i * (7 + j) + j * j) % len(LETTERS)] for j in range(1 + i % 37)) + str(i)
        for i in range(count)
    ]


def filled(keys, *args, pieces=1, **kwargs):
    bloom = BloomFilter(*args, **kwargs)
    for piece in np.array_split(np.array(keys, object), pieces):
        bloom.add_all(pa.array(piece, pa.string()))
    return bloom


def test_real_files_filters_come_out_byte_for_byte():
    """All different key sets of the golden base files, by Hudi 0.15.0 and 1.2.0; n = 50."""
    files = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    assert len(files) > 200
    for file in files:
        assert filled(file["keys"], 50).to_base64() == file["filter"], file["file"]


@pytest.mark.property
@pytest.mark.parametrize(
    ("kind", "entries", "rate", "most", "sha256"),
    [
        ("SIMPLE", 700, 1e-3, 0, "66316c349523056c44ecc79d"),
        ("SIMPLE", 100, 1e-9, 0, "e715bf50fd2d6850862f2fe2"),
        ("DYNAMIC_V0", 300, 1e-6, 100_000, "9ddd26120a4466e8778761e7"),
        ("DYNAMIC_V0", 200, 1e-9, 500, "429670d708492925f3768380"),
        ("DYNAMIC_V0", 60_000, 1e-9, 100_000, "e293ddce06d333a01221c6d5"),
        ("DYNAMIC_V0", 1000, 0.1, 1000, "33820f006047ef621227b339"),
        ("DYNAMIC_V0", 300, 1e-9, 100, "70e89aa91a9c2de20ed9ec68"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pieces", [1, 3])
def test_growing_and_full_filters_come_out_as_from_java(kind, entries, rate, most, sha256, pieces):
    """Checksums of what ``BloomFilterFactory`` of Hudi 1.2.0 makes of the same 700 keys."""
    keys = long_keys(700)
    bloom = filled(keys, entries, rate, most, dynamic=kind == "DYNAMIC_V0", pieces=pieces)
    text = bloom.to_base64()
    assert hashlib.sha256(text.encode()).hexdigest().startswith(sha256)
    assert bloom.type_code == kind
    reader = BloomReader(text, kind)
    assert all(key in reader for key in keys)


KEYS = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=40)


@settings(max_examples=examples(100))
@given(KEYS, st.booleans(), st.integers(1, 20), st.integers(1, 60))
def test_what_was_added_is_always_found(keys, dynamic, entries, most):
    bloom = filled(keys, entries, 1e-6, most, dynamic=dynamic, pieces=2)
    reader = BloomReader(bloom.to_base64(), bloom.type_code)
    assert all(key in reader for key in keys)


@pytest.mark.property
def test_hardly_anything_else_is_found():
    bloom = filled([f"key-{i}" for i in range(2000)], 2000, 1e-3)
    reader = BloomReader(bloom.to_base64(), bloom.type_code)
    assert sum(f"other-{i}" in reader for i in range(5_000)) < 20


def test_slices_and_large_strings_are_the_same_keys():
    keys = long_keys(50)
    whole = filled(keys, 50).to_base64()
    bloom = BloomFilter(50)
    bloom.add_all(pa.array(["x", *keys, "y"]).slice(1, 50))
    assert bloom.to_base64() == whole
    large = BloomFilter(50)
    large.add_all(pa.array(keys, pa.large_string()))
    assert large.to_base64() == whole


def test_null_and_empty_keys_are_refused():
    for keys, message in ((["a", None], "1 record keys are null"), (["a", ""], "is empty")):
        with pytest.raises(ValueError, match=message):
            BloomFilter(10).add_all(pa.array(keys))


def test_no_keys_are_no_trouble():
    bloom = BloomFilter(10)
    bloom.add_all(pa.array([], pa.string()))
    assert "a" not in BloomReader(bloom.to_base64(), bloom.type_code)


@settings(max_examples=examples(200))
@given(
    st.integers(1, 40),
    st.integers(0, 60),
    st.integers(0, 150),
    st.integers(0, 20),
)
def test_a_stored_filter_goes_on_as_if_all_keys_had_been_added(entries, most, stored, more):
    """Also one that is full, or has an exactly full row."""
    keys = [f"key {number}" for number in range(stored + more)]
    before = filled(keys[:stored], entries, 1e-3, most).to_base64()
    bloom = BloomFilter(entries, 1e-3, most)
    assert bloom.restore(before.encode(), stored)
    bloom.add_all(pa.array(keys[stored:], pa.string()))
    assert bloom.to_base64() == filled(keys, entries, 1e-3, most).to_base64()


OTHERS = {
    "fewer keys": (lambda text: text, 4),
    "more keys": (lambda text: text, 15),
    "nothing": (lambda text: b"", 0),
    "no base64": (lambda text: b"no base64", 5),
    "cut": (lambda text: text[:-4], 5),
    "twice": (lambda text: text + text, 5),
    "another size": (lambda text: filled(list("abcde"), 11).to_base64().encode(), 5),
    "another rate": (lambda text: filled(list("abcde"), 10, 1e-3).to_base64().encode(), 5),
    "another kind": (lambda text: filled(list("abcde"), 10, dynamic=False).to_base64().encode(), 5),
}


def test_a_stored_filter_of_another_kind_or_number_of_keys_is_not_taken(subtests):
    text = filled(list("abcde"), 10).to_base64().encode()
    for what, (change, keys) in OTHERS.items():
        with subtests.test(what=what):
            bloom = BloomFilter(10)
            assert not bloom.restore(change(text), keys)
            bloom.add_all(pa.array(list("abcde")))
            assert bloom.to_base64().encode() == text


def test_a_simple_filter_is_not_taken():
    """It doesn't tell how many keys it has."""
    text = filled(list("abcde"), 10, dynamic=False).to_base64().encode()
    assert not BloomFilter(10, dynamic=False).restore(text, 5)


def test_keys_of_equal_and_of_different_length_are_hashed_alike():
    """Slices of columns, too: their memory begins before the first key."""
    keys = pa.array([f"k{number:03}" for number in range(50)])
    mixed = pa.concat_arrays([keys, pa.array(["longer than the others"])])
    for column in (keys.slice(7, 30), mixed.slice(7)):
        bloom, by_one = BloomFilter(60), BloomFilter(60)
        bloom.add_all(column)
        for key in column.to_pylist():
            by_one.add_all(pa.array([key]))
        assert bloom.to_base64() == by_one.to_base64()


@pytest.mark.parametrize("rate", [1e-9, 0.1])
def test_few_keys_are_hashed_as_many(rate):
    """Of all lengths, with bytes that Java takes for negative; few keys have a way of their own."""
    keys = long_keys(80)
    for few in (keys[:1], keys[1:4], keys[4:16], keys):
        by_one = BloomFilter(100, rate)
        for key in few:
            by_one.add_all(pa.array([key]))
        assert filled(few, 100, rate).to_base64() == by_one.to_base64()


def test_one_key_that_is_none_is_refused():
    for key in ("", None):
        with pytest.raises(ValueError, match="record key"):
            BloomFilter(1).add_all(pa.array([key], pa.string()))

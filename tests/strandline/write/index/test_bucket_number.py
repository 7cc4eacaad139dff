"""Buckets of keys are real Hudi's; file ids name them."""

import json

import numpy as np
import pyarrow as pa

from strandline.write.index.bucket import (
    bucket_numbers,
    bucket_of,
    key_values,
    new_bucket_file_id,
)
from tests.kit.answers.bucket_cases import COUNTS, FIELDS, KEYS, answers, cases


def test_keys_lie_in_the_buckets_that_hudi_chooses(subtests):
    for fields in FIELDS:
        with subtests.test(fields=fields):
            recorded = answers()
            keys = [key for key, asked in cases() if asked == fields]
            found = [bucket_numbers(pa.array(keys), fields, count).tolist() for count in COUNTS]
            expected = [recorded[json.dumps([key, fields])] for key in keys]
            assert [list(row) for row in zip(*found, strict=True)] == expected


def test_a_key_has_one_bucket_whatever_stands_beside_it():
    """Keys of one column, of several, and beyond ASCII take different paths."""
    for fields in FIELDS:
        together = bucket_numbers(pa.array(KEYS), fields, 1000)
        alone = [bucket_numbers(pa.array([key]), fields, 1000)[0] for key in KEYS]
        assert together.tolist() == alone


def test_chunks_and_slices_are_the_same_keys():
    whole = bucket_numbers(pa.array(KEYS), ("a",), 97).tolist()
    chunked = pa.chunked_array([KEYS[:5], [], KEYS[5:]], pa.string())
    assert bucket_numbers(chunked, ("a",), 97).tolist() == whole
    sliced = pa.array(["x", *KEYS, "y"]).slice(1, len(KEYS))
    assert bucket_numbers(sliced, ("a",), 97).tolist() == whole
    assert bucket_numbers(pa.array([], pa.string()), ("a",), 97).dtype == np.int32
    assert bucket_numbers(pa.chunked_array([], pa.string()), ("a",), 97).tolist() == []


def test_a_key_in_which_hudi_loops_forever_is_parsed():
    assert key_values("a:x,b:13:50:42", ["a"]) == ["x"]
    assert key_values("a:x,b:13:50:42", ["b"]) == ["13:50:42"]


def test_a_file_id_names_its_bucket(subtests):
    for file_id, bucket in [
        ("00000007-1526-4c67-a742-00249055b3e8-0", 7),
        ("00000012-0000-0000-0000-000000000000-0", 12),
        ("99999999-1526-4c67-a742-00249055b3e8-0", 99_999_999),
        ("6af55372-3c6b-4c67-a742-00249055b3e8-0", None),
        ("0000000-1526-4c67-a742-00249055b3e8-0", None),
        ("000000071526-4c67-a742-00249055b3e8-0", None),
        ("0000000\N{ARABIC-INDIC DIGIT SEVEN}-1526-4c67-a742-00249055b3e8-0", None),
        ("00000007", None),
        ("", None),
    ]:
        with subtests.test(file_id=file_id):
            assert bucket_of(file_id) == bucket


def test_new_file_ids_name_their_bucket_and_differ():
    first, second = new_bucket_file_id(42), new_bucket_file_id(42)
    assert first != second
    for each in (first, second):
        assert bucket_of(each) == 42
        assert len(each) == len("00000042-1526-4c67-a742-00249055b3e8-0")
        assert each.endswith("-0")

"""Look-ups in stored Bloom filters agree with a reader that goes key by key, false hits too."""

import base64
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.file.bloom import BloomFilter
from strandline.records.file.key_search import BLOOM_KEY, BLOOM_TYPE_KEY, KeyHashes, StoredBloom
from tests.kit.short_runs import examples
from tests.strandline.records.file.bloom_reader import BloomReader

GOLDEN = Path(__file__).parents[3] / "golden" / "base_files" / "bloom_filters.json.gz"
KEYS = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=40)


def possible(filters, keys):
    """Return the keys that each filter may hold."""
    hashes = KeyHashes(pa.array(keys, pa.string()))
    at = np.arange(len(keys))
    return [{keys[n] for n in each.possible(hashes, at)} for each in filters]


def test_real_files_filters_find_all_their_keys_and_no_others():
    files = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    filters = [StoredBloom.read(file["filter"].encode(), "DYNAMIC_V0") for file in files]
    keys = sorted({key for file in files for key in file["keys"]})
    for file, found in zip(files, possible(filters, keys), strict=True):
        assert found == set(file["keys"])


@settings(max_examples=examples(150))
@given(
    KEYS, KEYS, st.booleans(), st.integers(1, 9), st.integers(1, 30), st.sampled_from([0.4, 0.01])
)
def test_answers_are_those_of_the_format_even_when_they_are_wrong(
    stored, others, dynamic, entries, most, rate
):
    bloom = BloomFilter(entries, rate, most, dynamic=dynamic)
    bloom.add_all(pa.array(stored))
    text = bloom.to_base64()
    reader = BloomReader(text, bloom.type_code)
    keys = sorted({*stored, *others})
    (found,) = possible([StoredBloom.read(text.encode(), bloom.type_code)], keys)
    assert found == {key for key in keys if key in reader}


def test_one_computation_of_hashes_serves_filters_of_different_sizes():
    keys = [f"key-{n}" for n in range(3000)]
    filters = []
    for begin in range(0, 3000, 1000):
        bloom = BloomFilter(1000 + begin, 1e-3 if begin else 1e-9)
        bloom.add_all(pa.array(keys[begin : begin + 1000]))
        filters.append(StoredBloom.read(bloom.to_base64().encode(), bloom.type_code))
    for number, found in enumerate(possible(filters, keys)):
        held = set(keys[number * 1000 : number * 1000 + 1000])
        assert held <= found
        assert len(found - held) < 15


def test_only_the_given_positions_are_asked_about():
    bloom = BloomFilter(10)
    bloom.add_all(pa.array(["a", "b", "c"]))
    stored = StoredBloom.read(bloom.to_base64().encode(), bloom.type_code)
    hashes = KeyHashes(pa.array(["a", "b", "x", "c"]))
    assert stored.possible(hashes, np.array([1, 2])).tolist() == [1]
    assert stored.possible(hashes, np.array([], np.int64)).tolist() == []


def image(rows=1, dynamic=True):
    bloom = BloomFilter(2, 0.1, 100, dynamic=dynamic)
    bloom.add_all(pa.array([f"k{n}" for n in range(2 * rows)]))
    return base64.b64decode(bloom.to_base64())


DAMAGED = {
    "cut": image()[:-1],
    "longer": image() + b"\0",
    "empty": b"",
    "only a header": image()[:13],
    "other version": b"\0" * 4 + image()[4:],
    "other hash": image()[:8] + b"\2" + image()[9:],
    "no bits": image()[:9] + b"\0" * 4 + image()[13:],
    "no hashes": image()[:4] + b"\0" * 4 + image()[8:],
    "no rows": image()[:21] + b"\0" * 4 + image()[25:],
    "negative rows": image()[:21] + b"\xff" * 4 + image()[25:],
    "a row of another size": image()[:37] + b"\x7f" + image()[38:],
    "a simple one": image(dynamic=False),
}


def test_a_damaged_filter_is_no_filter(subtests):
    for what in DAMAGED:
        with subtests.test(what=what):
            text = base64.b64encode(DAMAGED[what])
            with pytest.raises(ValueError):  # noqa: PT011 - any reason
                StoredBloom.read(text, "DYNAMIC_V0")
            assert StoredBloom.of_footer({BLOOM_KEY: text, BLOOM_TYPE_KEY: b"DYNAMIC_V0"}) is None


def test_a_footer_need_not_have_a_filter_nor_name_its_type():
    text = base64.b64encode(image(dynamic=False))
    assert StoredBloom.of_footer({}) is None
    assert StoredBloom.of_footer({BLOOM_KEY: b"no base64!"}) is None
    simple = StoredBloom.of_footer({BLOOM_KEY: text})
    assert simple is not None
    assert len(simple.rows) == 1

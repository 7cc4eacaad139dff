"""A write's keys in base files: found if stored, and files that rule them out are not read."""

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.file.base_file import MAX_KEY, MIN_KEY, key_range
from strandline.records.file.base_file_writer import BLOOM_KEY, BLOOM_TYPE_KEY
from strandline.records.file.bloom import BloomFilter
from strandline.records.file.key_search import KeySearch
from tests.kit.short_runs import examples
from timeline.errors import TableError
from timeline.storage.local import LocalStorage

NAMES = itertools.count()
KEYS = st.lists(
    st.text(st.sampled_from("ab\uffff\U0001f600é"), min_size=1, max_size=3), min_size=1, max_size=20
)


def write(base, keys, footer=None, column=None):
    """Write a file of keys with a footer as Hudi's; return its name."""
    bloom = BloomFilter(max(len(keys), 1), 0.01)
    bloom.add_all(pa.array(keys, pa.string()))
    least, greatest = key_range(pa.chunked_array([keys]))
    pairs = {
        MIN_KEY: least,
        MAX_KEY: greatest,
        BLOOM_KEY: bloom.to_base64(),
        BLOOM_TYPE_KEY: bloom.type_code,
        **(footer or {}),
    }
    columns = {"_hoodie_record_key": keys if column is None else column, "n": range(len(keys))}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    kept = {key: value for key, value in pairs.items() if value is not None}
    name = f"f{next(NAMES)}.parquet"
    pq.write_table(table.replace_schema_metadata(kept), base / name)
    return name


def search(base, wanted, name, columns=(), **options):
    """Return (key, row of the file) for all that is found."""
    found = KeySearch(pa.array(wanted), **options).found(LocalStorage(str(base)), name, columns)
    if found is None:
        return []
    keys = [wanted[at] for at in found.at]
    assert keys == found.stored.column("_hoodie_record_key").to_pylist()
    return sorted(
        zip(keys, *(found.stored.column(name).to_pylist() for name in columns), strict=True)
    )


@settings(max_examples=examples(80))
@given(stored=KEYS, wanted=KEYS, by_range=st.booleans(), by_filter=st.booleans())
def test_what_is_stored_is_found(tmp_path_factory, stored, wanted, by_range, by_filter):
    """Keys come twice in a file if it was inserted into; in any order, with all of Unicode."""
    base, wanted = tmp_path_factory.mktemp("t"), sorted(set(wanted), reverse=True)
    name = write(base, stored)
    found = search(base, wanted, name, ("n",), by_range=by_range, by_filter=by_filter)
    assert found == sorted((key, n) for n, key in enumerate(stored) if key in wanted)


@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        (["a", "z"], {}),
        (["m5", "m6"], {"by_range": False}),
        (["a", "z"], {"by_filter": False}),
        (["a", "m5", "z"], {}),
    ],
)
def test_a_file_that_rules_all_keys_out_is_read_no_further(tmp_path, wanted, options):
    """Its record keys would be refused."""
    name = write(tmp_path, ["k", "m", "p"], column=[1, 2, 3])
    assert search(tmp_path, wanted, name, **options) == []
    with pytest.raises(TableError, match="record keys of type int64"):
        search(tmp_path, [*wanted, "m"], name, **options)


def test_switched_off_tests_rule_nothing_out(tmp_path):
    name = write(tmp_path, ["k", "m", "p"], column=[1, 2, 3])
    for wanted, options in ((["a"], {"by_filter": False}), (["l"], {"by_range": True})):
        assert search(tmp_path, wanted, name, **options) == []
        with pytest.raises(TableError):
            search(tmp_path, wanted, name, by_range=False, by_filter=False)


@pytest.mark.parametrize("footer", [{MIN_KEY: None}, {MIN_KEY: "z", MAX_KEY: "a"}])
@pytest.mark.parametrize("bloom", [{BLOOM_KEY: None}, {BLOOM_KEY: "no filter"}])
def test_a_footer_that_cannot_be_right_rules_nothing_out(tmp_path, footer, bloom):
    name = write(tmp_path, ["k", "m"], footer=footer | bloom)
    assert search(tmp_path, ["m", "z"], name) == [("m",)]


def test_the_order_of_keys_is_javas(tmp_path):
    """A surrogate pair sorts below U+FFFF in UTF-16, and above it in UTF-8."""
    name = write(tmp_path, ["\U0001f600", "\uffff"])
    assert search(tmp_path, ["\ufffe"], name, by_filter=False) == []
    for key in ("\U0001f600", "\uffff"):
        assert search(tmp_path, [key, "a"], name) == [(key,)]


def test_chunks_and_large_strings_are_keys_too(tmp_path):
    name = write(tmp_path, ["k", "m"], column=pa.array(["k", "m"], pa.large_string()))
    keys = pa.chunked_array([["a"], ["m"]], pa.large_string())
    found = KeySearch(keys).found(LocalStorage(str(tmp_path)), name)
    assert found.at.tolist() == [1]
    assert KeySearch(pa.array([], pa.string())).found(LocalStorage(str(tmp_path)), name) is None

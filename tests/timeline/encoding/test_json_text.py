"""JSON by the standard library equals that by orjson."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.encoding.json_text import plain_dumps, plain_loads

# orjson writes 64-bit integers, and strings that UTF-8 can encode.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(TEXTS, inner),
)


@given(VALUES)
def test_the_text_is_the_same(value):
    assert plain_dumps(value) == orjson.dumps(value)


@given(st.recursive(VALUES | st.floats(allow_nan=False, allow_infinity=False), st.lists))
def test_the_value_is_the_same(value):
    text = orjson.dumps(value)
    assert plain_loads(text) == orjson.loads(text)


def test_what_is_no_json_is_refused_alike(subtests):
    for data in [
        b"",
        b"{",
        b"NaN",
        b"[-Infinity]",
        b"\xff",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"{}x",
        b"1e999",
    ]:
        with subtests.test(data=data):
            for loads in (plain_loads, orjson.loads):
                with pytest.raises(ValueError, match=r"."):
                    loads(data)

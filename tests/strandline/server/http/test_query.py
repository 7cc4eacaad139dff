"""``parse_query``: parameters of a query string, as Java's server and Python's forms read them."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.server.http.request import REMEMBERED_BYTES, parse_query

PIECES = st.sampled_from(
    [
        "markerdirpath",
        "markername",
        "basepath",
        "pretty",
        "x",
        "=",
        "&",
        "+",
        "%",
        "%2F",
        "%3D",
        "%C3%A9",
        "%FF",
        "%00",
        "1",
        ";",
        "/t/.hoodie/.temp/1",
        "a_b.parquet.marker.CREATE",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_parameters_are_read_as_forms_are(query: str) -> None:
    pairs = parse_qsl(query, keep_blank_values=True, errors="replace")
    assert parse_query(query.encode("ascii")) == dict(reversed(pairs))


def test_a_query_is_read(subtests: pytest.Subtests) -> None:
    for query, meant in [
        (b"", {}),
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"a=1&a=2", {"a": "1"}),
        (b"a=&b", {"a": "", "b": ""}),
        (b"a=x+y%20z%2B", {"a": "x y z+"}),
        (b"a=" + quote("é/'").encode(), {"a": "é/'"}),
        (b"a==b=", {"a": "=b="}),
        (b"a=%zz", {"a": "%zz"}),
        (b"%61=1&a=2", {"a": "1"}),
        (b"a=%ff%C3&+b=1", {"a": "\ufffd\ufffd", " b": "1"}),
    ]:
        with subtests.test(query=query):
            assert parse_query(query) == meant


def test_a_value_is_read_alike_whether_it_is_remembered_or_not(subtests: pytest.Subtests) -> None:
    for length in [1, REMEMBERED_BYTES, REMEMBERED_BYTES + 1, 2000]:
        with subtests.test(length=length):
            value = "é/" + "x" * length
            query = f"partition={quote(value)}".encode()
            assert parse_query(query) == parse_query(query) == {"partition": value}

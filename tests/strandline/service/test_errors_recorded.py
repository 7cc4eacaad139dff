"""Odd requests as Hudi's own server answered them, and where ours answers better on purpose."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest

from strandline.service.process.parts import Parts
from tests.conformance.view_suite import canonical
from tests.kit import golden
from tests.kit.live_service import AppClient, GoldenTables, parts_of
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

TABLES = GoldenTables()
BASE = TABLES.base_path("cow_basic_v9", 7)

BETTER: Mapping[int, tuple[int, str]] = {
    **dict.fromkeys((13, 14, 15, 16, 17, 18, 19, 62), (400, "'basepath'")),
    22: (400, "'fileid'"),
    27: (400, "'maxinstant'"),
    28: (400, "'includependingcompaction'"),
    31: (400, "'maxinstant'"),
    32: (400, "'currentinstant'"),
    33: (400, "'instants'"),
    34: (200, "[]"),
    **dict.fromkeys((44, 45, 46, 47), (404, "no table at")),
    51: (400, "is relative"),
    52: (403, "outside the roots"),
    **dict.fromkeys((54, 57), (200, '"partition":"2024-01-01"')),
    58: (400, "'partitions'"),
    59: (400, "partitions="),
    68: (400, "'fileid'"),
    **dict.fromkeys((71, 72), (200, "[]")),
    73: (200, "0"),
}
"""Number of the request → status and a part of the answer, where Java's is a fault of its own.

It answers 500 to what the caller did wrong; it says that it refreshed a table that isn't there
(46); it refuses who says no timeline hash, where ours tells the newest state (54, 57); it has no
markers, instant states and partitioner unless told to (71, 72, 73).
"""


def open_storage(base_path: str, options: Mapping[str, Any] | None) -> Storage:
    return TABLES(base_path, options) if base_path == BASE else LocalStorage(base_path)


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    parts = parts_of(TABLES.root, opener=open_storage)
    yield parts
    parts.close()


RECORDED = golden.server_recording("errors", base=BASE).exchanges


@pytest.mark.parametrize("exchange", RECORDED, ids=lambda e: f"{e.n} {e.phase}")
def test_as_recorded_or_better(parts: Parts, exchange: golden.Exchange) -> None:
    asked = exchange.raw["request_headers"]
    response = AppClient(parts).request(exchange.method, exchange.path, exchange.params, asked)
    headers = {name.lower(): value for name, value in response.headers.items()}
    zipped = headers.get("content-encoding") == "gzip"
    body = gzip.decompress(response.data) if zipped else response.data
    check_answer(exchange, response.status_code, headers, body)


def check_answer(
    exchange: golden.Exchange, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    """Compare an answer with the recorded one, or with what is better."""
    if exchange.n in BETTER:
        better, part = BETTER[exchange.n]
        assert (status, part in body.decode()) == (better, True), body
        return
    assert status == exchange.status
    assert headers["content-type"] == exchange.content_type
    encoding = exchange.raw["headers"].get("content-encoding")
    assert headers.get("content-encoding") == encoding
    if exchange.body is None:
        assert body.decode() == exchange.body_text
        return
    said = orjson.loads(body)
    if exchange.status >= 400 and "title" in said:
        assert said.pop("code", "view_behind") == "view_behind"
        said.pop("hint", None)
    assert canonical(said) == canonical(exchange.body)
    if "pretty" in exchange.params:
        assert len(body) == int(exchange.raw["headers"]["content-length"])

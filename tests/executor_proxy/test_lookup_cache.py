"""``LookupCache``: what it keeps within its bytes, and which answers may be kept at all."""

from __future__ import annotations

import tracemalloc
from functools import partial

import pytest

from executor_proxy.worker_state import LookupCache, memory_of
from fsview.model.file_group import BaseFile, FileSlice
from fsview.model.file_name import parse_log_file
from fsview.wire.column_form import write_columns
from fsview.wire.json_form import PathForms
from fsview.wire.routes import BY_NAME, FIXED_BY_TIMELINE, ROUTES

SIZE = 1000


def test_an_answer_is_found_again_even_if_it_is_none():
    cache = LookupCache()
    assert cache.get("k") is None
    cache.put("k", None, SIZE)
    assert cache.get("k") == (None,)


def test_the_least_recently_used_goes_first():
    cache = LookupCache(3 * SIZE)
    for key in "abc":
        cache.put(key, key, SIZE)
    cache.get("a")
    cache.put("d", "d", SIZE)
    assert [cache.get(key) for key in "abcd"] == [("a",), None, ("c",), ("d",)]
    assert cache.size_bytes == 3 * SIZE


def test_an_answer_put_twice_counts_once():
    cache = LookupCache(3 * SIZE)
    for _ in range(5):
        cache.put("a", "a", SIZE)
    assert cache.size_bytes == SIZE


def test_what_is_larger_than_all_isnt_kept_and_drops_nothing():
    cache = LookupCache(2 * SIZE)
    cache.put("a", "a", SIZE)
    cache.put("b", "b", 3 * SIZE)
    assert cache.get("a") == ("a",)
    assert cache.get("b") is None


def test_small_answers_count_too():
    cache = LookupCache(10_000)
    for key in range(1000):
        cache.put(key, (), 2)
    assert cache.size_bytes <= 10_000
    assert cache.get(0) is None


def test_only_routes_that_a_hash_fixes_are_on_the_list():
    assert set(BY_NAME) >= FIXED_BY_TIMELINE
    for route in ROUTES:
        if any(word in route.path for word in ("pending", "logcompaction", "timeline", "/all/")):
            assert route.name not in FIXED_BY_TIMELINE, route.path
        if route.method != "GET" or "inflight" in route.name or "in_range" in route.name:
            assert route.name not in FIXED_BY_TIMELINE, route.path


def memory_of_slices(logs: int, file_id: str) -> tuple[int, int]:
    """Return the memory of 500 decoded slices, and the estimate."""
    instant = "20240101000000000"
    slices = [
        FileSlice(
            "p",
            f"{n}{file_id}",
            instant,
            BaseFile("p", f"{n}{file_id}_1-0-1_{instant}.parquet", 1, 1, f"{n}{file_id}", instant),
            tuple(
                parse_log_file("p", f".{n}{file_id}_{instant}.log.{at}_1-0-1", 1000 + at, 10**12)
                for at in range(1, logs + 1)
            ),
        )
        for n in range(500)
    ]
    body = write_columns("latest_file_slices", slices)
    decode = partial(BY_NAME["latest_file_slices"].decode, body, PathForms.of("/t"), partition="p")
    decode()  # what is made once isn't the answer's
    tracemalloc.start()
    found = decode()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(found) == 500
    return used, memory_of(body, found)


@pytest.mark.property
@pytest.mark.parametrize("logs", [0, 1, 5, 20])
@pytest.mark.parametrize("file_id", ["g", "-0d4e7b4e-6b3c-4f6e-9d2e-1f1f1f1f1f1f-0"])
def test_the_estimate_of_slices_is_about_their_memory(logs, file_id):
    used, estimate = memory_of_slices(logs, file_id)
    assert 0.85 * used <= estimate <= 1.2 * used

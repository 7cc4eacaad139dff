"""``LookupCache``: what it keeps within its bytes, and which answers may be kept at all."""

from __future__ import annotations

from executor_proxy.lookup_cache import LookupCache
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

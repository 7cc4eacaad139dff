"""Histograms of durations."""

from __future__ import annotations

from strandline.server.latency import BOUNDS_S, BUILT, OTHER_ROUTE, READY, Latencies


def test_a_duration_counts_in_each_bucket_whose_bound_it_doesnt_exceed() -> None:
    latencies = Latencies(())
    histogram = latencies.of("status", READY)
    for took_s in (0.0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, BOUNDS_S[-1] + 1):
        histogram.observe(took_s)
    (found,) = latencies.snapshot()
    assert (found.route, found.way) == ("status", READY)
    assert len(found.cumulative) == len(BOUNDS_S) + 1
    assert found.cumulative[:3] == (2, 3, 3)
    assert found.cumulative[-2:] == (3, 4)
    assert found.sum_s == BOUNDS_S[0] * 2.01 + BOUNDS_S[-1] + 1


def test_paths_are_counted_by_their_route_and_all_unknown_ones_together() -> None:
    latencies = Latencies([("/a", "first"), ("/", "greeting")])
    for path in ("/a", "/a/", "/", "/b", "/" + "c" * 100_000):
        latencies.note_built(path, 1.0)
    found = {each.route: each.cumulative[-1] for each in latencies.snapshot()}
    assert found == {"first": 2, "greeting": 1, OTHER_ROUTE: 2}
    assert {each.way for each in latencies.snapshot()} == {BUILT}

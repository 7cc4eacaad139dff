"""The benchmark of requests: what a request counts as, the table, and which figures have goals."""

from __future__ import annotations

from benchmarks.object_store.delay import Request
from benchmarks.write.request_count import Commit, Seen, counted, kind_of, round_trips
from benchmarks.write.request_figures import ratios
from benchmarks.write_requests import table


def test_a_request_counts_as_what_it_does(subtests):
    for method, target, kind in [
        ("GET", "/b?list-type=2&prefix=t/", "list"),
        ("GET", "/b/t/f.parquet", "read"),
        ("HEAD", "/b/t/f.parquet", "stat"),
        ("PUT", "/b/t/f.parquet", "write"),
        ("POST", "/b/t/f.parquet?uploads", "write"),
        ("POST", "/b?delete", "delete"),
        ("POST", "/b/?delete=", "delete"),
        ("DELETE", "/b/t/f.parquet", "delete"),
    ]:
        with subtests.test(method=method, target=target):
            assert kind_of(Request(method, target, "", 200, 0.0, 0.0)) == kind


def test_round_trips_are_the_requests_that_wait_for_one_another():
    times = [(0, 1), (1, 4), (1, 2), (2, 3), (3, 5), (5, 6)]
    requests = [Request("GET", "/b/f", "", 200, begun, ended) for begun, ended in times]
    assert round_trips(requests) == 5
    assert round_trips([]) == 0


def commit(seconds, *kinds):
    return Commit(seconds, [Seen("driver", kind, "", "") for kind in kinds], len(kinds))


FOUND = {
    "ours on Spark, service": [commit(1.0, "list", "read"), commit(2.0, "list", "read", "list")],
    "ours on Spark, no service": [commit(2.0, "list"), commit(2.0, "list")],
    "Hudi 1.2.0": [commit(8.0, "list"), commit(4.0, "list")],
    "Hudi 1.2.0, metadata table": [commit(16.0, "list"), commit(20.0, "list")],
}


def test_counts_are_means_and_seconds_medians():
    assert counted(FOUND["ours on Spark, service"])["list"] == 1.5
    lines = table(FOUND).splitlines()
    head = "| side | requests | LIST | HEAD | GET | PUT | DELETE | round trips | s a commit |"
    assert lines[0] == head
    assert lines[2] == "| ours on Spark, service | 2.5 | 1.5 | 0.0 | 1.0 | 0.0 | 0.0 | 2.5 | 1.50 |"


def test_seconds_are_compared_with_hudis_of_the_same_day():
    found = {each.what: each for each in ratios(FOUND) if each.other in ("", "Hudi 1.2.0")}
    timed = found["daily upsert, ours on Spark, service, 30 ms a request"]
    assert timed.ratios == [0.125, 0.5]
    assert timed.met
    assert found["daily upsert, ours on Spark, service: lists without a clean"].met
    assert found["daily upsert, Hudi 1.2.0: lists without a clean"].met is None

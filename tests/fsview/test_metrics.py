"""Counters, those for a monitoring system, which only grow, and histograms of durations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fsview.metrics import (
    BOUNDS_S,
    BUILT,
    EXPORTED_TABLES,
    OTHER_ROUTE,
    OTHER_TABLES,
    READY,
    Latencies,
    Metrics,
)

TABLES = tuple(f"file:///t{number}" for number in range(EXPORTED_TABLES + 3))
SYNCS = "syncs", ()


def exported(metrics: Metrics) -> dict[str, int]:
    return {label: counts[SYNCS] for label, counts in metrics.exported.counts().items()}


def test_the_first_tables_keep_their_labels_and_all_others_share_one() -> None:
    metrics = Metrics()
    for table in (*TABLES, TABLES[-1], TABLES[0]):
        metrics.add("syncs", table=table)
    counts = exported(metrics)
    assert counts.pop(OTHER_TABLES) == 4
    assert counts.pop(TABLES[0]) == 2
    assert counts == dict.fromkeys(TABLES[1:EXPORTED_TABLES], 1)
    assert metrics.exported.label(TABLES[-1]) == OTHER_TABLES
    assert metrics.exported.label(TABLES[1]) == TABLES[1]


def test_counters_without_a_table_take_no_table_s_place() -> None:
    metrics = Metrics()
    metrics.add("syncs")
    for table in TABLES[:EXPORTED_TABLES]:
        metrics.add("syncs", table=table)
    assert exported(metrics) == {"": 1, **dict.fromkeys(TABLES[:EXPORTED_TABLES], 1)}


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(TABLES[:4]), st.integers(1, 5)),
        st.tuples(st.just("forget"), st.sampled_from(TABLES[:4]), st.just(0)),
        st.tuples(st.just("merge"), st.sampled_from(TABLES[:4]), st.just(0)),
    ),
    max_size=30,
)


@given(_steps)
def test_exported_counters_are_the_sums_of_all_that_was_counted(
    steps: list[tuple[str, str, int]],
) -> None:
    """Whatever tables are closed in between: none gets smaller."""
    metrics, model = Metrics(), dict[str, int]()
    for step, table, amount in steps:
        if step == "add":
            metrics.add("syncs", amount, table=table)
            model[table] = model.get(table, 0) + amount
        elif step == "forget":
            metrics.forget(table)
        else:
            metrics.merge(lambda each, kept=table: each == kept)  # type: ignore[misc]
        assert exported(metrics) == model
    assert metrics.get("syncs") == sum(model.values())


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

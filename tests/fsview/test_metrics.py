"""Counters, and those for a monitoring system, which only grow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fsview.metrics import EXPORTED_TABLES, OTHER_TABLES, Metrics

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

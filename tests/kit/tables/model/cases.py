"""Fixtures and assertions for single cases on a ``ModelTable``."""

from __future__ import annotations

import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.kit.tables.model import writes
from tests.kit.tables.model.asking import plan_differences, questions, shape
from tests.kit.tables.model.table import ModelTable
from tests.kit.tables.rebuilt import differences_from_rebuilt

GROUP = ("a", "a0-0")
VERSIONS = pytest.mark.parametrize("version", [6, 9])
"""A table version of each timeline layout: views treat version 8 as 9."""


def a_table(
    version: int, table_type: str = "COPY_ON_WRITE", *, change_data: bool = False
) -> ModelTable:
    """Return a table with one group."""
    table = ModelTable(version, table_type, change_data=change_data)
    writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    return table


def watched(table: ModelTable) -> tuple[TableView, Metrics]:
    """Return a view of a table with partition a loaded."""
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    LocalView.synced(view).load_partitions(["a"])
    return view, metrics


def assert_as_rebuilt(view: TableView, table: ModelTable) -> None:
    """Assert that a view, after a sync, answers as a rebuilt view and as the model."""
    followed, rebuilt = LocalView.synced(view), LocalView.synced(TableView(table.storage))
    assert not list(plan_differences(followed, table.truth))
    assert not differences_from_rebuilt(followed.snapshot, table.storage)
    as_of = max(table.truth.completed)
    raw = ("all_file_groups", ())
    for name, arguments in (raw, *questions(as_of)):
        said = [shape(getattr(one, name)("a", *arguments)) for one in (followed, rebuilt)]
        assert said[0] == said[1], name
        if name != raw[0]:
            assert said[1] == getattr(table.truth, name)("a", *arguments), name


def reloads(metrics: Metrics) -> dict[str, int]:
    """Return cause → number of reloads."""
    found = metrics.counts().items()
    return {dict(labels)["cause"]: n for (name, labels), n in found if name.endswith("reloads")}

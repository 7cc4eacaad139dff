"""What actions do to a view that follows them, one case each, as the state machine found them."""

from __future__ import annotations

import pytest

from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.kit.model import archiving, services, undoing, writes
from tests.kit.model.asking import shape
from tests.kit.model.table import ModelTable

GROUP = ("a", "a0-0")


def a_table(
    version: int, table_type: str = "COPY_ON_WRITE", *, change_data: bool = False
) -> ModelTable:
    """Return a table with one group."""
    table = ModelTable(version, table_type, change_data=change_data)
    writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    return table


def test_a_clustering_that_is_being_undone_pends_again() -> None:
    table = a_table(9)
    clustering = services.request_clustering(table, [GROUP])
    services.start(table, clustering)
    writes.complete(table, clustering)
    view = TableView(table.storage)
    assert view.sync().file_groups_in_pending_clustering() == ()
    undoing.uncomplete(table, clustering)
    (pending,) = view.sync().file_groups_in_pending_clustering()
    assert (pending.partition, pending.file_id) == GROUP


@pytest.mark.parametrize(
    ("table_type", "how"), [("COPY_ON_WRITE", "cdc"), ("MERGE_ON_READ", "grow")]
)
def test_what_the_archive_of_version_6_forgets_is_listed_again(
    table_type: str, how: writes.How
) -> None:
    table = a_table(6, table_type, change_data=how == "cdc")
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    metrics = Metrics()
    view = TableView(table.storage, metrics=metrics)
    view.sync().load_partitions(["a"])
    for _ in range(3):
        writes.complete(table, writes.begin(table, [(GROUP, how)]))
    for _ in range(2):
        writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    archived = archiving.to_archive(table)
    assert len(archived) == 5  # of which the view saw two
    archiving.archive(table, archived)
    rebuilt = TableView(table.storage).sync()
    assert shape(view.sync().all_file_groups("a")) == shape(rebuilt.all_file_groups("a"))
    assert metrics.get("partition_reloads", cause="files-unclear") == 1
    assert metrics.get("reloads") == 0

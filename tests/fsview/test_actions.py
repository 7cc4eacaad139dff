"""What actions do to a view that follows them, one case each, as the state machine found them."""

from __future__ import annotations

from fsview.table_view import TableView
from tests.kit.model import services, undoing, writes
from tests.kit.model.table import ModelTable

GROUP = ("a", "a0-0")


def a_table(version: int, table_type: str = "COPY_ON_WRITE") -> ModelTable:
    """Return a table with one group."""
    table = ModelTable(version, table_type)
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

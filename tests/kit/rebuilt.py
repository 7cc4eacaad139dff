"""A view that was followed, compared with one that is built from what lies on storage now."""

from __future__ import annotations

from fsview.rebuilt import differences_from_rebuilt
from fsview.table_view import TableView
from timeline.storage.base import Storage


def missing_from_rebuilt(table: TableView, storage: Storage) -> tuple[list[str], set[str]]:
    """Compare a table's newest view with one built anew, everything loaded.

    Returns:
        What differs, in words; and the names of files that no instant names.
    """
    view = table.newest()
    view.load_all_partitions()
    found = differences_from_rebuilt(view.snapshot, storage)
    return [str(difference) for difference in found.found], set(found.unnamed)

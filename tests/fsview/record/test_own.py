"""What a view gives to its store."""

from __future__ import annotations

import json

from fsview.local_view import LocalView
from fsview.record.rows import PARTITION
from tests.fsview.store.lasting_store import Kept
from tests.fsview.store.stored_views import PARTITIONS, opened, small


def test_each_blob_is_committed_near_the_row_that_names_it() -> None:
    table, kept = small(), Kept()
    view = opened(table, kept)
    LocalView.newest(view).load_all_partitions()
    behind = LocalView.newest(view)
    for partition in PARTITIONS:
        table.write((partition, f"{partition[-1]}0"))
        LocalView.synced(view)
        behind.all_file_slices(partition)
        _, _, chunks, runs = json.loads(kept.rows[PARTITION + partition])
        named = {kept.near[handle] for handle, *_ in (*chunks, *runs)}
        assert named == {PARTITION + partition}


def test_blobs_that_no_row_names_are_near_their_partitions_row() -> None:
    """A client that is behind has an older version loaded, which only this process needs."""
    table, kept = small(), Kept()
    view = opened(table, kept)
    behind = LocalView.newest(view)
    table.write(("a", "a0"))
    LocalView.synced(view)
    for partition in PARTITIONS:
        behind.load_partitions([partition])
    assert set(kept.near.values()) == {PARTITION + partition for partition in PARTITIONS}

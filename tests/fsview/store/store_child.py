"""A process that follows a table: ``python -m tests.fsview.store.store_child TABLE STORES``."""

from __future__ import annotations

import sys
from pathlib import Path

from fsview.local_view import LocalView
from tests.kit.servers.stores import Restarted
from timeline.storage.local import LocalStorage


def follow(table: str, directory: str) -> None:
    """Sync for ever; print the hash of each new timeline."""
    view = Restarted("rocksdb", Path(directory), LocalStorage(table)).view
    said = ""
    while True:
        now = LocalView.synced(view)
        now.load_all_partitions()
        if now.timeline.hash != said:
            said = now.timeline.hash
            print(said, flush=True)


if __name__ == "__main__":
    follow(*sys.argv[1:])

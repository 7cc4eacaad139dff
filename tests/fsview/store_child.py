"""A process that follows a table: ``python -m tests.fsview.store_child TABLE STORES``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kit.stores import Restarted
from timeline.storage.local import LocalStorage


def follow(table: str, directory: str) -> None:
    """Sync for ever; say each last instant that is new."""
    view = Restarted("rocksdb", Path(directory), LocalStorage(table)).view
    said = ""
    while True:
        now = view.sync()
        now.load_all_partitions()
        last = now.last_instant()
        if last is not None and last.requested_time != said:
            said = last.requested_time
            print(said, flush=True)


if __name__ == "__main__":
    follow(*sys.argv[1:])

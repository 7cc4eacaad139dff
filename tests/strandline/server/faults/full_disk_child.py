"""A service whose stores are on a small disk: ``python -m ... DIRECTORY``; in a process of its own,
which alone sees that disk."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fsview.local_view import LocalView
from fsview.store.stores import StoreOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.concurrency.patience import pause
from tests.kit.servers.live_service import AppClient, known
from tests.kit.storage.full_disk import fill
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.kit.tables.small_table import SmallTable

BASE = "/memory/t"
LATEST = "/v1/hoodie/view/slices/partition/latest/"
EVERYWHERE = [("a", f"g{n}") for n in range(300)]
FULL = 507
SOON_S = 60
"""RocksDB looks every five seconds whether there is room again."""


def service(table: SmallTable, directory: Path) -> Parts:
    store = StoreOptions("rocksdb", str(directory / "stores"), 16 << 20)
    return Parts(PartsOptions((BASE,), None, store=store), opener=lambda _path, _o: table.storage)


def main(directory: Path) -> None:
    table = SmallTable()
    table.write(*EVERYWHERE)
    parts = service(table, directory)
    client = AppClient(parts)
    for _ in range(2):
        before = known(table.storage, partition="a")
        status, was = client.ask("GET", LATEST, before)
        assert status == 200, was
        filler = fill(directory)
        for _ in range(200):
            table.write(*EVERYWHERE)
            after = known(table.storage, partition="a")
            status, said = client.ask("GET", LATEST, after)
            if status != 200:
                break
            before, was = after, said
        assert status == FULL, (status, said)
        print(said.decode(), flush=True)
        for _ in range(3):
            assert client.ask("GET", LATEST, before) == (200, was)
            assert client.ask("GET", LATEST, after)[0] == FULL
            assert client.ask("GET", "/", {})[0] == 200
            ready, why = client.ask("GET", "/healthz", {})
            assert (ready, b"No space left on device" in why) == (503, True), why
        filler.unlink()
        end = time.monotonic() + SOON_S
        while status == FULL and time.monotonic() < end:
            pause()
            status, said = client.ask("GET", LATEST, after)
        assert status == 200, said
        assert client.ask("GET", LATEST, before) == (200, was)
        view = LocalView.newest(parts.views.view(BASE))
        assert not differences_from_rebuilt(view.snapshot, table.storage)
    parts.close()
    parts = service(table, directory)
    assert AppClient(parts).ask("GET", LATEST, after) == (200, said)
    assert parts.metrics.get("partition_loads", source="record") == 1
    parts.close()
    print("goes on")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

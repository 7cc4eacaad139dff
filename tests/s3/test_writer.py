"""Every operation of the writer makes the same table on the S3 server as on a local disk."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.servers.s3_server import S3Endpoint
from tests.kit.tables import reader
from tests.strandline.write.concurrent.rounds import copy_tree
from tests.strandline.write.faults.fault_scenarios import SCENARIOS, Options
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.s3

LOCAL = {"insert after another writer's", "upsert after half a rollback"}
"""Their other writer is given a local folder, or their rollback's plan names local files."""
OF_A_FILE = "write__lock__filesystem__expire"
LEASE = {
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
    OF_A_FILE: None,
}


def on_s3(options: Options) -> Options:
    """Return options for S3, where a lock is a lease."""
    return {**options, **LEASE} if OF_A_FILE in options else options


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in LOCAL])
def test_an_operation_makes_the_same_table(s3: S3Endpoint, tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    base = tmp_path / "t"
    scenario.prepare(base, scenario.options)
    storage = s3.storage()
    upload(base, storage)

    def look() -> Path:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy_tree(storage, copy)
        return copy

    far = replace(scenario, options=on_s3(scenario.options))
    assert far.attempt(storage, look, LaterClock())
    assert scenario.attempt(LocalStorage(str(base)), lambda: base, LaterClock())
    assert reader.rows(look()) == reader.rows(base)
    assert scenario.settled(look()) == scenario.settled(base)
    assert reader.leftovers(look()) == reader.leftovers(base) == []


def upload(folder: Path, storage: Storage) -> None:
    """Create a local folder's files in a storage."""
    for path in folder.rglob("*"):
        if path.is_file():
            storage.create(path.relative_to(folder).as_posix(), path.read_bytes())

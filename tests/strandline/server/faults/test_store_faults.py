"""A service whose stores fail, seen over HTTP: errors name the cause, and the service goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsview.store.rocksdb.store_directory import StorePlace
from fsview.store.stores import StoreOptions
from strandline.server.http.authorization import HEALTH
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.concurrency.patience import PATIENCE_S, PROCESS_S
from tests.kit.servers.live_service import TOKEN, Answered, HttpClient, known, running
from tests.kit.tables.small_table import SmallTable
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId

ROOT = Path(__file__).parents[4]
LATEST = "/v1/hoodie/view/slices/partition/latest/"


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    table = SmallTable(LocalStorage(str(tmp_path / "t")))
    table.write(("a", "a0"), ("b", "b0"))
    return table


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    return tmp_path / "stores"


@contextmanager
def service(root: Path, stores: Path) -> Iterator[HttpClient]:
    store = StoreOptions("rocksdb", str(stores), 64 << 20)
    server = ServiceServer(Parts(PartsOptions((str(root),), TOKEN, store=store)), ServerOptions())
    with running(server), HttpClient(server.port) as client:
        yield client


def slices(answered: Answered) -> list[str]:
    """Return the files of an answer; how old they are only a listing tells."""
    return [said["baseFile"]["fullPath"] for said in json.loads(answered.body)]


def place(table: SmallTable, stores: Path) -> Path:
    return StorePlace.of(stores, TableId.of(table.storage.base_path)).path


@pytest.mark.property
def test_store_that_another_process_has_open(
    table: SmallTable, tmp_path: Path, stores: Path
) -> None:
    """The error names that process; other tables are served, and this one once it ends."""
    other = SmallTable(LocalStorage(str(tmp_path / "other")))
    other.write(("a", "a0"))
    command = [sys.executable, "-m", "tests.fsview.store.store_child", table.storage.base_path]
    child = subprocess.Popen([*command, str(stores)], cwd=ROOT, stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout as said, service(tmp_path, stores) as client:
        assert said.readline()
        for _ in range(3):
            refused = client.request("GET", LATEST, known(table.storage, partition="a"))
            assert refused.status == 503
            told = refused.body.decode()
            assert f"{place(table, stores)} is open in process {child.pid}" in told
            assert client.request("GET", LATEST, known(other.storage, partition="a")).status == 200
            assert client.request("GET", HEALTH).status == 200
        child.kill()
        child.wait(timeout=PATIENCE_S)
        assert client.request("GET", LATEST, known(table.storage, partition="a")).status == 200


def test_store_that_can_not_be_opened(table: SmallTable, tmp_path: Path, stores: Path) -> None:
    in_the_way = place(table, stores)
    question = ("GET", LATEST, known(table.storage, partition="a"))
    with service(tmp_path, stores) as client:
        in_the_way.write_text("")
        for _ in range(2):
            # The table is followed in memory.
            assert client.request(*question).status == 200
        health = client.request("GET", HEALTH)
        assert (health.status, in_the_way.name in health.body.decode()) == (200, True)
        in_the_way.unlink()
        assert client.request(*question).status == 200


def test_store_that_was_deleted_under_a_service(
    table: SmallTable, tmp_path: Path, stores: Path
) -> None:
    """The service keeps its open files; the next one starts with an empty store."""
    with service(tmp_path, stores) as client:
        assert client.request("GET", LATEST, known(table.storage, partition="a")).status == 200
        for path in place(table, stores).iterdir():
            path.unlink()
        place(table, stores).rmdir()
        table.write(("a", "a0"))
        answered = client.request("GET", LATEST, known(table.storage, partition="a"))
        assert answered.status == 200
    with service(tmp_path, stores) as client:
        again = client.request("GET", LATEST, known(table.storage, partition="a"))
        assert slices(again) == slices(answered) != []


def on_small_disk(directory: Path, size: str, module: str) -> subprocess.CompletedProcess[str]:
    """Run a module in a process in which a directory is a file system of some size."""
    mount = f'mount -t tmpfs -o size={size} none "$1" && shift && exec "$@"'
    child = [sys.executable, "-m", f"tests.strandline.server.faults.{module}", str(directory)]
    try:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", mount, "sh", str(directory), *child],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PROCESS_S,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("no unshare")
    if "permi" in done.stderr.lower() and not done.stdout:
        pytest.skip("may not mount a file system")
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.property
def test_markers_on_a_full_disk(tmp_path: Path) -> None:
    done = on_small_disk(tmp_path, "1m", "full_disk_markers")
    assert done.stdout == "goes on\n"


@pytest.mark.property
def test_full_disk(tmp_path: Path) -> None:
    done = on_small_disk(tmp_path, "24m", "full_disk_child")
    *refused, end = done.stdout.splitlines()
    # The table is followed in memory until the budget is used up, too.
    assert len(refused) == 2
    assert all("no room in memory" in line and "can't be written" in line for line in refused)
    assert end == "goes on"

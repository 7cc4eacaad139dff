"""A store in RocksDB with other processes, forks, full or read-only disks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsview.store.base import RETRY_S
from fsview.store.rocksdb.store import RocksStores
from tests.fsview.store.rocks import CHILD, ROOT, place, set_aside
from tests.fsview.store.rocks_child import CACHE_BYTES, Numbered, clock, hold, open_at
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.servers.processes import Forked
from timeline.errors import ConfigError, StoreError, StoreLockedError

pytestmark = pytest.mark.property


def told(step: str, directory: Path) -> str:
    """Return the output of a child that ended by itself."""
    done = subprocess.run(
        [*CHILD, step, str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_process_gets_the_owners_id(tmp_path: Path) -> None:
    store = open_at(tmp_path)
    said = told("hold", tmp_path)
    assert f"{place(tmp_path).path} is open in process {os.getpid()}" in said
    with pytest.raises(StoreLockedError, match=place(tmp_path).name):
        open_at(tmp_path)
    store.close()
    open_at(tmp_path).close()
    assert set_aside(tmp_path) == []


def test_process_that_ends_without_closing(tmp_path: Path) -> None:
    first = Forked(hold, tmp_path)
    first.communicate()
    assert first.returncode == 0
    state = Numbered(open_at(tmp_path))
    assert state.number == 1
    state.store.close()


def test_fork_can_not_use_it(tmp_path: Path) -> None:
    assert told("fork", tmp_path) == "101\n"
    state = Numbered(open_at(tmp_path))
    assert state.number == 101
    assert state.check_blobs() == []
    state.store.close()


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    number, refused = told("small_files", tmp_path).split(" ", 1)
    assert str(place(tmp_path).path) in refused
    assert os.strerror(27) in refused
    state = Numbered(open_at(tmp_path))
    assert state.number == int(number)
    assert state.check_blobs() == []
    assert set_aside(tmp_path) == []
    state.store.close()


def test_it_is_written_again_once_there_is_room(tmp_path: Path) -> None:
    """RocksDB itself refuses all writes after one that failed (#32)."""
    number, refused = told("room_again", tmp_path).split(" ", 1)
    assert os.strerror(27) in refused
    state = Numbered(open_at(tmp_path))
    assert state.number == int(number)
    assert state.check_blobs() == []
    assert set_aside(tmp_path) == []
    state.store.close()


@pytest.fixture
def readable() -> Iterator[Path]:
    """A directory that others may read, which those of pytest aren't."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(directory)


def test_read_only_directory(readable: Path) -> None:
    readable.chmod(0o555)
    said = told("as_nobody", readable)
    assert said.startswith("StoreUnavailableError ")
    assert str(readable) in said


def test_read_only_store(readable: Path) -> None:
    state = Numbered(open_at(readable))
    state.commit()
    state.store.close()
    store = place(readable).path
    for path in readable.iterdir():
        path.chmod(0o666)
    readable.chmod(0o777)
    store.chmod(0o555)
    said = told("as_nobody", readable)
    assert said.startswith("StoreUnavailableError ")
    assert str(store) in said
    assert set_aside(readable) == []
    store.chmod(0o755)
    assert Numbered(open_at(readable)).number == 1


def test_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "stores").write_text("")
    with pytest.raises(StoreError, match=str(tmp_path / "stores")):
        open_at(tmp_path / "stores").rows()
    file = place(tmp_path).path
    file.write_text("")
    store = open_at(tmp_path)
    for refused in (store.rows, store.clear, lambda: store.commit([])):
        with pytest.raises(StoreError, match=place(tmp_path).name):
            refused()
    store.collect()
    assert store.status()["blobs"] == 0
    file.unlink()
    with pytest.raises(StoreError, match=place(tmp_path).name):  # not tried again at once
        store.commit([])
    clock.advance(int(RETRY_S * 1000))
    assert store.commit([]) == []
    assert store.rows() == {}
    store.close()


def test_without_rocksdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What importing it meets when it isn't installed.
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(ConfigError, match=r"strandline\[rocksdb\]"):
        RocksStores(tmp_path, CACHE_BYTES)


def test_cache_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1000 bytes"):
        RocksStores(tmp_path, 1000)

"""A store in RocksDB that is killed or damaged, and what is set aside."""

from __future__ import annotations

import logging
import random
import shutil
import signal
from pathlib import Path

import pytest

from fsview.store.rocksdb.engine import RocksEngine
from fsview.store.rocksdb.store import RocksStores
from fsview.store.rocksdb.store_directory import KEPT_ASIDE
from tests.fsview.store.rocks import place, set_aside
from tests.fsview.store.rocks_child import CACHE_BYTES, TABLE, Numbered, open_at, work
from tests.kit.servers.processes import Forked
from tests.kit.servers.stores import blobs_of
from timeline.errors import StoreError, StoreLockedError
from timeline.storage.table_id import TableId

pytestmark = pytest.mark.property
OTHER = TableId.of("/warehouse/sales/customers")


def killed(child: Forked, lines: int, how: signal.Signals = signal.SIGKILL) -> int:
    """Kill a working child after a number of lines; return the last number that it printed."""
    for _ in range(lines):
        assert child.stdout.readline()
    child.send_signal(how)
    said, _ = child.communicate()
    assert child.returncode == -how
    return max((int(word) for word in said.split() if word.isdecimal()), default=0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def killing(directory: Path, times: int, caplog: pytest.LogCaptureFixture) -> None:
    order = random.Random(times)
    open_at(directory).close()
    number = 0
    for _ in range(times):
        said = killed(Forked(work, directory), 1 + order.choice((0, 0, 1, 10, 40)))
        state = Numbered(open_at(directory))
        assert state.number >= max(said, number)
        assert state.check_blobs() == []
        assert state.store.status()["blobs"] >= len(state.names)
        number = state.number
        state.store.close()
    assert number > times
    assert set_aside(directory) == []
    assert warnings(caplog) == []


@pytest.mark.property
def test_killed_a_hundred_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    killing(tmp_path, 100, caplog)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A store whose process was killed, with files and with a log, and its state's number."""
    directory = tmp_path_factory.mktemp("crashed")
    killed(Forked(work, directory), 120)
    copy = tmp_path_factory.mktemp("copy") / "stores"
    shutil.copytree(directory, copy)
    state = Numbered(open_at(copy))
    state.store.close()
    return directory, state.number


def files(directory: Path, pattern: str) -> list[Path]:
    found = sorted(place(directory).path.glob(pattern), key=lambda file: file.stat().st_size)
    assert found, pattern
    return found


def check_damaged(directory: Path, newest: int, caplog: pytest.LogCaptureFixture) -> str:
    """Open a damaged store; return whether it has an earlier state, or is empty with a warning."""
    caplog.clear()
    state = Numbered(open_at(directory))
    if state.number == 0 and not state.names:
        state.store.close()
        if set_aside(directory):
            (warning,) = warnings(caplog)
            assert str(place(directory).path) in warning
            return "set aside"
        assert warnings(caplog) == []
        return "new"
    assert state.number <= newest
    raised = state.check_blobs()
    for exc in raised:
        assert str(place(directory).path) in str(exc)
        assert "blob" in str(exc)
    state.store.close()
    if not raised:
        return "whole"
    caplog.clear()
    again = Numbered(open_at(directory))
    assert again.number == 0
    assert len(set_aside(directory)) == 1
    again.store.close()
    return "noticed"


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(content)


DAMAGES = {
    "emptied": lambda path: cut(path, 0),
    "cut in half": lambda path: cut(path, path.stat().st_size // 2),
    "short of a byte": lambda path: cut(path, max(0, path.stat().st_size - 1)),
    "flipped at its start": lambda path: flip(path, 3),
    "flipped halfway": lambda path: flip(path, path.stat().st_size // 2),
    "deleted": Path.unlink,
}
ALLOWED = {
    "CURRENT": {"set aside"},
    "MANIFEST-*": {"set aside", "whole"},  # its last lines may say what the log says, too
    "*.sst": {"set aside", "noticed", "whole"},  # blocks of blobs that are replaced aren't read
    "*.log": {"whole", "new", "set aside"},
    "OPTIONS-*": {"whole"},
    "rocksdict-config.json": {"whole"},
    "IDENTITY": {"whole"},
    "LOCK": {"whole"},
}
# LOCK is empty already.
CASES = [(p, damage) for p in ALLOWED for damage in DAMAGES if p != "LOCK" or damage == "deleted"]


@pytest.mark.parametrize(("pattern", "damage"), CASES)
def test_damaged_file(
    crashed: tuple[Path, int],
    pattern: str,
    damage: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    directory, newest = crashed
    shutil.copytree(directory, tmp_path / "stores")
    found = files(tmp_path / "stores", pattern)
    # A log that was just begun when the process was killed has nothing to damage; LOCK never has.
    DAMAGES[damage]([file for file in found if file.stat().st_size or pattern == "LOCK"][-1])
    assert check_damaged(tmp_path / "stores", newest, caplog) in ALLOWED[pattern]


@pytest.mark.property
def test_damaged_anywhere(
    crashed: tuple[Path, int],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    directory, newest = crashed
    order = random.Random(7)
    seen = set()
    for number in range(100):
        copy = tmp_path / str(number)
        shutil.copytree(directory, copy)
        damaged = order.choice([file for file in files(copy, "*") if file.stat().st_size > 1])
        size = damaged.stat().st_size
        if order.random() < 0.4:
            cut(damaged, order.randrange(size))
        else:
            for _ in range(order.choice((1, 1, 1, 50))):
                flip(damaged, order.randrange(size))
        seen.add(check_damaged(copy, newest, caplog))
        shutil.rmtree(copy)
    assert {"whole", "set aside"} <= seen


def test_damaged_blob(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_at(tmp_path)
    chunks = store.commit(blobs_of([random.Random(n).randbytes(5000) for n in range(200)]))
    blobs = [chunk.read() for chunk in chunks]
    blob, handle, whole = blobs[100], chunks[100].handle, chunks[7].handle
    store.close()
    open_at(tmp_path).close()  # what was only in the log is in a file now
    for path in files(tmp_path, "*.sst"):
        if (at := path.read_bytes().find(blob)) >= 0:
            flip(path, at + 2500)
    store = open_at(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreError, match=f"{place(tmp_path).name}: blob {handle} "):
            store.get(handle)
    assert store.get(whole) == blobs[7]
    with pytest.raises(StoreLockedError):  # and it isn't taken away from who has it
        open_at(tmp_path)
    assert set_aside(tmp_path) == []
    store.close()
    assert warnings(caplog) == []
    store = open_at(tmp_path)
    (warning,) = warnings(caplog)
    assert f"blob {handle}" in warning
    assert len(set_aside(tmp_path)) == 1
    assert store.status()["blobs"] == 0
    store.close()


def test_commit_missing_between_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = Numbered(open_at(tmp_path))
    state.commit()
    state.store.close()
    database = RocksEngine(CACHE_BYTES).open(place(tmp_path).path, create=False)
    ((key, step),) = database.items(b"s", b"t")
    later = int.from_bytes(key[1:], "big") + 2
    database.write([(b"s" + later.to_bytes(8, "big"), step)])
    database.close()
    assert check_damaged(tmp_path, 1, caplog) == "set aside"


def test_format_of_another_release(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = Numbered(open_at(tmp_path))
    state.commit()
    state.store.close()
    database = RocksEngine(CACHE_BYTES).open(place(tmp_path).path, create=False)
    marker = database.get(b"m")
    assert marker is not None
    database.write([(b"m", marker.replace(b'"format":1', b'"format":2'))])
    database.close()
    assert check_damaged(tmp_path, 1, caplog) == "set aside"


def test_no_more_than_some_are_kept_aside(tmp_path: Path) -> None:
    for _ in range(KEPT_ASIDE + 3):
        state = Numbered(open_at(tmp_path))
        state.commit()
        state.store.close()
        files(tmp_path, "CURRENT")[0].unlink()
    open_at(tmp_path).close()
    names = [path.name for path in set_aside(tmp_path)]
    assert names == [f"{place(tmp_path).name}.aside-{n}" for n in (4, 5)]


def test_copy_for_another_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = Numbered(open_at(tmp_path))
    state.commit()
    state.store.close()
    shutil.copytree(place(tmp_path).path, place(tmp_path, OTHER).path)
    other = RocksStores(tmp_path, CACHE_BYTES).open(OTHER)
    assert other.rows() == {}
    assert len(set_aside(tmp_path)) == 1
    (warning,) = warnings(caplog)
    assert str(TABLE) in warning
    assert str(OTHER) in warning
    other.close()
    assert Numbered(open_at(tmp_path)).number == 1

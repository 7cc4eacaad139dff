"""When a marker directory is read, forgotten, given up and begun anew."""

from __future__ import annotations

import shutil
import threading
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.server.marker import registry as markers
from strandline.server.marker.registry import MarkerService
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import create
from tests.strandline.server.marker.marker_service import INSTANT, Tables, directory, files, name
from timeline.errors import RootNotAllowedError, TableNotFoundError
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.table_id import TableId
from timeline.table.config import CONFIG_PATH


def test_a_deleted_directory_is_forgotten(base: Path, service: MarkerService) -> None:
    assert service.delete(directory(base)) is False
    create(service, directory(base), name(1)).result(PATIENCE_S)
    assert service.exists(directory(base))
    assert service.delete(directory(base)) is True
    assert service.delete(f"file:{directory(base)}/") is False
    assert not service.exists(directory(base))
    assert service.names(directory(base)) == ()
    assert create(service, directory(base), name(1)).result(PATIENCE_S) is True
    assert files(base)["MARKERS0"] == f"{name(1)}\n"


def test_looking_leaves_nothing_behind(base: Path, tables: Tables, service: MarkerService) -> None:
    other = MarkerService(tables)
    create(other, directory(base), name(1)).result(PATIENCE_S)
    for number in range(50):
        assert service.names(directory(base, str(number))) == ()
        assert not service.exists(directory(base, str(number)))
        assert not service.delete(directory(base, str(number)))
    assert service.names(directory(base)) == (name(1),)
    assert service.exists(f"file://{directory(base)}/")
    assert service.status()["directories"] == 0
    other.close()


def test_directories_in_which_nothing_happens_are_given_up(base: Path, tables: Tables) -> None:
    clock = ManualClock(0)
    service = MarkerService(tables, clock=clock)
    for number in range(3):
        create(service, directory(base, str(number)), name(1, instant=number)).result(PATIENCE_S)
        create(service, directory(base, f"{number}/"), name(2, instant=number)).result(PATIENCE_S)
    clock.advance(1000 * 1800)
    create(service, directory(base, "2"), name(3, instant=2)).result(PATIENCE_S)
    clock.advance(1000 * 1801)
    create(service, directory(base, "3"), name(1, instant=3)).result(PATIENCE_S)
    assert service.status()["directories"] == 2
    # Whoever comes back finds what was there.
    assert create(service, directory(base, "0"), name(2, instant=0)).result(PATIENCE_S) is False
    assert create(service, directory(base, "0/"), name(3, instant=0)).result(PATIENCE_S) is True
    assert service.names(directory(base, "0")) == tuple(name(n, instant=0) for n in (1, 2, 3))
    service.close()


def test_the_directories_known_are_bounded(
    base: Path, service: MarkerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "MAX_DIRECTORIES", 5)
    monkeypatch.setattr(markers, "MAX_SPELLINGS", 7)
    for number in range(20):
        assert create(service, directory(base, str(number)), name(1, instant=number)).result(
            PATIENCE_S
        )
        assert not create(service, directory(base, f"{number}//"), name(1, instant=number)).result(
            20
        )
    assert service.status()["directories"] <= 5
    assert not create(service, directory(base, "0"), name(1, instant=0)).result(PATIENCE_S)


@pytest.mark.property
def test_what_is_remembered_of_spellings_is_bounded_however_long_they_are(
    base: Path, service: MarkerService
) -> None:
    assert create(service, directory(base), name(1)).result(PATIENCE_S)
    tracemalloc.start()
    try:
        for number in range(1, 1001):
            spelled = directory(Path(f"{base}/no-such-folder-{number}/.."))
            long = spelled.replace("/no-such", "/." * 1500 + f"/{chr(0x1F600) * 200}-no-such")
            assert not create(service, long, name(1)).result(PATIENCE_S)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 8 << 20


def remove_whole(base: Path) -> None:
    shutil.rmtree(directory(base))


def remove_type(base: Path) -> None:
    (Path(directory(base)) / "MARKERS.type").unlink()


@pytest.mark.parametrize("remove", [remove_whole, remove_type])
def test_a_directory_that_vanished_is_begun_anew(
    base: Path, service: MarkerService, remove: Callable[[Path], None]
) -> None:
    """Hudi ignores marker files without ``MARKERS.type``, so they don't count as written."""
    for number in (1, 2):
        create(service, directory(base), name(number)).result(PATIENCE_S)
    remove(base)
    kept = remove is remove_type
    assert service.names(directory(base)) == ((name(1), name(2)) if kept else ())
    assert create(service, directory(base), name(1)).result(PATIENCE_S) is not kept
    assert create(service, directory(base), name(3)).result(PATIENCE_S) is True
    written = files(base)
    assert written.pop("MARKERS.type") == "TIMELINE_SERVER_BASED"
    wanted = {name(1), name(3), *([name(2)] if kept else [])}
    assert set("".join(written.values()).splitlines()) == wanted
    remove(base)
    assert create(service, directory(base), name(3)).result(PATIENCE_S) is not kept


def test_a_table_that_was_deleted_is_not_made_again(base: Path, service: MarkerService) -> None:
    create(service, directory(base), name(1)).result(PATIENCE_S)
    shutil.rmtree(base)
    for number in (1, 2):
        with pytest.raises(TableNotFoundError, match=f"no table at {base}"):
            create(service, directory(base), name(number)).result(PATIENCE_S)
    assert service.names(directory(base)) == ()
    assert not service.exists(directory(base))
    assert not service.delete(directory(base))
    assert not base.exists()


def test_markers_are_kept_where_there_are_no_directories() -> None:
    url = f"memory://markers/{uuid.uuid4()}/t"
    storage = FsspecStorage(url)
    table_id = TableId.of(url)
    service = MarkerService(lambda _: (table_id, storage))
    folder = f"{url}/.hoodie/.temp/{INSTANT}"
    with pytest.raises(TableNotFoundError):
        create(service, folder, name(1)).result(PATIENCE_S)
    storage.create(CONFIG_PATH, b"damaged")
    assert not service.exists(folder)
    for number in (1, 2):
        assert create(service, folder, name(number)).result(PATIENCE_S)
    assert service.exists(folder)
    storage.delete_tree(f".hoodie/.temp/{INSTANT}")
    assert service.names(folder) == ()
    assert create(service, folder, name(1)).result(PATIENCE_S)
    assert {info.name for info in storage.list(f".hoodie/.temp/{INSTANT}")} == {
        "MARKERS.type",
        "MARKERS0",
    }
    assert service.delete(folder)
    assert not service.delete(folder)
    service.close()


@pytest.mark.parametrize("linked", ["", "/.hoodie", "/.hoodie/.temp", f"/.hoodie/.temp/{INSTANT}"])
def test_links_out_of_the_table_are_not_followed(
    base: Path, tmp_path: Path, service: MarkerService, linked: str
) -> None:
    create(service, directory(base), name(1)).result(PATIENCE_S)
    link, elsewhere = Path(f"{base}{linked}"), tmp_path / "elsewhere"
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
    with pytest.raises(RootNotAllowedError, match="behind a symbolic link"):
        create(service, directory(base), name(2)).result(PATIENCE_S)
    for ask in (service.names, service.exists, service.delete):
        with pytest.raises(RootNotAllowedError, match="behind a symbolic link"):
            ask(directory(base))
    assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before


def test_many_threads_lose_nothing(base: Path, service: MarkerService) -> None:
    answers: list[bool] = []

    def create_each(start: int) -> None:
        for number in range(start, 120, 4):  # each number from two threads
            answers.append(create(service, directory(base), name(number)).result(PATIENCE_S))

    threads = [threading.Thread(target=create_each, args=(n % 4,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (answers.count(True), answers.count(False)) == (120, 120)
    assert sorted(files(base)["MARKERS0"].splitlines()) == list(map(name, range(120)))

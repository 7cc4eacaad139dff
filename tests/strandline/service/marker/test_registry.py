"""``strandline.service.marker.registry``: durable before ``true``, once each, whole after a
restart."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from strandline.service.marker import directory as marker_directory
from strandline.service.marker import file as marker_file
from strandline.service.marker import registry as markers
from strandline.service.marker.directory import MarkerDirectory
from strandline.service.marker.file import split_directory
from strandline.service.marker.registry import MarkerService
from tests.kit.faulty_storage import Effect, Fault, FaultyStorage
from tests.kit.live_service import HttpClient, serving
from tests.kit.manual_clock import ManualClock
from tests.kit.marker_name import create
from tests.kit.patience import PATIENCE_S
from timeline.errors import (
    InputError,
    RootNotAllowedError,
    StorageUnavailableError,
    TableNotFoundError,
)
from timeline.instant import CLUSTERING, REPLACE_COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import RequestedReplaceMetadata
from timeline.storage.base import Storage
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId
from timeline.table.config import CONFIG_PATH, TableConfig
from timeline.table.config_file import write_table_config

INSTANT = "20261121090000000"
OLDER = "20261121080000000"


def name(number: int, kind: str = "CREATE", instant: object = INSTANT) -> str:
    return f"2024-01-01/f{number:04d}-0_0-1-1_{instant}.parquet.marker.{kind}"


class Held(LocalStorage):
    """A storage whose writes wait for ``go``; ``began`` is set once one waits."""

    def __init__(self, base_path: str) -> None:
        super().__init__(base_path)
        self.began = threading.Event()
        self.go = threading.Event()

    def create(self, path: str, data: bytes = b"") -> None:
        self.began.set()
        assert self.go.wait(PATIENCE_S)
        super().create(path, data)


class Lasting(Held):
    """A storage whose writes take time by a clock, until ``at_once`` is set."""

    def __init__(self, base_path: str, clock: ManualClock) -> None:
        super().__init__(base_path)
        self.clock = clock
        self.at_once = threading.Event()

    def create(self, path: str, data: bytes = b"") -> None:
        self.clock.advance(0 if self.at_once.is_set() else 100)
        super().create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self.clock.advance(0 if self.at_once.is_set() else 100)
        super().replace(path, data)


class Tables:
    """Every base path below a directory is a table."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storages: dict[str, Storage] = {}

    def __call__(self, base_path: str) -> tuple[TableId, Storage]:
        table_id = TableId.of(base_path)
        path = table_id.path
        if not path.startswith(str(self.root)):
            raise RootNotAllowedError(f"{base_path} is outside")
        return table_id, self.storages.setdefault(path, LocalStorage(path))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory that passes for a table, with properties that can't be read."""
    properties = tmp_path / "t" / CONFIG_PATH
    properties.parent.mkdir(parents=True)
    properties.write_text("damaged")
    return tmp_path / "t"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


@pytest.fixture
def service(tables: Tables) -> Iterator[MarkerService]:
    service = MarkerService(tables)
    yield service
    service.close()


def directory(base: Path, instant: str = INSTANT) -> str:
    return f"{base}/.hoodie/.temp/{instant}"


def files(base: Path) -> dict[str, str]:
    folder = Path(directory(base))
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}


def test_a_marker_is_in_a_file_when_it_is_answered(base: Path, service: MarkerService) -> None:
    assert create(service, directory(base), name(1)).result(PATIENCE_S) is True
    assert files(base) == {"MARKERS.type": "TIMELINE_SERVER_BASED", "MARKERS0": f"{name(1)}\n"}
    assert create(service, directory(base), name(2)).result(PATIENCE_S) is True
    assert files(base)["MARKERS0"] == f"{name(1)}\n{name(2)}\n"


def test_a_name_is_new_once(base: Path, service: MarkerService) -> None:
    answers = [create(service, directory(base), name(7)) for _ in range(20)]
    assert sorted(answer.result(PATIENCE_S) for answer in answers) == [False] * 19 + [True]
    assert create(service, f"file:{directory(base)}", name(7)).result(PATIENCE_S) is False


def test_what_comes_during_a_flush_goes_together_in_the_next(
    base: Path, tables: Tables, service: MarkerService
) -> None:
    held = tables.storages[str(base)] = Held(str(base))
    first = create(service, directory(base), name(0))
    assert held.began.wait(PATIENCE_S)
    rest = [create(service, directory(base), name(n)) for n in range(1, 100)]
    assert not first.done()
    assert create(service, directory(base), name(0)).done() is False
    held.go.set()
    assert all(answer.result(PATIENCE_S) for answer in [first, *rest])
    # The type, the first file, and that file once more with all the others.
    counts = held.calls.snapshot()
    assert (counts["create", "marker"], counts["replace", "marker"]) == (2, 1)
    assert len(files(base)["MARKERS0"].splitlines()) == 100


def test_tasks_that_come_back_go_together(
    base: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten tasks make three markers each, one after the other: three flushes and the first one's."""
    monkeypatch.setattr(marker_directory, "GATHER_SHARE", 1000)
    monkeypatch.setattr(marker_directory, "GATHER_MAX_S", 60)
    clock = ManualClock(0)
    service = MarkerService(tables, clock=clock)
    held = tables.storages[str(base)] = Lasting(str(base), clock)
    first = create(service, directory(base), name(0))
    assert held.began.wait(PATIENCE_S)
    asked = [create(service, directory(base), name(number)) for number in range(1, 10)]
    held.go.set()
    assert first.result(PATIENCE_S)
    asked.append(create(service, directory(base), name(10)))
    for turn in (1, 2):
        assert all(answer.result(PATIENCE_S) for answer in asked)
        if turn == 2:
            held.at_once.set()  # the end: nobody is waited for
        asked = [create(service, directory(base), name(turn * 100 + n)) for n in range(10)]
    assert all(answer.result(PATIENCE_S) for answer in asked)
    assert held.calls.snapshot()["replace", "marker"] == 3
    service.close()


def test_a_full_file_is_left_alone(
    base: Path, service: MarkerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_file, "FILE_BYTES", 100)
    for number in range(5):
        assert create(service, directory(base), name(number)).result(PATIENCE_S)
    written = files(base)
    assert sorted(written) == ["MARKERS.type", "MARKERS0", "MARKERS1", "MARKERS2"]
    assert written["MARKERS1"] == f"{name(2)}\n{name(3)}\n"
    assert service.names(directory(base)) == tuple(map(name, range(5)))


def test_markers_are_known_after_a_restart(base: Path, tables: Tables) -> None:
    before = MarkerService(tables)
    for number in range(3):
        create(before, directory(base), name(number)).result(PATIENCE_S)
    before.close()
    (Path(directory(base)) / ".MARKERS0.left-by-a-crash").write_text("2024-01-01/torn")
    after = MarkerService(tables)
    assert create(after, directory(base), name(1)).result(PATIENCE_S) is False
    assert create(after, directory(base), name(9)).result(PATIENCE_S) is True
    assert after.names(directory(base)) == (*map(name, range(3)), name(9))
    written = files(base)
    assert written["MARKERS0"] == "".join(f"{name(n)}\n" for n in range(3))
    assert written["MARKERS1"] == f"{name(9)}\n"
    after.close()


def test_two_services_do_not_share_a_file(base: Path, tables: Tables) -> None:
    one, other = MarkerService(tables), MarkerService(tables)
    for number in range(4):
        create(one if number % 2 else other, directory(base), name(number)).result(PATIENCE_S)
    written = "".join(text for file, text in files(base).items() if file != "MARKERS.type")
    assert sorted(written.splitlines()) == list(map(name, range(4)))
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("at", "effect"),
    [
        *((at, Effect.ERROR_BEFORE) for at in range(1, 9)),
        *((write, Effect.ERROR_AFTER) for write in (4, 6, 8)),
    ],
)
def test_a_marker_that_failed_can_be_asked_for_again(
    base: Path, tables: Tables, service: MarkerService, at: int, effect: Effect
) -> None:
    tables.storages[str(base)] = FaultyStorage(LocalStorage(str(base)), [Fault(at, effect)])
    failed = 0
    for number in (1, 2, 1, 2, 3):
        try:
            create(service, directory(base), name(number)).result(PATIENCE_S)
        except StorageUnavailableError:
            failed += 1
    assert failed == 1
    for number in (1, 2, 3):
        create(service, directory(base), name(number)).result(PATIENCE_S)
    assert (Path(directory(base)) / "MARKERS.type").read_text() == "TIMELINE_SERVER_BASED"
    assert set(service.names(directory(base))) == set(map(name, (1, 2, 3)))
    restarted = MarkerService(Tables(base.parent))
    assert set(restarted.names(directory(base))) == set(map(name, (1, 2, 3)))
    restarted.close()


class Late(LocalStorage):
    """One write of ``MARKERS0`` gets no answer and takes effect when ``land`` is called.

    Creates aren't exclusive, as on a file system that can only look first.
    """

    def __init__(self, base_path: str, at: int) -> None:
        super().__init__(base_path)
        self.under_way: list[tuple[str, bytes]] = []
        self.left = [at]

    def create(self, path: str, data: bytes = b"") -> None:
        if not self._is_lost(path, data):
            super().create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        if not self._is_lost(path, data):
            super().replace(path, data)

    def _is_lost(self, path: str, data: bytes) -> bool:
        if path.endswith("MARKERS0"):
            self.left[0] -= 1
            if self.left[0] == 0:
                self.under_way.append((path, data))
                raise StorageUnavailableError(f"no answer: {path}")
        return False

    def land(self) -> None:
        for path, data in self.under_way:
            LocalStorage.replace(self, path, data)


@pytest.mark.parametrize("at", [1, 2, 3], ids=["create", "first rewrite", "second rewrite"])
def test_a_late_write_of_a_file_takes_no_durable_marker_away(
    base: Path, tables: Tables, service: MarkerService, at: int
) -> None:
    """After a write without an answer markers go to another file, which that write can't undo."""
    late = tables.storages[str(base)] = Late(str(base), at)
    durable = []
    for number in range(6):
        with contextlib.suppress(StorageUnavailableError):
            if create(service, directory(base), name(number)).result(PATIENCE_S):
                durable.append(name(number))
    assert len(durable) == 5
    late.land()
    restarted = MarkerService(Tables(base.parent))
    assert set(durable) <= set(restarted.names(directory(base)))
    restarted.close()


def test_a_directory_that_another_service_began_anew_is_read_again(
    base: Path, tables: Tables, service: MarkerService
) -> None:
    other = MarkerService(tables)
    assert create(service, directory(base), name(1)).result()
    assert other.delete(directory(base))
    assert create(other, directory(base), name(2)).result()
    # However fast the machine: it is another file, of another time.
    os.utime(f"{directory(base)}/MARKERS.type", (1, 1))
    assert create(service, directory(base), name(1)).result()
    assert service.names(directory(base)) == (name(2), name(1))
    assert files(base)["MARKERS0"] == f"{name(2)}\n"
    other.close()


class NoThreads:
    """A pool that the system gives no thread, until it does."""

    def __init__(self) -> None:
        self.given = False

    def __call__(self, work: Callable[[], None]) -> None:
        if not self.given:
            raise RuntimeError("can't start new thread")
        work()


def test_without_a_thread_the_next_marker_tries_again(base: Path) -> None:
    start = NoThreads()
    kept = MarkerDirectory(LocalStorage(str(base)), INSTANT, start, ManualClock(0), frozenset)
    first, second = Future[bool](), Future[bool]()
    kept.submit({name(1): first})
    with pytest.raises(StorageUnavailableError, match="no thread to write markers"):
        first.result(0)
    start.given = True
    kept.submit({name(1): second})
    assert second.result(0)


def test_a_table_that_hangs_holds_up_the_markers_of_no_other(
    base: Path, tables: Tables, service: MarkerService
) -> None:
    """However many instants of it are asked for."""
    good = base.parent / "good"
    shutil.copytree(base, good)
    held = tables.storages[str(base)] = Held(str(base))
    hanging = [
        create(service, directory(base, str(number)), name(1, instant=number))
        for number in range(200)
    ]
    assert held.began.wait(PATIENCE_S)
    assert create(service, directory(good), name(1)).result(PATIENCE_S)
    assert not any(answer.done() for answer in hanging)
    held.go.set()
    assert all(answer.result(PATIENCE_S) for answer in hanging)


def test_a_table_that_hangs_when_looked_for_holds_up_no_other(base: Path, tables: Tables) -> None:
    """It is known by how its path is spelled, be that with detours."""
    go = threading.Event()

    def table_of(base_path: str) -> tuple[TableId, Storage]:
        assert "stuck" not in base_path or go.wait(PATIENCE_S)
        return tables(base_path)

    service = MarkerService(table_of)
    stuck = f"{base.parent}/x/../stuck"
    spelled = (f"file://{stuck}/", f"{stuck}/.", stuck)
    hanging = [
        service.find(f"{spelled[number % 3]}/.hoodie/.temp/{number}") for number in range(200)
    ]
    service.find(directory(base)).result(PATIENCE_S)
    assert service.submit(directory(base), {name(1): (created := Future[bool]())})
    assert created.result(PATIENCE_S)
    assert not any(found.done() for found in hanging)
    go.set()
    for found in hanging:
        found.result(PATIENCE_S)
    service.close()


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


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/.hoodie/.temp/1",
        "/t",
        "/t/.hoodie",
        "/t/.hoodie/.temp",
        "/t/.hoodie/.temp/",
        "/t/.hoodie/.temp/..",
        "/t/.hoodie/.temp/1/..",
        "/t/.hoodie/.temp/1/2",
        "/t/.hoodie/.temp/x",
        "/t/.hoodie/timeline/1",
        "/t/.hoodie/.temp/1\n",
        "/t\0/.hoodie/.temp/1",
    ],
)
def test_only_the_directory_of_an_instant_is_taken(path: str) -> None:
    with pytest.raises(InputError, match=r"markerdirpath is .*; allowed: <base path>/\.hoodie"):
        split_directory(path)


def test_a_directory_is_base_path_and_instant() -> None:
    assert split_directory(f"s3://b/t//.hoodie/.temp/{INSTANT}/") == ("s3://b/t", INSTANT)
    mdt = f"/t/.hoodie/metadata/.hoodie/.temp/{INSTANT}_1"
    assert split_directory(mdt) == ("/t/.hoodie/metadata", f"{INSTANT}_1")


def test_base_paths_outside_the_roots_are_refused(service: MarkerService) -> None:
    with pytest.raises(RootNotAllowedError):
        create(service, f"/elsewhere/.hoodie/.temp/{INSTANT}", name(1))
    with pytest.raises(RootNotAllowedError):
        service.delete(f"/elsewhere/.hoodie/.temp/{INSTANT}")


def test_a_refused_name_touches_no_storage() -> None:
    """It is refused before its table is looked for."""

    def table_of(base_path: str) -> tuple[TableId, Storage]:
        raise AssertionError(base_path)

    service = MarkerService(table_of)
    foreign = name(1).replace(INSTANT, OLDER)
    for refused in ("m", "p/m.marker.CREATE", foreign, foreign.replace("CREATE", "MERGE")):
        with pytest.raises(InputError, match="markername is"):
            create(service, f"/t/.hoodie/.temp/{INSTANT}", refused)
    service.close()


def test_a_marker_of_another_writes_file_is_refused_in_a_known_directory(
    base: Path, service: MarkerService
) -> None:
    assert create(service, directory(base), name(1)).result(PATIENCE_S)
    with pytest.raises(InputError, match=f"allowed under instant {INSTANT}"):
        create(service, directory(base), name(1).replace(INSTANT, OLDER))
    assert service.names(directory(base)) == (name(1),)


def log(instant: str, kind: str = "CREATE") -> str:
    return f"2024-01-01/.f0001-0_{instant}.log.1_0-1-1.marker.{kind}"


@pytest.mark.parametrize(("version", "taken"), [(9, True), (8, True), (6, False)])
def test_only_a_clustering_explains_a_new_log_of_another_instant(
    version: int, taken: bool, tmp_path: Path, service: MarkerService
) -> None:
    """While it resizes buckets, writes put rows also into logs that bear its instant."""
    base = tmp_path / "sound"
    storage = LocalStorage(str(base))
    config = TableConfig.create(name="t", record_key_fields=("id",), version=version)
    write_table_config(storage, config, create=True)
    TableMetaClient(storage, config).create_requested(
        CLUSTERING if taken else REPLACE_COMMIT,
        OLDER,
        RequestedReplaceMetadata(operation_type="CLUSTER"),
    )
    held = [create(service, directory(base), each) for each in (name(1), log(OLDER), name(2))]
    assert held[0].result(PATIENCE_S)
    assert held[2].result(PATIENCE_S)
    if taken:
        assert held[1].result(PATIENCE_S)
    else:
        with pytest.raises(InputError, match=f"allowed under instant {INSTANT}"):
            held[1].result(PATIENCE_S)
    with pytest.raises(InputError, match=f"allowed under instant {INSTANT}"):
        create(service, directory(base), log("20261121070000000")).result(PATIENCE_S)
    assert create(service, directory(base), log("20261121070000000", "APPEND")).result(PATIENCE_S)
    assert (log(OLDER) in service.names(directory(base))) is taken


@pytest.mark.parametrize(
    ("planned", "completion", "taken"),
    [
        (CLUSTERING, "20261121085959999", False),
        (CLUSTERING, "20261121090000001", True),
        (REPLACE_COMMIT, "20261121090000001", False),
    ],
    ids=["before the write", "beside the write", "no clustering"],
)
def test_a_log_of_a_clustering_that_completed_before_the_write_is_committed(
    tmp_path: Path,
    service: MarkerService,
    planned: str,
    completion: str,
    taken: bool,
) -> None:
    """Hudi leaves the plan of a clustering on the timeline, also when that is done."""
    base = tmp_path / "sound"
    storage = LocalStorage(str(base))
    config = TableConfig.create(name="t", record_key_fields=("id",), version=9)
    write_table_config(storage, config, create=True)
    timeline = TableMetaClient(storage, config).layout.folder
    for state in ("requested", "inflight"):
        storage.create(f"{timeline}/{OLDER}.{planned}.{state}")
    pending = create(service, directory(base), log(OLDER))
    assert (pending.exception(20) is None) is (planned == CLUSTERING)
    storage.create(f"{timeline}/{OLDER}_{completion}.replacecommit", b"{}")
    answer = create(service, directory(base), log(OLDER).replace("f0001", "f0002"))
    if taken:
        assert answer.result(PATIENCE_S)
    else:
        with pytest.raises(InputError, match=f"allowed under instant {INSTANT}"):
            answer.result(PATIENCE_S)


def test_the_query_of_a_creation_is_only_as_long_as_its_names(base: Path) -> None:
    with serving(str(base.parent)) as server, HttpClient(server.port) as client:
        asked = {
            "markerdirpath": directory(base),
            "markername": name(1),
            "x": "y" * 40_000,
        }
        status, body = client.ask("POST", "/v1/hoodie/marker/create", asked)
        assert status == 400
        assert body.endswith(b"bytes; allowed: up to 32768")
        assert files(base) == {}

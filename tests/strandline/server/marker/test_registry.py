"""The registry of marker directories: group commit, restarts, and tables that hang or fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from strandline.server.marker import directory as marker_directory
from strandline.server.marker import file as marker_file
from strandline.server.marker.directory import MarkerDirectory
from strandline.server.marker.registry import MarkerService
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import create
from tests.kit.storage.faulty_storage import Effect, Fault, FaultyStorage
from tests.strandline.server.marker.marker_service import INSTANT, Tables, directory, files, name
from timeline.errors import StorageUnavailableError
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId


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


@pytest.mark.property
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

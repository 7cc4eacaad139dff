"""Markers through the service: each file is announced, whatever becomes of service and driver."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from strandline.commit.markers import marked_files
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import reader
from tests.strandline.server.process.services import kill as kill_once
from tests.strandline.server.process.services import status_of
from tests.strandline.write.embedded.test_embedded import Killing, kill_for_good
from tests.strandline.write.tables import client, row, table
from timeline.errors import StorageUnavailableError
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property  # each starts a service

EARLY = {
    "write__concurrency__mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "write__concurrency__early__conflict__detection__enable": "true",
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
"""With these a task announces its files one by one."""
SERVED = {"embed__timeline__server": True, "write__markers__type": "TIMELINE_SERVER_BASED"}
ROWS = table(row("a"), row("b", "us"), row("c", "asia"), row("d", "é, /1"))
UPDATES = table(row("a", ts=2), row("b", "us", ts=2), row("e", "new"))
EXPECTED = ["a@2", "b@2", "c@1", "d@1", "e@1"]


class Watched(HookedStorage):
    """A local table that records the marker folder when the commit is about to complete.

    ``at_file(number)`` is called before each data file is created, counted from 1.
    """

    def __init__(self, base_path, at_file=lambda number: None):
        super().__init__(base_path, self._at_commit)
        # Shared by the copies that count their calls under other causes.
        self._at_file, self._numbers = at_file, itertools.count(1)
        self.folder: dict[str, str] = {}
        self.marked: tuple[str, ...] = ()

    def create_stream(self, path):
        self._at_file(next(self._numbers))
        return super().create_stream(path)

    def _at_commit(self, kind, path):
        if kind == "create" and path.endswith(".commit"):
            (folder,) = Path(self.base_path, ".hoodie/.temp").iterdir()
            found = [file for file in folder.rglob("*") if file.is_file()]
            self.folder = {str(file.relative_to(folder)): file.read_text() for file in found}
            self.marked = marked_files(LocalStorage(self.base_path), folder.name) or ()

    def check(self, base, instant):
        """Every file of the commit was announced, and the folder is readable as Hudi reads it."""
        names = [f"{p}/{name}" for p, name, _, time in reader.base_files(base) if time == instant]
        assert sorted(names) == sorted(self.marked)
        assert self.folder.pop("MARKERS.type") == "TIMELINE_SERVER_BASED"
        assert all(name.removeprefix("MARKERS").isdigit() for name in self.folder)
        lines = "".join(self.folder.values()).splitlines()
        assert {line.rpartition(".marker.")[0] for line in lines} == set(names)


def names(base) -> list[str]:
    return sorted(each["name"] for each in reader.rows(base))


def writing(base, storage=None, engine=None, **more) -> WriteClient:
    return client(base, storage, engine, **{**SERVED, **more})


def marker_calls(result) -> dict[str, int]:
    return {kind: n for (kind, cause), n in result.storage_calls.items() if cause == "marker"}


def test_tasks_create_no_markers_of_their_own(tmp_path):
    storage = Watched(tmp_path)
    with writing(tmp_path, storage) as c:
        result = c.upsert(ROWS)
        assert status_of(c.service)["markers"]["directories"] == 0
    storage.check(tmp_path, result.instant)
    assert result.marker_fallbacks == ()
    # The type of the markers; nothing for the four files.
    assert marker_calls(result)["create"] == 1
    assert reader.leftovers(tmp_path) == []


@pytest.mark.parametrize("early", [False, True])
def test_updates_are_announced_as_merges(tmp_path, early):
    with client(tmp_path) as c:
        c.upsert(ROWS)
    storage = Watched(tmp_path)
    with writing(tmp_path, storage, **(EARLY if early else {})) as c:
        result = c.upsert(UPDATES)
    storage.check(tmp_path, result.instant)
    lines = "".join(storage.folder.values()).splitlines()
    assert sorted(line.rpartition(".")[2] for line in lines) == ["CREATE", "MERGE", "MERGE"]
    assert names(tmp_path) == EXPECTED


@pytest.mark.parametrize("kill", [kill_once, kill_for_good])
def test_no_marker_is_lost_with_the_service(tmp_path, kill):
    """Killed after the first file's marker, with the others' to come."""
    with client(tmp_path) as c:
        c.upsert(ROWS)
    storage = Watched(tmp_path, lambda number: number == 1 and kill(c.service))
    with writing(tmp_path, storage, **EARLY) as c:
        result = c.upsert(UPDATES)
    storage.check(tmp_path, result.instant)
    # A connection that is seen to be dropped is made anew, and waits for the replacement.
    assert {each.cause for each in result.marker_fallbacks} <= {"unreachable"}
    assert result.marker_fallbacks or kill is kill_once
    assert len(result.marker_fallbacks) <= 2
    assert names(tmp_path) == EXPECTED
    assert reader.leftovers(tmp_path) == []


def test_a_write_that_fails_is_rolled_back_from_the_services_markers(tmp_path):
    with client(tmp_path) as c:
        c.upsert(ROWS)

    def fail(number):
        if number == 2:
            kill_once(c.service)
            raise StorageUnavailableError("injected")

    with (
        writing(tmp_path, Watched(tmp_path, fail)) as c,
        pytest.raises(StorageUnavailableError, match="injected"),
    ):
        c.upsert(UPDATES)
    assert any("MARKERS" in each for each in reader.leftovers(tmp_path))
    with writing(tmp_path) as c:
        assert len(c.upsert(UPDATES).rolled_back) == 1
    assert names(tmp_path) == EXPECTED
    assert reader.leftovers(tmp_path) == []


def test_without_a_service_markers_are_files(tmp_path, caplog):
    storage = Watched(tmp_path)
    with writing(tmp_path, storage, embed__timeline__server=False) as c:
        result = c.upsert(ROWS)
    (fallback,) = result.marker_fallbacks
    assert (fallback.cause, fallback.reason) == ("unreachable", "there is no timeline service")
    assert "didn't write all markers: there is no timeline service" in caplog.text
    assert "MARKERS.type" not in storage.folder
    assert len(storage.folder) == len(storage.marked) == 4


def test_a_service_that_gave_up_before_the_files_costs_one_reason(tmp_path):
    engine, storage = Killing(kill_for_good), Watched(tmp_path)
    with client(tmp_path, storage, engine, **SERVED) as c:
        c.upsert(ROWS)
        # The counts of the tagged rows, the last step before the files.
        engine.at, engine.client = 4, c
        result = c.upsert(UPDATES)
    (fallback,) = result.marker_fallbacks
    assert fallback.cause == "unreachable"
    assert "MARKERS.type" not in storage.folder
    assert len(storage.marked) == 3
    assert names(tmp_path) == EXPECTED
    assert reader.leftovers(tmp_path) == []


def test_a_table_that_the_service_cannot_see_has_direct_markers():
    storage = MemoryStorage()
    with writing("/not/here", storage) as c:
        result = c.bulk_insert(ROWS)
    assert [each.cause for each in result.marker_fallbacks] == ["refused"]
    assert storage.list(".hoodie/.temp") == ()


@pytest.mark.parametrize("partition", ["a.marker.b", "a\nb"])
def test_names_that_the_service_refuses_are_direct_markers(tmp_path, partition):
    storage = Watched(tmp_path)
    with writing(tmp_path, storage) as c:
        result = c.upsert(table(row("a"), row("b", partition)))
    (fallback,) = result.marker_fallbacks
    assert fallback.cause == "refused"
    assert "markername is" in fallback.reason
    assert "MARKERS.type" not in storage.folder
    assert len(storage.marked) == 2


def test_what_a_task_announced_too_late_is_swept(tmp_path):
    """A marker after the commit makes the folder anew; the next write deletes it and the file."""
    with writing(tmp_path) as c:
        result = c.upsert(ROWS)
        name = f"eu/00000000-0000-0000-0000-000000000000-0_9-9-9_{result.instant}.parquet"
        location = c._context.embedded.location(c._target().timeline)
        late = location.open_markers(f".hoodie/.temp/{result.instant}")
        assert late.create([f"{name}.marker.CREATE"])
        (tmp_path / name).write_bytes(b"torn")
        assert len(reader.leftovers(tmp_path)) == 3
        c.upsert(UPDATES)
        assert not (tmp_path / name).exists()
    assert names(tmp_path) == EXPECTED
    assert reader.leftovers(tmp_path) == []


def test_many_files_cost_few_calls(tmp_path):
    """All of the driver, the tasks and the service for markers: 16 instead of 603."""
    rows = table(*(row(f"k{number}", f"p{number:03}") for number in range(200)))
    with writing(tmp_path, engine=LocalEngine(tasks=4)) as c:
        c.upsert(table(row("k0", "p000")))
        before = calls_of(c.service)
        result = c.upsert(rows)
        made = calls_of(c.service) - before
    assert result.files == 200
    assert made + sum(marker_calls(result).values()) <= 24


def calls_of(service) -> int:
    """Return how many storage calls a service has made for markers."""
    (figures,) = status_of(service)["tables"].values()
    return sum(each["count"] for each in figures["storage_calls"] if each["cause"] == "marker")

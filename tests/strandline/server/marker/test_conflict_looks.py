"""When the conflict detector looks: its times, its state, and tables that hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.marker import registry as markers
from strandline.server.marker.conflict import ConflictOptions
from strandline.server.marker.conflict_watch import IDLE_PERIODS, ConflictDetector
from strandline.server.marker.file import directory_path
from strandline.server.marker.heartbeat import HEARTBEAT_FOLDER
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import Birth, PartsOptions
from strandline.server.table_threads import TableThreads
from strandline.settings.service import SERVICE_SETTINGS
from strandline.settings.setting import Settings
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import HttpClient, running
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from tests.strandline.server.marker.conflict_site import (
    COMMITS_TOO,
    GROUP,
    ON,
    OTHER,
    Inline,
    Site,
    T,
    heartbeat,
    marker,
    other_writer,
)
from timeline.clock import SystemClock
from timeline.errors import StorageUnavailableError
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId
from timeline.table.config import CONFIG_PATH


def listings(site: Site) -> int:
    calls = site.table.storage.calls.snapshot().items()
    return sum(n for (kind, _), n in calls if kind == "list")


def test_each_table_and_instant_has_a_state_of_its_own() -> None:
    """Hudi's server has one for all, which a write in between resets."""
    site = Site()
    other_writer(site)
    site.add("u")
    second, third = site.table.tick(), site.table.tick()
    for number in range(3):
        assert site.announce(second, number=number)
        assert site.announce(third, OTHER, number=number)
        assert site.announce(second, table="u", number=number)
    before = listings(site)
    site.look()
    site.look()
    assert listings(site) - before < 20
    for number in range(3, 6):
        assert not site.announce(second, number=number)
        assert site.announce(third, OTHER, number=number)
        assert site.announce(second, table="u", number=number)


def test_a_deleted_directory_is_looked_at_no_more() -> None:
    site = Site()
    other_writer(site)
    second = site.table.tick()
    assert site.announce(second)
    assert site.markers.status()["watched"] == 1
    assert site.markers.delete(f"/memory/t/{directory_path(second)}")
    assert site.markers.status()["watched"] == 0
    before = site.table.storage.calls.snapshot()
    site.look_later()
    assert site.table.storage.calls.snapshot() == before


# When it is looked for.


def looks(site: Site) -> int:
    return site.table.storage.calls.snapshot().get(("list", "conflict"), 0)


def test_looks_come_at_their_times_and_not_with_requests() -> None:
    site = Site()
    second = site.table.tick()
    assert site.announce(second)
    assert looks(site) == 0
    assert site.detector.run_due() is None
    first = looks(site)
    assert first > 0
    for number in range(1, 50):
        site.announce(second, number=number)
    assert site.detector.run_due() == 30.0
    site.clock.advance(29_999)
    assert site.detector.run_due() == pytest.approx(0.001)
    assert looks(site) == first
    site.clock.advance(-3_600_000)  # the wall clock doesn't matter
    site.clock.advance(1)
    site.look()
    assert looks(site) == first + 1


def test_the_first_look_waits_for_the_initial_delay() -> None:
    site = Site(replace(COMMITS_TOO, initial_delay_s=5.0))
    second = site.table.tick()
    assert site.announce(second)
    site.look()  # what was before is learnt at once
    site.table.write(GROUP)
    wait_s = site.detector.run_due()
    assert wait_s is not None
    assert 0 < wait_s < 5
    assert site.announce(second, number=1)
    site.clock.advance(round(wait_s * 1000))
    site.look()
    assert not site.announce(second, number=2)


def test_an_idle_directory_is_not_watched() -> None:
    site = Site()
    other_writer(site, OTHER)
    second = site.table.tick()
    assert site.announce(second)
    for _ in range(IDLE_PERIODS + 5):
        site.look_later()
    before = looks(site)
    assert site.detector.run_due() is None
    assert looks(site) == before
    assert site.announce(second, number=1)
    site.look()
    assert looks(site) > before


def test_a_failed_look_refuses_no_marker(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    other_writer(site)
    second = site.table.tick()
    assert site.announce(second)
    storage = site.table.storage
    assert isinstance(storage, MemoryStorage)

    def fail(kind: str, path: str) -> None:
        if path == CONFIG_PATH and kind == "read":
            raise StorageUnavailableError("no connection")

    storage.fail.append(fail)
    site.look()
    assert "can't check for early conflicts: no connection" in caplog.text
    assert site.announce(second, OTHER)
    storage.fail.clear()
    site.look_later()
    heartbeat(site.table, second)
    assert not site.announce(second, OTHER, number=1)


def test_a_disabled_detector_never_looks() -> None:
    site = Site(ConflictOptions())
    other_writer(site)
    second = site.table.tick()
    assert site.announce(second)
    site.look()
    assert site.announce(second, number=1)
    assert looks(site) == 0


def test_settings_have_hudis_names_and_defaults() -> None:
    assert ConflictOptions.of(Settings.parse({}, SERVICE_SETTINGS)) == ConflictOptions()
    said = {
        "hoodie.write.concurrency.early.conflict.detection.enable": "true",
        "hoodie.write.concurrency.early.conflict.check.commit.conflict": "true",
        "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms": "1500",
        "hoodie.write.concurrency.async.conflict.detector.period_ms": "10000",
        "hoodie.client.heartbeat.interval_in_ms": "20000",
        "hoodie.client.heartbeat.tolerable.misses": "3",
    }
    assert ConflictOptions.of(Settings.parse(said, SERVICE_SETTINGS)) == ConflictOptions(
        True, True, 1.5, 10.0, 60.0
    )


def test_settings_reach_a_child_process() -> None:
    birth = Birth(PartsOptions(("/lake",), conflicts=replace(ON, period_s=1.5)), ServerOptions())
    assert Birth.of_line(birth.to_line()) == birth


@pytest.mark.parametrize("sent", [True, False])
def test_over_http_only_requests_with_a_base_path_are_refused(tmp_path: Path, sent: bool) -> None:
    table = SmallTable(LocalStorage(str(tmp_path)))
    first, second = table.tick(), table.tick()
    storage = LocalStorage(str(tmp_path))
    storage.create(f"{directory_path(first)}/MARKERS0", f"{marker(GROUP, first)}\n".encode())
    options = replace(ON, period_s=0.001)
    parts = Parts(PartsOptions((str(tmp_path),), "t", conflicts=options), clock=SystemClock())
    with (
        running(ServiceServer(parts, ServerOptions())) as server,
        HttpClient(server.port, "t") as client,
    ):

        def create(number: int) -> bytes:
            asked = {
                "markerdirpath": f"{tmp_path}/{directory_path(second)}",
                "markername": marker(GROUP, second, number),
            }
            more = {"basepath": str(tmp_path)} if sent else {}
            status, body = client.ask("POST", "/v1/hoodie/marker/create", {**asked, **more})
            assert status == 200
            return body

        assert create(0) == b"true"
        storage.create(f"{HEARTBEAT_FOLDER}/{first}", b"alive")
        answers = (create(number) for number in range(1, 5000 if sent else 50))
        assert any(answer == b"false" for answer in answers) is sent


def test_a_conflict_is_remembered_while_other_writes_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(markers, "MAX_DIRECTORIES", 3)
    site = Site()
    other_writer(site)
    own = site.table.begin([]).instant.requested_time
    assert site.announce(own)
    site.look_later()
    assert not site.announce(own, number=1)
    for number in range(10):
        assert site.announce(f"2027010100000000{number}")
    assert not site.announce(own, number=2)
    assert site.markers.status()["directories"] <= 2 * 3


def test_a_repeated_request_is_in_no_conflict() -> None:
    site = Site()
    own = site.table.begin([]).instant.requested_time
    assert [site.announce(own) for _ in range(2)] == [True, True]
    assert [site.announce(own, number=1, refusable=False) for _ in range(2)] == [True, False]


class Look:
    """A look that hangs until it is let go, and finds a conflict."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = threading.Semaphore(0)

    def begin(self) -> None:
        self.began.release()
        assert self.go.wait(PATIENCE_S)

    def run(self) -> str | None:
        return "found"


def test_a_table_that_hangs_holds_up_the_looks_at_no_other() -> None:
    """However many of its directories are looked at; all of them are, in the end."""
    pool = TableThreads("test", 128, of_a_table=8)
    detector = ConflictDetector(ON, ManualClock(0), pool=pool)
    hanging, good = Look(), Look()
    good.go.set()
    for number in range(100):
        detector.watch(TableId.of("/hangs"), f"hanging {number}", hanging)
    detector.run_due()
    assert hanging.began.acquire(timeout=PATIENCE_S)
    detector.watch(TableId.of("/good"), "good", good)
    detector.run_due()
    assert good.began.acquire(timeout=PATIENCE_S)
    hanging.go.set()
    for _ in range(99):
        assert hanging.began.acquire(timeout=PATIENCE_S)
    pool.close(finish_s=20)


class NoThreads(Inline):
    """A pool without a thread, until there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.given = False

    def submit(self, table: Hashable, work: Callable[[], T]) -> Future[T]:
        if not self.given:
            raise RuntimeError("can't start new thread")
        return super().submit(table, work)


def test_without_a_thread_a_look_is_put_off() -> None:
    clock, pool, look = ManualClock(0), NoThreads(), Look()
    look.go.set()
    detector = ConflictDetector(ON, clock, pool=pool)
    watch = detector.watch(TableId.of("/t"), "t", look)
    assert detector.run_due() == ON.period_s
    pool.given = True
    clock.advance(int(ON.period_s * 1000))
    detector.run_due()
    assert watch.conflict == "found"

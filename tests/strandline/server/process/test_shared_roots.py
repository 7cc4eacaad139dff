"""The roots of a shared service are those of its clients, whatever happens to its process."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strandline import TimelineService
from strandline.server.process.shared_service import SharedService
from strandline.server.process.supervisor import RESTARTS_WITHIN_S
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.processes import wait_for_end
from tests.strandline.server.process.services import (
    LATEST,
    BrokenStart,
    end_lingering,
    kill,
    lingering,
    params,
    patient,
    status_of,
    wait_for_removals,
)
from timeline.errors import RootNotAllowedError, ServiceUnreachableError

pytestmark = pytest.mark.property


def roots(service: TimelineService) -> list[str]:
    """Return the roots that the child serves, which those of its supervisor must equal."""
    served: list[str] = status_of(service)["roots"]
    assert sorted(service._runner.roots) == served
    return served


def look_up(service: TimelineService, base: Path) -> bytes:
    return patient(service).get(LATEST, params(base))


def test_the_root_of_a_closed_client_goes_and_those_of_open_ones_stay(lake: Path) -> None:
    one, two = lake / "one", lake / "two"
    service = SharedService.acquire(str(one))
    for _ in range(2):
        SharedService.acquire(f"file://{two}/")
    assert roots(service) == [str(one), str(two)]
    assert look_up(service, one).startswith(b"[")
    assert look_up(service, two).startswith(b"[")
    service.release(str(two))
    wait_for_removals(service)
    assert look_up(service, two).startswith(b"[")
    service.release(str(two))
    wait_for_removals(service)
    assert roots(service) == [str(one)]
    with pytest.raises(RootNotAllowedError):
        look_up(service, two)
    status = status_of(service)
    assert list(status["tables"]) == [f"file://{one}"]
    assert look_up(service, one).startswith(b"[")
    service.release(str(one))
    assert not service.is_running


def test_a_table_below_the_root_of_an_open_client_stays(lake: Path) -> None:
    service = SharedService.acquire(str(lake))
    SharedService.acquire(str(lake / "one"))
    service.release(str(lake / "one"))
    wait_for_removals(service)
    assert roots(service) == [str(lake)]
    assert look_up(service, lake / "one").startswith(b"[")
    service.release(str(lake))


def test_a_replacement_serves_the_roots_of_open_clients_and_no_others(lake: Path) -> None:
    one, two = str(lake / "one"), str(lake / "two")
    service = SharedService.acquire(str(lake / "kept"))
    for _ in range(3):
        SharedService.acquire(one)
        SharedService.acquire(two)
        wait_for_end(kill(service))
        # While the child is being replaced: the root must reach neither it nor its successors.
        service.release(two)
        wait_for_removals(service)
        assert roots(service) == [str(lake / "kept"), one]
        service._runner._limit._times.clear()
        service.release(one)
        wait_for_removals(service)
        wait_for_end(kill(service))
        assert roots(service) == [str(lake / "kept")]
        service._runner._limit._times.clear()
    service.release(str(lake / "kept"))


def test_roots_that_come_and_go_while_the_child_is_killed_agree_in_the_end(lake: Path) -> None:
    clock = ManualClock(0)
    with TimelineService([str(lake / "kept")], clock=clock) as service:
        enough = threading.Event()

        def come_and_go(number: int) -> str:
            while True:
                service.add_root(f"/added/{number}")
                if enough.is_set():
                    return f"/added/{number}"
                service.remove_root(f"/added/{number}")

        with ThreadPoolExecutor(2) as threads:
            running = [threads.submit(come_and_go, number) for number in range(2)]
            for _ in range(5):
                wait_for_end(kill(service))
                clock.advance(int(RESTARTS_WITHIN_S * 1000))
            enough.set()
            left = sorted(thread.result() for thread in running)
        assert roots(service) == sorted([*left, str(lake / "kept")])


def test_roots_of_a_service_that_has_ended_can_not_be_changed(
    lake: Path, broken_start: BrokenStart
) -> None:
    with TimelineService([str(lake)]) as service:
        broken_start.fail()
        kill(service)
        for change in (service.add_root, service.remove_root):
            with pytest.raises(ServiceUnreachableError, match="has ended"):
                change(str(lake))


def test_an_open_client_always_finds_its_table(lake: Path) -> None:
    """Clients of one table come and go in several threads, so its root does, too."""
    service = SharedService.acquire(str(lake / "two"))

    def use(_: int) -> bool:
        assert SharedService.acquire(str(lake / "one")) is service
        try:
            return look_up(service, lake / "one").startswith(b"[")
        finally:
            service.release(str(lake / "one"))

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(use, range(60)))
    service.release(str(lake / "two"))


def test_a_root_is_kept_while_it_lingers_and_goes_before_the_service(lake: Path) -> None:
    one, two = str(lake / "one"), str(lake / "two")
    service = SharedService.acquire(one, lingering(0.3))
    pid = status_of(service)["pid"]
    SharedService.acquire(two)
    service.release(two)
    wait_for_removals(service)
    assert roots(service) == [one]
    # Again in use before its time is over.
    service._linger_s = 3600
    SharedService.acquire(two)
    service.release(two)
    assert look_up(SharedService.acquire(two), lake / "two").startswith(b"[")
    service.release(two)
    service.release(one)
    assert roots(service) == [one, two]
    assert status_of(service)["pid"] == pid
    end_lingering(service, lake / "one")


def test_a_driver_of_many_tables_holds_those_of_its_open_clients(lake: Path) -> None:
    service = SharedService.acquire(str(lake / "one"))
    pid, descriptors = status_of(service)["pid"], []
    for number in range(40):
        table = lake / f"many{number}"
        table.symlink_to(lake / "two")
        SharedService.acquire(str(table))
        assert look_up(service, table).startswith(b"[")
        service.release(str(table))
        wait_for_removals(service)
        status = status_of(service)
        assert status["roots"] == [str(lake / "one")]
        assert status["tables"] == {}
        assert status["store"]["budget"]["used_bytes"] == 0
        descriptors.append(len(os.listdir(f"/proc/{pid}/fd")))
    # Other threads of the service may have some open for a moment.
    assert min(descriptors[30:]) <= max(descriptors[:20])
    assert status["requests"]["latest_file_slices"] == 40
    service.release(str(lake / "one"))

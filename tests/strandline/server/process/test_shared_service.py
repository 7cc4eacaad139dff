"""The clients of a driver share a service, which may linger for the next one."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from executor_proxy.http import HttpSession
from strandline.server.process.shared_service import SharedService
from strandline.server.process.supervisor import RESTARTS
from strandline.settings.service import (
    EMBED_LINGER,
    EMBED_PORT,
    EMBED_REUSE,
    SERVICE_SETTINGS,
)
from strandline.settings.setting import Settings
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.free_port import free_port
from tests.kit.servers.processes import wait_for_end
from tests.strandline.server.process.services import (
    LATEST,
    BrokenStart,
    end_lingering,
    kill,
    lingering,
    params,
    status_of,
)
from timeline.errors import ServiceUnreachableError

pytestmark = pytest.mark.property


def test_tables_of_one_driver_share_a_service_unless_they_shall_not(lake: Path) -> None:
    one = SharedService.acquire(str(lake / "one"))
    two = SharedService.acquire(str(lake / "two"))
    assert one is two
    session = HttpSession(one.url, one.token)
    for table in ("one", "two"):
        assert session.get(LATEST, params(lake / table)).startswith(b"[")
    alone = Settings.parse({EMBED_REUSE.name: "false"}, SERVICE_SETTINGS)
    three = SharedService.acquire(str(lake), alone)
    assert three is not one
    three.release(str(lake))
    assert not three.is_running
    one.release(str(lake / "one"))
    assert two.is_running
    two.release(str(lake / "two"))
    assert not two.is_running


def test_a_service_that_lingers_is_there_for_the_next_user(lake: Path) -> None:
    """As clients that a streaming driver makes for each batch."""
    seen = set()
    for _ in range(3):
        service = SharedService.acquire(str(lake / "one"), lingering(3600))
        seen.add((service, service.url, status_of(service)["pid"], status_of(service)["restarts"]))
        service.release(str(lake / "one"))
        assert service.is_running
    assert len(seen) == 1
    end_lingering(service, lake / "one")


def test_a_service_lingers_only_so_long(lake: Path) -> None:
    service = SharedService.acquire(str(lake / "one"), lingering(0.1))
    pid = status_of(service)["pid"]
    service.release(str(lake / "one"))
    timer = service._timer.thread
    wait_for_end(pid)
    if timer is not None:
        timer.join(PATIENCE_S)
    again = SharedService.acquire(str(lake / "one"), lingering(0))
    assert again is not service
    again.release(str(lake / "one"))


def test_a_killed_service_that_lingers_is_replaced_for_the_next_user(lake: Path) -> None:
    service = SharedService.acquire(str(lake / "one"), lingering(3600))
    url, pid = service.url, status_of(service)["pid"]
    service.release(str(lake / "one"))
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    again = SharedService.acquire(str(lake / "one"), lingering(3600))
    assert (again.url, status_of(again)["restarts"]) == (url, 1)
    again.release(str(lake / "one"))
    end_lingering(service, lake / "one")


def test_users_that_come_while_it_stops_get_a_service_on_the_same_port(lake: Path) -> None:
    """A fixed port is free only when the last service has closed it."""
    settings = Settings.parse({EMBED_PORT.name: str(free_port())}, SERVICE_SETTINGS)

    def use(_: int) -> int:
        service = SharedService.acquire(str(lake / "one"), settings)
        try:
            return int(status_of(service)["pid"])
        finally:
            service.release(str(lake / "one"))

    with ThreadPoolExecutor(3) as threads:
        assert len(list(threads.map(use, range(9)))) == 9


@pytest.mark.parametrize("reuse", ["true", "false"])
def test_a_service_that_lingers_gives_up_its_fixed_port(lake: Path, reuse: str) -> None:
    """A renewed credential makes another key, of which no service lingers."""
    options = {EMBED_PORT.name: str(free_port()), EMBED_LINGER.name: "3600"}
    old = SharedService.acquire(str(lake / "one"), Settings.parse(options, SERVICE_SETTINGS))
    old.release(str(lake / "one"))
    settings = Settings.parse({**options, EMBED_REUSE.name: reuse}, SERVICE_SETTINGS)
    new = SharedService.acquire(str(lake / "one"), settings, storage_options={"token": "new"})
    assert (old.is_running, new.is_running) == (False, True)
    new._linger_s = 0
    new.release(str(lake / "one"))
    assert not SharedService._shared


def test_at_most_one_service_lingers(lake: Path) -> None:
    services = [
        SharedService.acquire(
            str(lake / "one"), lingering(3600), storage_options={"token": str(number)}
        )
        for number in range(3)
    ]
    assert all(service.is_running for service in services)
    for service in services:
        service.release(str(lake / "one"))
    assert [service.is_running for service in services] == [False, False, True]
    assert list(SharedService._shared.values()) == services[2:]
    SharedService.acquire(str(lake / "one"), lingering(0)).release(str(lake / "one"))
    assert not SharedService._shared


def test_another_store_for_a_shared_service_is_warned_of_once(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = Settings.parse({"hoodie.filesystem.view.type": "SPILLABLE_DISK"}, SERVICE_SETTINGS)
    service = SharedService.acquire(str(lake / "one"))
    try:
        for _ in range(2):
            assert SharedService.acquire(str(lake / "two"), wanted) is service
            service.release(str(lake / "two"))
    finally:
        service.release(str(lake / "one"))
    (warning,) = [r.getMessage() for r in caplog.records if "shared" in r.getMessage()]
    assert "kind='spillable'" in warning
    assert "kind='memory'" in warning


def test_a_service_that_gave_up_is_replaced_by_the_next_user(lake: Path) -> None:
    one = SharedService.acquire(str(lake / "one"))
    for _ in range(RESTARTS + 1):
        kill(one)
    with pytest.raises(ServiceUnreachableError):
        one.add_root("/more")
    two = SharedService.acquire(str(lake / "one"))
    assert two is not one
    one.release(str(lake / "one"))
    assert two.is_running
    assert SharedService.acquire(str(lake / "two")) is two
    two.release(str(lake / "one"))
    two.release(str(lake / "two"))
    assert not two.is_running


def test_tables_do_not_wait_for_the_start_of_another_service(
    lake: Path, broken_start: BrokenStart
) -> None:
    one = SharedService.acquire(str(lake / "one"))
    broken_start.hang()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(SharedService.acquire, str(lake / "one"), host="127.0.0.2")
        starting = broken_start.hanging()
        assert SharedService.acquire(str(lake / "two")) is one
        one.release(str(lake / "one"))
        one.release(str(lake / "two"))
        assert not one.is_running
        os.kill(starting, signal.SIGKILL)
        with pytest.raises(ServiceUnreachableError, match="ended with -9"):
            other.result(PATIENCE_S)
    assert not SharedService._shared

"""A service ends with its stop, with its driver however that ends, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from executor_proxy.http import HttpSession
from strandline import TimelineService
from strandline.server.process import supervisor
from tests.kit.concurrency.patience import PATIENCE_S, PROCESS_S, pause
from tests.kit.servers.processes import is_alive, wait_for_end
from tests.strandline.server.process.services import (
    REPOSITORY,
    BrokenStart,
    address,
    is_refused,
    kill,
    status_of,
)
from timeline.errors import StrandlineError

pytestmark = pytest.mark.property

LAST_INSTANT = "/v1/hoodie/view/timeline/instant/last"


def test_a_stop_during_a_restart_leaves_neither_process_nor_socket(
    lake: Path, broken_start: BrokenStart, caplog: pytest.LogCaptureFixture
) -> None:
    service = TimelineService([str(lake)])
    service.start()
    at = address(service)
    broken_start.hang()
    killed = kill(service)
    starting = broken_start.hanging()
    assert service.is_running
    assert is_alive(starting)
    service.stop()
    assert not is_alive(killed)
    assert not is_alive(starting)
    assert is_refused(at)
    assert not caplog.records


EXITING_DRIVER = """
import os, sys
from pathlib import Path
from strandline import TimelineService
folder, lake = sys.argv[1:]
sys.path.insert(0, folder)
service = TimelineService([lake])
service.start()
os.rename(f"{folder}/armed", f"{folder}/httptools.py")
os.kill(service.status()["pid"], 9)
print(Path(f"{folder}/began").read_text().strip(), service.url)
"""


def test_a_driver_exits_during_a_restart(lake: Path, broken_start: BrokenStart) -> None:
    broken_start.hang()
    os.rename(broken_start.folder / "httptools.py", broken_start.folder / "armed")
    driver = subprocess.run(
        [sys.executable, "-c", EXITING_DRIVER, str(broken_start.folder), str(lake)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
        timeout=PROCESS_S,
    )
    pid, url = driver.stdout.split()
    assert driver.stderr == ""
    wait_for_end(int(pid))
    at = urlsplit(url)
    assert is_refused((str(at.hostname), int(at.port or 0)))


def test_a_stop_lets_the_child_end_by_itself(
    lake: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patched: on a busy machine an end may take longer than the grace that everybody has.
    monkeypatch.setattr(supervisor, "KILL_AFTER_S", PATIENCE_S)
    for _ in range(5):
        service = TimelineService([str(lake)])
        service.start()
        child = service._runner._child._process
        service.stop()
        assert child.returncode == 0
    # Threads of earlier tests may log meanwhile.
    assert not [one for one in caplog.records if one.name.startswith("strandline.server")]


def test_a_process_that_outlives_the_child_does_not_keep_a_stop_waiting(lake: Path) -> None:
    service = TimelineService([str(lake)])
    service.start()
    child = service._runner._child
    # It holds the child's stderr, as a process that the child started would.
    stderr = os.open(f"/proc/{child.pid}/fd/2", os.O_WRONLY)
    try:
        service.stop()
        assert not is_alive(child.pid)
    finally:
        os.close(stderr)
        child._stderr_reader.join()


def test_a_service_that_is_dropped_without_a_stop_ends(lake: Path) -> None:
    service = TimelineService([str(lake)])
    service.start()
    at, pid = address(service), status_of(service)["pid"]
    del service
    wait_for_end(pid)
    assert is_refused(at)


DRIVER = """
import sys, time
from strandline import TimelineService
service = TimelineService([sys.argv[1]])
service.start()
print(service.status()["pid"], service.url, flush=True)
sys.stdin.readline()
{end}
"""


@pytest.mark.parametrize("end", ["kill -9", "exception"])
def test_the_service_ends_with_its_driver_however_that_ends(lake: Path, end: str) -> None:
    code = "1/0" if end == "exception" else ""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(end=code), str(lake)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        text=True,
    )
    with driver:
        assert driver.stdout is not None
        assert driver.stdin is not None
        pid, url = driver.stdout.readline().split()
        assert is_alive(int(pid))
        if end == "kill -9":
            driver.kill()
        else:
            driver.stdin.write("\n")
            driver.stdin.flush()
        driver.wait(PATIENCE_S)
    wait_for_end(int(pid))
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_an_interrupt_of_the_terminal_leaves_the_end_to_the_driver(lake: Path) -> None:
    with TimelineService([str(lake)]) as service:
        pid = status_of(service)["pid"]
        os.kill(pid, signal.SIGINT)
        assert status_of(service)["pid"] == pid
        os.kill(pid, signal.SIGTERM)
        wait_for_end(pid)
        assert service.is_running
        assert status_of(service)["pid"] != pid


STOPPED_DRIVER = """
import sys
from strandline import TimelineService
from strandline.settings.service import EMBED_PING_TIMEOUT, SERVICE_SETTINGS
from strandline.settings.setting import Settings
settings = Settings.parse({EMBED_PING_TIMEOUT.name: "2"}, SERVICE_SETTINGS)
with TimelineService([sys.argv[1]], settings=settings, token="") as service:
    for _ in sys.stdin:
        print(service.status()["pid"], service.url, flush=True)
"""


@pytest.fixture
def stopped_driver(lake: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED_DRIVER, str(lake)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        text=True,
    ) as driver:
        yield driver


def child_of(driver: subprocess.Popen[str]) -> tuple[int, str]:
    assert driver.stdin is not None
    assert driver.stdout is not None
    driver.stdin.write("\n")
    driver.stdin.flush()
    pid, url = driver.stdout.readline().split()
    return int(pid), url


def test_a_driver_that_was_stopped_does_not_kill_a_healthy_child(
    stopped_driver: subprocess.Popen[str],
) -> None:
    pid, url = child_of(stopped_driver)
    os.kill(stopped_driver.pid, signal.SIGSTOP)
    os.waitpid(stopped_driver.pid, os.WUNTRACED)
    session = HttpSession(url)
    until = time.monotonic() + 4  # two timeouts
    while time.monotonic() < until:
        assert session.get("/", {}) == b"Hello Hudi"
        pause()
    os.kill(stopped_driver.pid, signal.SIGCONT)
    for _ in range(100):
        assert child_of(stopped_driver)[0] == pid


def test_a_driver_that_was_stopped_does_not_stop_its_child_by_reading_no_log(
    stopped_driver: subprocess.Popen[str],
) -> None:
    pid, url = child_of(stopped_driver)
    os.kill(stopped_driver.pid, signal.SIGSTOP)
    os.waitpid(stopped_driver.pid, os.WUNTRACED)
    session = HttpSession(url)
    for number in range(300):
        with pytest.raises(StrandlineError, match="outside the roots"):
            session.get(LAST_INSTANT, {"basepath": f"/nope{number}/{'x' * 200}"})
    assert session.get("/", {}) == b"Hello Hudi"
    os.kill(stopped_driver.pid, signal.SIGCONT)
    assert child_of(stopped_driver)[0] == pid

"""A child that dies or hangs is replaced on the same port, until that is hopeless."""

from __future__ import annotations

import http.client
import json
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
import trustme

from executor_proxy.http import HttpSession
from strandline import TimelineService
from strandline.service.process.supervisor import RESTARTS, RESTARTS_WITHIN_S, RestartLimit
from strandline.settings.service import (
    EMBED_PING_TIMEOUT,
    SERVICE_SETTINGS,
    TLS_CA,
    TLS_CERTIFICATE,
    TLS_KEY,
)
from strandline.settings.setting import Settings
from tests.kit import golden
from tests.kit.manual_clock import ManualClock
from tests.kit.processes import is_alive, wait_for_end
from timeline.errors import ServiceUnreachableError

pytestmark = pytest.mark.property

REPOSITORY = Path(__file__).parents[4]
LATEST = "/v1/hoodie/view/slices/partition/latest/"
WINDOW_MS = int(RESTARTS_WITHIN_S * 1000)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    for table in ("one", "two"):
        golden.build("cow_basic_v9", 7, lake / table)
    return lake


def params(base: Path) -> dict[str, str]:
    return {"basepath": str(base), "partition": "2024-01-01", "refreshoff": "true"}


def address(service: TimelineService) -> tuple[str, int]:
    url = urlsplit(service.url)
    assert url.hostname is not None
    assert url.port is not None
    return url.hostname, url.port


def kill(service: TimelineService) -> int:
    """Kill the child that serves; return its process id."""
    pid: int = service.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    return pid


class Asking:
    """Asks over kept connections in threads, and repeats what a killed child didn't answer.

    A connection that is refused, or not answered in 30 seconds, fails the thread.
    """

    def __init__(self, service: TimelineService, base: Path, threads: int) -> None:
        self.address, self.token = address(service), service.token
        self.target = f"{LATEST}?{urlencode(params(base))}"
        self.enough = threading.Event()
        self.pool = ThreadPoolExecutor(threads)
        self.running = [self.pool.submit(self.ask) for _ in range(threads)]

    def ask(self) -> tuple[int, int, set[bytes]]:
        """Return how many requests were answered, and repeated, and the answers."""
        answered, repeated, answers = 0, 0, set()
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        headers = {"Authorization": f"Bearer {self.token}"}
        while not self.enough.is_set():
            try:
                connection.request("GET", self.target, headers=headers)
                response = connection.getresponse()
                answers.add(response.read())
                assert response.status == 200
                answered += 1
            except (ConnectionResetError, BrokenPipeError, http.client.HTTPException):
                repeated += 1
                connection.close()
        connection.close()
        return answered, repeated, answers

    def results(self) -> list[tuple[int, int, set[bytes]]]:
        self.enough.set()
        with self.pool:
            return [thread.result() for thread in self.running]


def test_killed_twenty_times_it_answers_every_request(lake: Path) -> None:
    clock = ManualClock(0)
    with TimelineService([str(lake / "one")], clock=clock) as service:
        url, token = service.url, service.token
        asking = Asking(service, lake / "one", 3)
        pids = []
        for turn in range(20):
            pids.append(kill(service))
            clock.advance(WINDOW_MS)
            if turn == 5:
                # Returns once the replacement, or the one that was killed before, serves it.
                service.add_root(str(lake / "two"))
        status = service.status()
        results = asking.results()
        assert (service.url, service.token) == (url, token)
        assert status["restarts"] == 20
        assert len({*pids, status["pid"]}) == 21
        session = HttpSession(url, token)
        assert len(json.loads(session.get(LATEST, params(lake / "two")))) == 2
    assert not any(map(is_alive, pids))
    assert sum(repeated for _, repeated, _ in results) > 0
    assert all(answered > 0 for answered, _, _ in results)
    (answer,) = set.union(*(answers for _, _, answers in results))
    assert len(json.loads(answer)) == 2


def test_a_root_is_served_when_adding_it_returns_although_the_child_was_killed(
    lake: Path,
) -> None:
    with TimelineService([str(lake / "one")]) as service:
        for table in ("two", "three"):
            kill(service)
            service.add_root(str(lake / table))
        kill(service)
        session = HttpSession(service.url, service.token)
        assert session.get(LATEST, params(lake / "two")).startswith(b"[")


def test_a_child_that_hangs_is_killed_and_replaced(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings.parse({EMBED_PING_TIMEOUT.name: "3"}, SERVICE_SETTINGS)
    with TimelineService([str(lake)], settings=settings) as service:
        pid = service.status()["pid"]
        os.kill(pid, signal.SIGSTOP)
        service.add_root(str(lake / "two"))
        after = service.status()
        assert after["pid"] != pid
        assert after["restarts"] == 1
        assert not is_alive(pid)
        (line,) = [record.getMessage() for record in caplog.records]
        assert line == (
            f"the timeline service's process {pid} did not answer for 3 s and was killed;"
            f" process {after['pid']} replaces it on {service.url} (restart 1)"
        )


def test_a_tls_service_keeps_its_certificate_and_token(lake: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    files = {TLS_CA: "ca.pem", TLS_CERTIFICATE: "service.pem", TLS_KEY: "service.key"}
    paths = {setting: tmp_path / name for setting, name in files.items()}
    authority.cert_pem.write_to_path(str(paths[TLS_CA]))
    issued.private_key_pem.write_to_path(str(paths[TLS_KEY]))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(paths[TLS_CERTIFICATE]), append=True)
    settings = Settings.parse(
        {setting.name: str(path) for setting, path in paths.items()}, SERVICE_SETTINGS
    )
    with TimelineService([str(lake)], settings=settings) as service:
        session = HttpSession(service.url, service.token, ca_file=service.ca_file)
        before = session.get(LATEST, params(lake / "one"))
        pid = kill(service)
        wait_for_end(pid)
        assert session.get(LATEST, params(lake / "one")) == before
        assert service.status()["restarts"] == 1


def test_a_replacement_with_rocksdb_continues_from_the_stored_view(
    lake: Path, tmp_path: Path
) -> None:
    """Its store is free: the child that was killed is reaped before another is started."""
    with TimelineService([str(lake)], storage="rocksdb", store_dir=str(tmp_path)) as service:
        session = HttpSession(service.url, service.token)
        before = session.get(LATEST, params(lake / "one"))
        wait_for_end(kill(service))
        assert session.get(LATEST, params(lake / "one")) == before
        (table,) = service.status()["tables"].values()
        loads = [name for name in table["counters"] if name.startswith("partition_loads")]
        assert loads
        assert all("source=record" in name for name in loads)


class BrokenStart:
    """Once armed, breaks the start of each child: Python code in place of a library of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.began = folder / "began"
        os.mkfifo(self.began)

    def fail(self) -> None:
        self._import("raise ImportError('this httptools is broken')")

    def hang(self) -> None:
        self._import(
            f"import os, signal\nwith open({str(self.began)!r}, 'w') as began:\n"
            "    print(os.getpid(), file=began)\nsignal.pause()\n"
        )

    def hanging(self) -> int:
        """Wait until a child hangs; return its process id."""
        return int(self.began.read_text())

    def _import(self, code: str) -> None:
        (self.folder / "httptools.py").write_text(code)


@pytest.fixture
def broken_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokenStart:
    # Patched: the child imports what its driver imports.
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return BrokenStart(tmp_path)


def is_refused(at: tuple[str, int]) -> bool:
    try:
        socket.create_connection(at, timeout=20).close()
    except ConnectionRefusedError:
        return True
    return False


def test_after_three_restarts_in_vain_it_gives_up_and_refuses_connections(
    lake: Path, broken_start: BrokenStart, caplog: pytest.LogCaptureFixture
) -> None:
    with TimelineService([str(lake)]) as service:
        at, url = address(service), service.url
        broken_start.fail()
        pid = kill(service)
        with socket.create_connection(at, timeout=20) as waiting:
            with pytest.raises(ServiceUnreachableError, match=f"on {url} has ended"):
                service.add_root(str(lake / "two"))
            assert not service.is_running
            assert is_refused(at)
            # A connection in the backlog is cut off, too.
            with pytest.raises(ConnectionResetError):
                waiting.recv(1)
        lines = [record.getMessage() for record in caplog.records if "process" in record.msg]
        failed, last = lines[:-1], lines[-1]
        assert len(failed) == RESTARTS
        assert all(
            "can't be replaced: the timeline service's process ended with 1" in line
            for line in failed
        )
        assert "this httptools is broken" in failed[0]
        assert last == (
            f"the timeline service's process {pid} ended with -9; it is not replaced any more"
            f" after 3 restarts within 60 s, and {url} is closed"
        )
    assert not is_alive(pid)


def test_a_child_that_dies_again_and_again_is_not_replaced_for_ever(lake: Path) -> None:
    clock = ManualClock(0)
    with TimelineService([str(lake)], clock=clock) as service:
        at = address(service)
        for _ in range(RESTARTS + 1):
            kill(service)
        with pytest.raises(ServiceUnreachableError):
            service.add_root(str(lake / "two"))
        assert is_refused(at)


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
        timeout=60,
    )
    pid, url = driver.stdout.split()
    assert driver.stderr == ""
    wait_for_end(int(pid))
    at = urlsplit(url)
    assert is_refused((str(at.hostname), int(at.port or 0)))


def test_a_stop_lets_the_child_end_by_itself(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        service = TimelineService([str(lake)])
        service.start()
        child = service._runner._child._process
        service.stop()
        assert child.returncode == 0
    assert not caplog.records


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
    at, pid = address(service), service.status()["pid"]
    del service
    wait_for_end(pid)
    assert is_refused(at)


def live_until_a_byte(began: int, reader: int) -> None:
    os.write(began, b".")
    os.read(reader, 1)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("in_process", [False, True])
def test_a_forked_process_holds_no_copy_of_the_socket(lake: Path, in_process: bool) -> None:
    context = multiprocessing.get_context("fork")
    reader, writer = os.pipe()
    has_begun, began = os.pipe()
    service = TimelineService([str(lake)], in_process=in_process)
    service.start()
    at = address(service)
    fork = context.Process(target=live_until_a_byte, args=(began, reader))
    fork.start()
    os.read(has_begun, 1)
    service.stop()
    refused, lives = is_refused(at), fork.is_alive()
    os.write(writer, b".")
    fork.join(20)
    assert (refused, lives, fork.exitcode) == (True, True, 0)
    for descriptor in (reader, writer, has_begun, began):
        os.close(descriptor)


FORKING_DRIVER = """
import os, sys
from strandline import TimelineService
service = TimelineService([sys.argv[1]])
service.start()
url = service.url
for _ in range(3):
    pid = service.status()["pid"]
    os.kill(pid, 9)
    # Forks while the ended child's descriptors are closed and its replacement's are made.
    for _ in range(40):
        if os.fork() == 0:
            sys.stdin.read()
            os._exit(0)
print(service.status()["pid"], url, flush=True)
os.kill(os.getpid(), 9)
"""


def test_processes_forked_during_restarts_keep_neither_child_nor_socket(lake: Path) -> None:
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING_DRIVER, str(lake)],
        stdin=reader,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        text=True,
    ) as driver:
        os.close(reader)
        assert driver.stdout is not None
        pid, url = driver.stdout.readline().split()
        wait_for_end(int(pid))
        at = urlsplit(url)
        refused = is_refused((str(at.hostname), int(at.port or 0)))
        os.close(writer)
    assert refused


def test_a_child_inherits_its_sockets_and_pipes_only(lake: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    with TimelineService([str(lake)]) as one, TimelineService([str(lake)]) as two:
        listeners = []
        for service in (one, two):
            pid = kill(service)
            wait_for_end(pid)
            links = Path(f"/proc/{service.status()['pid']}/fd").iterdir()
            opened = {os.readlink(link) for link in links}
            assert os.readlink(f"/proc/self/fd/{writer}") not in opened
            listeners.append({name for name in opened if name.startswith("socket:")})
        assert not listeners[0] & listeners[1]
    os.close(reader)
    os.close(writer)


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
    os.kill(stopped_driver.pid, signal.SIGCONT)
    for _ in range(100):
        assert child_of(stopped_driver)[0] == pid


def test_a_service_that_gave_up_is_replaced_by_the_next_user(lake: Path) -> None:
    one = TimelineService.acquire(str(lake / "one"))
    for _ in range(RESTARTS + 1):
        kill(one)
    with pytest.raises(ServiceUnreachableError):
        one.add_root("/more")
    two = TimelineService.acquire(str(lake / "one"))
    assert two is not one
    one.release()
    assert two.is_running
    assert TimelineService.acquire(str(lake / "two")) is two
    two.release()
    two.release()
    assert not two.is_running


def test_tables_do_not_wait_for_the_start_of_another_service(
    lake: Path, broken_start: BrokenStart
) -> None:
    one = TimelineService.acquire(str(lake / "one"))
    broken_start.hang()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(TimelineService.acquire, str(lake / "one"), host="127.0.0.2")
        starting = broken_start.hanging()
        assert TimelineService.acquire(str(lake / "two")) is one
        one.release()
        one.release()
        assert not one.is_running
        os.kill(starting, signal.SIGKILL)
        with pytest.raises(ServiceUnreachableError, match="ended with -9"):
            other.result(20)
    assert not TimelineService._shared


def test_the_limit_counts_restarts_within_a_moving_window() -> None:
    limit = RestartLimit()
    assert [limit.allow(now) for now in (0, 10, 20, 59.9)] == [True, True, True, False]
    assert [limit.allow(now) for now in (60, 60.1, 70, 79.9, 80)] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_the_log_is_one_line_a_restart(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    with TimelineService([str(lake)]) as service, caplog.at_level(logging.INFO, "strandline"):
        pid = kill(service)
        wait_for_end(pid)
        after = service.status()
        (line,) = [record.getMessage() for record in caplog.records]
        assert line == (
            f"the timeline service's process {pid} ended with -9; process {after['pid']}"
            f" replaces it on {service.url} (restart 1)"
        )

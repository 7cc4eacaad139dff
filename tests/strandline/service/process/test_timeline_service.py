"""``TimelineService``: a child of its driver that lives exactly as long as the driver."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from executor_proxy.http import HttpSession
from strandline import TimelineService
from strandline.service.http.authorization import new_token
from strandline.settings.service import EMBED_LINGER, EMBED_PORT, EMBED_REUSE, SERVICE_SETTINGS
from strandline.settings.setting import Settings
from tests.kit import golden
from tests.kit.processes import is_alive, wait_for_end
from timeline.errors import (
    ConfigError,
    RemoteFailureError,
    RootNotAllowedError,
    ServiceUnreachableError,
)

pytestmark = pytest.mark.property

REPOSITORY = Path(__file__).parents[4]
LATEST = "/v1/hoodie/view/slices/partition/latest/"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    golden.build("cow_basic_v9", 7, lake / "one")
    golden.build("cow_basic_v6", 3, lake / "two")
    return lake


@pytest.fixture(scope="module")
def service(lake: Path) -> Iterator[TimelineService]:
    with TimelineService([str(lake / "one")]) as service:
        yield service


def params(base: Path, **more: str) -> dict[str, str]:
    return {"basepath": str(base), "partition": "2024-01-01", "refreshoff": "true", **more}


def test_it_answers_from_a_process_of_its_own(service: TimelineService, lake: Path) -> None:
    session = HttpSession(service.url, service.token)
    body = json.loads(session.get(LATEST, params(lake / "one")))
    assert len(body) == 2
    status = service.status()
    assert status["pid"] != os.getpid()
    assert status["requests"]["latest_file_slices"] >= 1
    assert is_alive(status["pid"])


def test_the_token_is_random_needed_and_seen_nowhere(service: TimelineService, lake: Path) -> None:
    token = service.token
    assert token
    assert token != new_token()
    with pytest.raises(RemoteFailureError, match="401"):
        HttpSession(service.url, "another").get(LATEST, params(lake / "one"))
    assert token not in repr(service)
    pid = service.status()["pid"]
    for file in ("cmdline", "environ"):
        assert token.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()
    with urllib.request.urlopen(f"{service.url}/healthz") as response:
        assert response.status == 200


def test_a_root_can_be_added_and_serves_when_that_returns(
    service: TimelineService, lake: Path
) -> None:
    session = HttpSession(service.url, service.token)
    with pytest.raises(RootNotAllowedError, match="outside the roots"):
        session.get(LATEST, params(lake / "two"))
    service.add_root(str(lake / "two"))
    assert session.get(LATEST, params(lake / "two")).startswith(b"[")


def test_an_empty_token_admits_everybody(lake: Path) -> None:
    with TimelineService([str(lake)], token="", in_process=True) as service:
        assert service.token is None
        assert HttpSession(service.url).get("/", {}) == b"Hello Hudi"


def test_in_process_it_is_the_same_service(lake: Path) -> None:
    with TimelineService([str(lake)], in_process=True) as service:
        assert service.is_running
        assert service.status()["pid"] == os.getpid()
        session = HttpSession(service.url, service.token)
        assert session.get(LATEST, params(lake / "one")).startswith(b"[")
        url = service.url
    assert not service.is_running
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_it_can_be_stopped_twice_and_started_again(lake: Path) -> None:
    service = TimelineService([str(lake)], in_process=True)
    service.start()
    with pytest.raises(ServiceUnreachableError, match="started already"):
        service.start()
    service.stop()
    service.stop()
    with pytest.raises(ServiceUnreachableError, match="isn't running"):
        _ = service.url
    service.start()
    assert service.status()["uptime_s"] >= 0
    service.stop()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"store_dir": "/x"}, "store directory /x: storage memory keeps no files"),
        ({"storage": "tape"}, "storage is 'tape'; allowed: memory, spillable, rocksdb"),
        ({"roots": []}, r"roots is \[\]; it must be"),
        ({"roots": "/lake"}, "roots is '/lake'; it must be"),
        ({"host": "192.0.2.1"}, r"can't listen on 192\.0\.2\.1 port 0: Cannot assign"),
        ({"storage_options": {"key": object()}}, "storage_options can't be handed"),
    ],
)
def test_a_start_that_can_not_be_is_refused_in_words(wrong: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TimelineService(**{"roots": ["/lake"], **wrong}).start()


def test_a_port_in_use_is_refused(lake: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}: Address already in use"):
            TimelineService([str(lake)], port=port).start()


def test_a_child_that_can_not_start_leaves_its_last_words(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "httptools.py").write_text("raise ImportError('this httptools is broken')")
    # Patched: the child imports what its driver imports.
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ServiceUnreachableError) as caught:
        TimelineService([str(lake)]).start()
    assert "the timeline service's process ended with 1:" in str(caught.value)
    assert "this httptools is broken" in str(caught.value)


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
def test_it_ends_with_its_driver_however_that_ends(lake: Path, end: str) -> None:
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
        driver.wait(20)
    wait_for_end(int(pid))
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_an_interrupt_of_the_terminal_leaves_the_end_to_the_driver(lake: Path) -> None:
    with TimelineService([str(lake)]) as service:
        pid = service.status()["pid"]
        os.kill(pid, signal.SIGINT)
        assert service.status()["pid"] == pid
        os.kill(pid, signal.SIGTERM)
        wait_for_end(pid)
        assert service.is_running
        assert service.status()["pid"] != pid


def use_after_fork(service: TimelineService, answers: multiprocessing.Queue) -> None:
    said = []
    for use in (lambda: service.url, service.status, lambda: service.add_root("/x"), service.start):
        try:
            use()
        except ServiceUnreachableError as exc:
            said.append(str(exc))
    service.stop()
    service.release()
    answers.put((said, service.is_running))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("in_process", [False, True])
def test_after_a_fork_it_is_unusable_and_harmless(lake: Path, in_process: bool) -> None:
    context = multiprocessing.get_context("fork")
    with TimelineService([str(lake)], in_process=in_process) as service:
        pid = service.status()["pid"]
        answers = context.Queue()
        fork = context.Process(target=use_after_fork, args=(service, answers))
        fork.start()
        said, running = answers.get(timeout=20)
        fork.join(20)
        assert fork.exitcode == 0
        answers.close()
        assert len(said) == 4
        assert all(f"belongs to process {os.getpid()}, which was forked" in text for text in said)
        assert not running
        assert service.status()["pid"] == pid


FORKING_DRIVER = """
import os, sys
from strandline import TimelineService
service = TimelineService([sys.argv[1]])
service.start()
pid = service.status()["pid"]
if os.fork() == 0:
    sys.stdin.readline()  # outlives the driver, and holds copies of all its pipes but ours
    os._exit(0)
print(pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_forked_process_that_lives_on_does_not_keep_it(lake: Path) -> None:
    reader, writer = os.pipe()
    driver = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING_DRIVER, str(lake)],
        stdin=reader,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        text=True,
    )
    with driver:
        assert driver.stdout is not None
        wait_for_end(int(driver.stdout.readline()))
        os.close(writer)
    os.close(reader)


@pytest.fixture(autouse=True)
def _no_shared_services() -> Iterator[None]:
    yield
    assert not TimelineService._shared


def test_tables_of_one_driver_share_a_service_unless_they_shall_not(lake: Path) -> None:
    one = TimelineService.acquire(str(lake / "one"))
    two = TimelineService.acquire(str(lake / "two"))
    assert one is two
    session = HttpSession(one.url, one.token)
    for table in ("one", "two"):
        assert session.get(LATEST, params(lake / table)).startswith(b"[")
    alone = Settings.parse({EMBED_REUSE.name: "false"}, SERVICE_SETTINGS)
    three = TimelineService.acquire(str(lake), alone)
    assert three is not one
    three.release()
    assert not three.is_running
    one.release()
    assert two.is_running
    two.release()
    assert not two.is_running


def lingering(seconds: float) -> Settings:
    return Settings.parse({EMBED_LINGER.name: str(seconds)}, SERVICE_SETTINGS)


def end_lingering(service: TimelineService, lake: Path) -> None:
    service._linger_s = 0
    assert TimelineService.acquire(str(lake / "one")) is service
    service.release()
    assert not service.is_running


def test_a_service_that_lingers_is_there_for_the_next_user(lake: Path) -> None:
    """As clients that a streaming driver makes for each batch."""
    seen = set()
    for _ in range(3):
        service = TimelineService.acquire(str(lake / "one"), lingering(3600))
        seen.add((service, service.url, service.status()["pid"], service.status()["restarts"]))
        service.release()
        assert service.is_running
    assert len(seen) == 1
    end_lingering(service, lake)


def test_a_service_lingers_only_so_long(lake: Path) -> None:
    service = TimelineService.acquire(str(lake / "one"), lingering(0.1))
    pid = service.status()["pid"]
    service.release()
    timer = service._timer.thread
    wait_for_end(pid)
    if timer is not None:
        timer.join(20)
    again = TimelineService.acquire(str(lake / "one"), lingering(0))
    assert again is not service
    again.release()


def test_a_killed_service_that_lingers_is_replaced_for_the_next_user(lake: Path) -> None:
    service = TimelineService.acquire(str(lake / "one"), lingering(3600))
    url, pid = service.url, service.status()["pid"]
    service.release()
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    again = TimelineService.acquire(str(lake / "one"), lingering(3600))
    assert (again.url, again.status()["restarts"]) == (url, 1)
    again.release()
    end_lingering(service, lake)


def test_users_that_come_while_it_stops_get_a_service_on_the_same_port(lake: Path) -> None:
    """A fixed port is free only when the last service has closed it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = Settings.parse({EMBED_PORT.name: str(port)}, SERVICE_SETTINGS)

    def use(_: int) -> int:
        service = TimelineService.acquire(str(lake / "one"), settings)
        try:
            return int(service.status()["pid"])
        finally:
            service.release()

    with ThreadPoolExecutor(3) as threads:
        assert len(list(threads.map(use, range(9)))) == 9


@pytest.mark.parametrize("reuse", ["true", "false"])
def test_a_service_that_lingers_gives_up_its_fixed_port(lake: Path, reuse: str) -> None:
    """A renewed credential makes another key, of which no service lingers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        options = {EMBED_PORT.name: str(free.getsockname()[1]), EMBED_LINGER.name: "3600"}
    old = TimelineService.acquire(str(lake / "one"), Settings.parse(options, SERVICE_SETTINGS))
    old.release()
    settings = Settings.parse({**options, EMBED_REUSE.name: reuse}, SERVICE_SETTINGS)
    new = TimelineService.acquire(str(lake / "one"), settings, storage_options={"token": "new"})
    assert (old.is_running, new.is_running) == (False, True)
    new._linger_s = 0
    new.release()
    assert not TimelineService._shared


def test_at_most_one_service_lingers(lake: Path) -> None:
    services = [
        TimelineService.acquire(
            str(lake / "one"), lingering(3600), storage_options={"token": str(number)}
        )
        for number in range(3)
    ]
    assert all(service.is_running for service in services)
    for service in services:
        service.release()
    assert [service.is_running for service in services] == [False, False, True]
    assert list(TimelineService._shared.values()) == services[2:]
    TimelineService.acquire(str(lake / "one"), lingering(0)).release()
    assert not TimelineService._shared


class StoppedMeanwhile(TimelineService):
    """A service that another thread stops after each look at its runner."""

    _runner = property(lambda self: vars(self).pop("runner", None), lambda self, _: None)


def test_a_service_may_be_stopped_while_it_is_asked_whether_it_runs(lake: Path) -> None:
    service = StoppedMeanwhile([str(lake)])
    with TimelineService([str(lake)], in_process=True) as other:
        for expected in ({"is_running": True}, {"_has_ended": False}, {"url": other.url}):
            ((name, value),) = expected.items()
            vars(service)["runner"] = other._runner
            assert getattr(service, name) == value


def loads_of(service: TimelineService, base: Path) -> dict[str, int]:
    """Return how many partitions came from where."""
    (table,) = service.status()["tables"].values()
    counters = table["counters"].items()
    return {
        name.partition("source=")[2].partition("}")[0].partition(",")[0]: count
        for name, count in counters
        if name.startswith("partition_loads")
    }


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_service_with_rocksdb_goes_on_from_where_the_last_one_was(
    lake: Path, tmp_path: Path, how: str
) -> None:
    base = lake / "one"
    answers = []
    for turn in range(2):
        with TimelineService([str(base)], storage="rocksdb", store_dir=str(tmp_path)) as service:
            http = HttpSession(service.url, token=service.token)
            answers.append(http.get(LATEST, params(base)))
            assert loads_of(service, base) == {("record" if turn else "listing"): 1}
            if how == "killed":
                pid = service.status()["pid"]
                os.kill(pid, signal.SIGKILL)
                wait_for_end(pid)
    assert answers[0] == answers[1]


def test_another_store_for_a_shared_service_is_warned_of_once(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = Settings.parse({"hoodie.filesystem.view.type": "SPILLABLE_DISK"}, SERVICE_SETTINGS)
    service = TimelineService.acquire(str(lake / "one"))
    try:
        for _ in range(2):
            assert TimelineService.acquire(str(lake / "two"), wanted) is service
            service.release()
    finally:
        service.release()
    (warning,) = [r.getMessage() for r in caplog.records if "shared" in r.getMessage()]
    assert "kind='spillable'" in warning
    assert "kind='memory'" in warning

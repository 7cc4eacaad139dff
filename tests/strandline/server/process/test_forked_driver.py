"""A process that is forked from the driver holds nothing of the service."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from strandline import TimelineService
from strandline.server.process.shared_service import SharedService
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.processes import wait_for_end
from tests.strandline.server.process.services import (
    REPOSITORY,
    address,
    is_refused,
    kill,
    status_of,
)
from timeline.errors import ServiceUnreachableError

pytestmark = pytest.mark.property


def use_after_fork(service: TimelineService, answers: multiprocessing.Queue) -> None:
    said = []
    for use in (lambda: service.url, service.status, lambda: service.add_root("/x"), service.start):
        try:
            use()
        except ServiceUnreachableError as exc:
            said.append(str(exc))
    service.stop()
    answers.put((said, service.is_running))


def release_after_fork(service: SharedService, root: str, answers: multiprocessing.Queue) -> None:
    service.release(root)
    answers.put(len(SharedService._shared))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("in_process", [False, True])
def test_after_a_fork_the_service_is_unusable_and_harmless(lake: Path, in_process: bool) -> None:
    context = multiprocessing.get_context("fork")
    with TimelineService([str(lake)], in_process=in_process) as service:
        pid = status_of(service)["pid"]
        answers = context.Queue()
        fork = context.Process(target=use_after_fork, args=(service, answers))
        fork.start()
        said, running = answers.get(timeout=PATIENCE_S)
        fork.join(PATIENCE_S)
        assert fork.exitcode == 0
        answers.close()
        assert len(said) == 4
        assert all(f"belongs to process {os.getpid()}, which was forked" in text for text in said)
        assert not running
        assert status_of(service)["pid"] == pid


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_release_in_a_forked_process_leaves_the_drivers_service(lake: Path) -> None:
    context = multiprocessing.get_context("fork")
    service, answers = SharedService.acquire(str(lake)), context.Queue()
    fork = context.Process(target=release_after_fork, args=(service, str(lake), answers))
    fork.start()
    assert answers.get(timeout=PATIENCE_S) == 0
    fork.join(PATIENCE_S)
    answers.close()
    assert status_of(service)["roots"] == [str(lake)]
    service.release(str(lake))


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


def test_a_forked_process_that_lives_on_does_not_keep_the_service(lake: Path) -> None:
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
    fork.join(PATIENCE_S)
    assert (refused, lives, fork.exitcode) == (True, True, 0)
    for descriptor in (reader, writer, has_begun, began):
        os.close(descriptor)


RESTARTING_DRIVER = """
import os, sys
from strandline import TimelineService
from tests.strandline.server.process.services import kill, status_of
service = TimelineService([sys.argv[1]])
service.start()
url = service.url
for _ in range(3):
    kill(service)
    # Forks while the ended child's descriptors are closed and its replacement's are made.
    for _ in range(40):
        if os.fork() == 0:
            os.close(1)  # whoever reads the driver's output finds its end, should the driver fail
            sys.stdin.read()
            os._exit(0)
print(status_of(service)["pid"], url, flush=True)
os.kill(os.getpid(), 9)
"""


def test_processes_forked_during_restarts_keep_neither_child_nor_socket(lake: Path) -> None:
    reader, writer = os.pipe()
    with (
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RESTARTING_DRIVER, str(lake)],
            stdin=reader,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            text=True,
        ) as driver,
        open(writer, "w"),  # the forked processes end when this is closed
    ):
        os.close(reader)
        assert driver.stdout is not None
        pid, url = driver.stdout.readline().split()
        wait_for_end(int(pid))
        at = urlsplit(url)
        assert is_refused((str(at.hostname), int(at.port or 0)))


def test_a_child_inherits_its_sockets_and_pipes_only(lake: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    with TimelineService([str(lake)]) as one, TimelineService([str(lake)]) as two:
        listeners = []
        for service in (one, two):
            pid = kill(service)
            wait_for_end(pid)
            opened = set()
            for link in Path(f"/proc/{status_of(service)['pid']}/fd").iterdir():
                with suppress(FileNotFoundError):  # it has been closed since
                    opened.add(os.readlink(link))
            assert os.readlink(f"/proc/self/fd/{writer}") not in opened
            listeners.append({name for name in opened if name.startswith("socket:")})
        assert not listeners[0] & listeners[1]
    os.close(reader)
    os.close(writer)

"""Roots on storage that hangs: other clients go on, and a close never waits for them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strandline.server.process import child_handle
from strandline.server.process.shared_service import SharedService
from strandline.settings.service import EMBED_PING_TIMEOUT, EMBED_PORT, SERVICE_SETTINGS
from strandline.settings.setting import Settings
from tests.kit.concurrency.interruptible import interruptible
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.free_port import free_port
from tests.kit.servers.processes import is_alive, wait_for_end
from tests.strandline.server.process.services import (
    LATEST,
    params,
    patient,
    status_of,
    wait_for_removals,
)
from timeline.errors import ServiceTimeoutError

pytestmark = pytest.mark.property

HANGING_CODE = """
import os, threading
_realpath = os.path.realpath
def realpath(path, **options):
    if os.path.basename(path) == "hanging":
        with open({began!r}, "w") as began:
            print(os.getpid(), file=began)
        threading.Event().wait()
    return _realpath(path, **options)
os.path.realpath = realpath
"""


class HangingRoot:
    """A path at which the storage of each child hangs: Python code runs at the child's start."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "hanging")
        self._began = folder / "began"
        os.mkfifo(self._began)
        code = HANGING_CODE.format(began=str(self._began))
        (folder / "sitecustomize.py").write_text(code)

    def wait(self) -> int:
        """Wait until a child hangs; return its process id."""
        return int(self._began.read_text())


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HangingRoot:
    # Patched: the child imports what its driver imports.
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return HangingRoot(tmp_path)


def answers(service: SharedService, base: Path) -> bool:
    return patient(service).get(LATEST, params(base)).startswith(b"[")


def acquire_interrupted(hanging: HangingRoot) -> int:
    """Interrupt this thread while it acquires a root that hangs; return the child's process id."""
    main = threading.get_ident()

    def interrupt() -> int:
        pid = hanging.wait()
        signal.pthread_kill(main, signal.SIGINT)
        return pid

    with ThreadPoolExecutor(1) as pool, interruptible():
        interrupted = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            SharedService.acquire(hanging.path)
        return interrupted.result(PATIENCE_S)


def test_after_an_interrupt_of_a_root_that_hangs_the_service_goes_on_and_ends(
    lake: Path, hanging: HangingRoot
) -> None:
    """Its child is replaced: the answer of the interrupted command must not be another's."""
    one, two = lake / "one", lake / "two"
    service = SharedService.acquire(str(one))
    wait_for_end(acquire_interrupted(hanging))
    assert SharedService.acquire(str(two)) is service
    assert answers(service, two)
    assert answers(service, one)
    wait_for_removals(service)
    status = status_of(service)
    assert (status["roots"], status["restarts"]) == ([str(one), str(two)], 1)
    service.release(str(two))
    acquire_interrupted(hanging)
    service.release(str(one))
    assert not service.is_running
    assert not is_alive(status["pid"])


def test_a_root_that_hangs_is_given_up(
    lake: Path,
    hanging: HangingRoot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = SharedService.acquire(str(lake / "one"))
    pid = status_of(service)["pid"]
    # Patched: nobody sets it, and a test can't wait for a minute. On a busy machine the child may
    # not hang by then, so this doesn't wait for that.
    with monkeypatch.context() as patch:
        patch.setattr(child_handle, "COMMAND_S", 0.5)
        with pytest.raises(ServiceTimeoutError, match=r"hanging.*did not answer within 0.5 s"):
            SharedService.acquire(hanging.path)
        wait_for_end(pid)
        wait_for_removals(service)
    assert answers(service, lake / "one")
    assert status_of(service)["roots"] == [str(lake / "one")]
    service.release(str(lake / "one"))


def test_the_last_close_does_not_wait_for_a_removal_that_hangs(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings.parse({EMBED_PING_TIMEOUT.name: "3600"}, SERVICE_SETTINGS)
    service = SharedService.acquire(str(lake / "one"), settings)
    SharedService.acquire(str(lake / "two"))
    pid = status_of(service)["pid"]
    os.kill(pid, signal.SIGSTOP)
    service.release(str(lake / "two"))
    service.release(str(lake / "one"))
    assert not service.is_running
    assert not is_alive(pid)
    wait_for_removals(service)
    # Not even until that is given up.
    assert not any("did not answer" in record.getMessage() for record in caplog.records)


def test_a_client_that_comes_after_a_stop_began_has_the_service_started_again(lake: Path) -> None:
    settings = Settings.parse({EMBED_PORT.name: str(free_port())}, SERVICE_SETTINGS)
    service = SharedService.acquire(str(lake / "one"), settings)
    pid = status_of(service)["pid"]
    with ThreadPoolExecutor(2) as pool:
        # As a removal holds it.
        with service._changing:
            closing = pool.submit(service.release, str(lake / "one"))
            wait_for_end(pid)
            opening = pool.submit(SharedService.acquire, str(lake / "two"), settings)
            while not service._uses.clients:
                assert not opening.done()
        assert opening.result(PATIENCE_S) is service
        closing.result(PATIENCE_S)
    assert answers(service, lake / "two")
    assert status_of(service)["roots"] == [str(lake / "two")]
    service.release(str(lake / "two"))
    assert not service.is_running

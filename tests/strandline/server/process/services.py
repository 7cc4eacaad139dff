"""Helpers for tests of services in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from executor_proxy.exchange import Timeouts
from executor_proxy.http import HttpSession
from strandline import TimelineService
from strandline.server.process.shared_service import SharedService
from strandline.server.process.timeline_service import STATUS
from strandline.settings.service import EMBED_LINGER, SERVICE_SETTINGS
from strandline.settings.setting import Settings
from tests.kit.concurrency.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[4]
LATEST = "/v1/hoodie/view/slices/partition/latest/"


def params(base: Path, **more: str) -> dict[str, str]:
    return {"basepath": str(base), "partition": "2024-01-01", "refreshoff": "true", **more}


def address(service: TimelineService) -> tuple[str, int]:
    url = urlsplit(service.url)
    assert url.hostname is not None
    assert url.port is not None
    return url.hostname, url.port


def patient(service: TimelineService) -> HttpSession:
    """Return a session that waits for a replacement, however slowly it starts."""
    timeouts = Timeouts(PATIENCE_S, PATIENCE_S, PATIENCE_S)
    return HttpSession(service.local_url, service.token, timeouts=timeouts, ca_file=service.ca_file)


def status_of(service: TimelineService) -> dict[str, Any]:
    """Return the figures of the child that serves, or of its replacement."""
    figures: dict[str, Any] = json.loads(patient(service).get(STATUS, {}))
    return figures


def kill(service: TimelineService) -> int:
    """Kill the child that serves; return its process id."""
    pid: int = status_of(service)["pid"]
    os.kill(pid, signal.SIGKILL)
    return pid


def lingering(seconds: float) -> Settings:
    return Settings.parse({EMBED_LINGER.name: str(seconds)}, SERVICE_SETTINGS)


def end_lingering(service: SharedService, root: Path) -> None:
    service._linger_s = 0
    assert SharedService.acquire(str(root)) is service
    service.release(str(root))
    assert not service.is_running


def wait_for_removals(service: SharedService) -> None:
    """Wait for the threads that remove roots once these have lingered."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and thread.function == service._end_lingering:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def is_refused(at: tuple[str, int]) -> bool:
    try:
        socket.create_connection(at, timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    return False


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

"""Helpers for tests of services in processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

from strandline import TimelineService
from strandline.service.process.shared_service import SharedService
from strandline.settings.service import EMBED_LINGER, SERVICE_SETTINGS
from strandline.settings.setting import Settings

REPOSITORY = Path(__file__).parents[4]
LATEST = "/v1/hoodie/view/slices/partition/latest/"


def params(base: Path, **more: str) -> dict[str, str]:
    return {"basepath": str(base), "partition": "2024-01-01", "refreshoff": "true", **more}


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
            thread.join(20)
            assert not thread.is_alive()


def is_refused(at: tuple[str, int]) -> bool:
    try:
        socket.create_connection(at, timeout=20).close()
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

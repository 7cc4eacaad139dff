"""A service in a process of its own, and tables for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import TOKEN
from tests.kit.servers.raw_http import request
from tests.kit.servers.serve_process import ServeProcess
from tests.kit.tables.small_table import SmallTable
from timeline.storage.local import LocalStorage

LATEST: Final = "/v1/hoodie/view/slices/partition/latest/"
EVERYTHING: Final = "/v1/hoodie/view/slices/all/beforeoron/latest/"
MARKERS: Final = "/v1/hoodie/marker"
INSTANT: Final = "20261121090000000"


class Service(ServeProcess):
    """``strandline serve`` as a process, that is told to end or looked into."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def end(self) -> int:
        """Tell it to end, wait until it has, and return its exit code."""
        self.tell_to_end()
        return self._join()

    def tell_to_end(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def local_table(base: Path, groups: int = 20) -> SmallTable:
    """Return a table of two partitions, one of them of so many groups."""
    table = SmallTable(LocalStorage(str(base)))
    table.write(("b", "g"), *(("a", f"g{number:03d}") for number in range(groups)))
    return table


def asking(path: str, params: dict[str, str], method: str = "GET") -> bytes:
    """Return the bytes of a request."""
    return request(f"{path}?{urlencode(params)}", method=method, token=TOKEN)


def marking(base: object, name: str) -> bytes:
    """Return the bytes of a request for a marker."""
    directory = f"{base}/.hoodie/.temp/{INSTANT}"
    return asking(f"{MARKERS}/create", {"markerdirpath": directory, "markername": name}, "POST")


def made(file_id: str) -> str:
    """Return a marker of a file in partition ``a``."""
    return marker_name(INSTANT, file_id, "a")


def stored_markers(base: Path) -> list[str]:
    """Return the markers on disk, of whatever files."""
    folder = base / ".hoodie" / ".temp" / INSTANT
    texts = [path.read_text() for path in folder.glob("MARKERS[0-9]*")]
    return sorted(name for text in texts for name in text.splitlines())

"""Markers over HTTP from a process that is killed: every acknowledged one is on storage."""

from __future__ import annotations

import http.client
import itertools
import threading
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import HttpClient
from tests.kit.servers.serve_process import ServeProcess
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config

INSTANT = "20261121090000000"
MARKERS = "/v1/hoodie/marker"
CLIENTS = 8
ENOUGH = 400
"""Markers acknowledged before each kill."""


class Tasks:
    """Clients that create markers until their server is gone; its lock guards the names.

    Attributes:
        acknowledged: Answered ``true``.
        asked: Sent, answered or not.
        enough: Set once so many are acknowledged.
    """

    def __init__(self, port: int, directory: str, start: int) -> None:
        self.acknowledged: set[str] = set()
        self.asked: set[str] = set()
        self.enough = threading.Event()
        self._port = port
        self._directory = directory
        self._numbers = itertools.count(start)
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._create) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _create(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        try:
            while True:
                self._create_one(connection)
        except (OSError, http.client.HTTPException):
            connection.close()  # the server is gone

    def _create_one(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            name = f"p/f{next(self._numbers):06d}_0-1-2_{INSTANT}.parquet.marker.CREATE"
            self.asked.add(name)
        query = urlencode({"markerdirpath": self._directory, "markername": name})
        connection.request("POST", f"{MARKERS}/create?{query}")
        response = connection.getresponse()
        answer = response.read()
        assert (response.status, answer) == (200, b"true")
        with self._lock:
            self.acknowledged.add(name)
            if len(self.acknowledged) >= ENOUGH:
                self.enough.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)


@pytest.mark.property  # it starts the service four times
def test_no_acknowledged_marker_is_lost_by_a_kill(tmp_path: Path) -> None:
    base = tmp_path / "lake" / "t"
    base.mkdir(parents=True)
    config = TableConfig.create(name="t", record_key_fields=("id",))
    write_table_config(LocalStorage(str(base)), config, create=True)
    folder = base / ".hoodie" / ".temp" / INSTANT
    acknowledged: set[str] = set()
    asked: set[str] = set()
    with ServeProcess(tmp_path / "lake", tmp_path / "log") as server:
        for turn in range(3):
            tasks = Tasks(server.port, str(folder), turn * 100_000)
            assert tasks.enough.wait(PATIENCE_S)
            server.kill()
            tasks.join()
            acknowledged |= tasks.acknowledged
            asked |= tasks.asked
            check_files(folder, acknowledged, asked)
            server.start()
        with HttpClient(server.port, None) as client:
            directory = {"markerdirpath": str(folder)}
            status, body = client.ask("GET", f"{MARKERS}/all", directory)
            assert status == 200
            assert all(f'"{name}"'.encode() in body for name in acknowledged)
            again = {**directory, "markername": min(acknowledged)}
            assert client.ask("POST", f"{MARKERS}/create", again) == (200, b"false")


def check_files(folder: Path, acknowledged: set[str], asked: set[str]) -> None:
    """Read the files as Hudi does: ``MARKERS*`` but the type, line by line."""
    assert (folder / "MARKERS.type").read_text() == "TIMELINE_SERVER_BASED"
    texts = [p.read_text() for p in folder.glob("MARKERS*") if p.name != "MARKERS.type"]
    assert all(text.endswith("\n") for text in texts)
    there = [line for text in texts for line in text.splitlines()]
    assert len(there) == len(set(there))
    assert acknowledged <= set(there) <= asked

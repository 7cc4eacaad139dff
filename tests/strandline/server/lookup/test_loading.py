"""``loadpartitions/`` with long lists: bounded, and ended when nobody waits for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest

from fsview.wire.param import MOST_PARTITIONS
from fsview.wire.routes import BY_NAME
from strandline.server.http.server import ServiceServer
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, GoldenTables, HttpClient, serving
from tests.kit.servers.raw_http import RawConnection, request
from tests.kit.tables import golden
from timeline.errors import InputError
from timeline.storage.base import FileInfo, Storage

LOAD = BY_NAME["load_partitions"].path
TABLES = GoldenTables()
BASE = "/golden/t"


class Stopping(golden.GoldenStorage):
    """Stops in the tenth listing of an invented partition until it is let go."""

    def __init__(self, path: str) -> None:
        super().__init__("cow_basic_v9", 7, path)
        self.began, self.go = threading.Event(), threading.Event()
        self.listed: list[str] = []

    def for_cause(self, cause: str) -> Storage:
        return self

    def list(self, path: str) -> tuple[FileInfo, ...]:
        if path.startswith("p="):
            self.listed.append(path)
            if len(self.listed) == 10:
                self.began.set()
                assert self.go.wait(PATIENCE_S)
        return super().list(path)


@contextmanager
def stopping() -> Iterator[tuple[ServiceServer, Stopping]]:
    storage = Stopping(BASE)

    def opener(_path: str, _options: Mapping[str, Any] | None) -> Storage:
        return storage

    with serving("/golden", opener=opener) as server:
        try:
            yield server, storage
        finally:
            storage.go.set()


def loading(names: list[str]) -> bytes:
    target = f"{LOAD}?basepath={BASE}&partitions={quote(json.dumps(names))}"
    return request(target, method="POST", token=TOKEN)


NAMES = [f"p={number}" for number in range(500)]


def test_a_load_ends_when_its_client_leaves() -> None:
    with stopping() as (server, storage):
        with RawConnection(server.port) as raw:
            raw.socket.sendall(loading(NAMES))
            assert storage.began.wait(PATIENCE_S)
        while server.parts.connections()["open"]:
            pass
        storage.go.set()
        while server.parts.threads()["taken"]:
            pass
        assert len(storage.listed) == 10
        with HttpClient(server.port) as client:
            asked = {"basepath": BASE, "partitions": json.dumps(NAMES)}
            assert client.ask("POST", LOAD, asked) == (200, b"true")
        assert set(storage.listed) == set(NAMES)


def test_a_second_caller_gets_its_partitions_after_the_first_disconnects() -> None:
    with stopping() as (server, storage), ThreadPoolExecutor(1) as pool:
        with RawConnection(server.port) as raw:
            raw.socket.sendall(loading(NAMES))
            assert storage.began.wait(PATIENCE_S)
            with HttpClient(server.port) as client:
                asked = {"basepath": BASE, "partitions": json.dumps([*NAMES[:20], "2024-01-01"])}
                other = pool.submit(client.ask, "POST", LOAD, asked)
                while server.parts.threads()["taken"] < 2:
                    pass
                raw.socket.close()
                while server.parts.connections()["open"] > 1:
                    pass
                storage.go.set()
                assert other.result() == (200, b"true")
        assert set(storage.listed) == set(NAMES[:20])


@pytest.mark.property
def test_more_partitions_than_allowed_are_refused_in_a_line() -> None:
    route = BY_NAME["load_partitions"]
    most = json.dumps(["p"] * MOST_PARTITIONS)
    assert len(route.arguments({"partitions": most})["partitions"]) == MOST_PARTITIONS
    with pytest.raises(InputError) as caught:
        route.arguments({"partitions": json.dumps(["p"] * (MOST_PARTITIONS + 1))})
    said = str(caught.value)
    assert said.startswith('partitions=\'["p", ')
    assert "names 100001 partitions; allowed: at most 100000" in said
    assert len(said) < 250
    with serving("/golden", opener=TABLES) as server, HttpClient(server.port) as client:
        base = TABLES.base_path("cow_basic_v9", 7)
        many = json.dumps(["p"] * (MOST_PARTITIONS + 1), separators=(",", ":"))
        status, body = client.ask("POST", LOAD, {"basepath": base, "partitions": many})
        assert (status, b"allowed: at most 100000" in body) == (400, True)

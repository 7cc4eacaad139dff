"""The recordings of Hudi's server: tables built at once, token on, asked as an executor asks.

The app is asked about the middle and the last recorded step of the copy-on-write tables, a running
server, with its hot path, about the last. (The queries themselves are held to every recording in
``tests/fsview``.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.service.assembly import Parts
from strandline.service.server import ServiceServer
from tests.conformance.view_suite import Client, ViewSuite
from tests.kit import golden
from tests.kit.live_service import AppClient, GoldenTables, HttpClient, parts_of, serving

TABLES = GoldenTables()


def is_cow(scenario: str) -> bool:
    return golden.info(scenario)["table_type"] == "cow"


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    parts = parts_of(TABLES.root, opener=TABLES)
    yield parts
    parts.close()


@pytest.fixture(scope="module")
def server() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES) as server:
        yield server
        assert sum(server.parts.hot.counts.values()) > 0


class TestApp(ViewSuite):
    @pytest.fixture(autouse=True)
    def _served(self, parts: Parts) -> None:
        self.parts = parts

    @contextmanager
    def serving(self, scenario: str, step: int, directory: Path) -> Iterator[Client]:
        yield AppClient(self.parts, TABLES.base_path(scenario, step))

    def steps(self, scenario: str) -> tuple[tuple[str, int], ...]:
        found = super().steps(scenario)
        few = sorted({len(found) // 2, len(found) - 1})
        return tuple(found[place] for place in few) if is_cow(scenario) else ()


class TestServer(ViewSuite):
    @pytest.fixture(autouse=True)
    def _served(self, server: ServiceServer) -> None:
        self.server = server

    @contextmanager
    def serving(self, scenario: str, step: int, directory: Path) -> Iterator[Client]:
        with HttpClient(self.server.port, base_path=TABLES.base_path(scenario, step)) as client:
            yield client

    def steps(self, scenario: str) -> tuple[tuple[str, int], ...]:
        return super().steps(scenario)[-1:] if is_cow(scenario) else ()

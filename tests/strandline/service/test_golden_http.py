"""Every recording of Hudi's servers, over HTTP: asked of a server, its child and its own process.

The last step of each table, in memory, is for every run; all steps, on disk, of all servers that
were recorded, take minutes. (The queries themselves are held to every recording in
``tests/fsview``.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.service.server import ServiceServer
from tests.conformance.view_suite import Client, ViewSuite, all_servers
from tests.kit import golden
from tests.kit.golden_services import GoldenLake, Service, running_as
from tests.kit.live_service import GoldenTables, HttpClient, serving

TABLES = GoldenTables()


@pytest.fixture(scope="module")
def server() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES) as server:
        yield server
        assert sum(server.parts.hot.counts.values()) > 0


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> GoldenLake:
    return GoldenLake(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module", params=["child", "process"])
def service(
    request: pytest.FixtureRequest, lake: GoldenLake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    log = tmp_path_factory.mktemp("log") / "log"
    with running_as(request.param, lake.root, log) as service:
        yield service


class TestServer(ViewSuite):
    @pytest.fixture(autouse=True)
    def _served(self, server: ServiceServer) -> None:
        self.server = server

    @contextmanager
    def serving(self, scenario: str, step: int, directory: Path) -> Iterator[Client]:
        with HttpClient(self.server.port, base_path=TABLES.base_path(scenario, step)) as client:
            yield client

    def steps(self, scenario: str) -> tuple[tuple[str, int], ...]:
        return super().steps(scenario)[-1:]


@pytest.mark.property
class TestEmbeddedAndStandalone(ViewSuite):
    @pytest.fixture(autouse=True)
    def _served(self, service: Service, lake: GoldenLake) -> None:
        self.service, self.lake = service, lake

    @contextmanager
    def serving(self, scenario: str, step: int, directory: Path) -> Iterator[Client]:
        with self.service.client(self.lake.base_path(scenario, step)) as client:
            yield client

    def steps(self, scenario: str) -> tuple[tuple[str, int], ...]:
        return tuple(
            (server, step)
            for server in all_servers(scenario)
            for step in golden.recorded_steps(scenario, server)
        )

"""Every recording of Hudi's servers over HTTP: against a server in this process, and as a child.

Every run replays the last step of each table; all steps, on disk, of all recorded servers take
minutes. (``tests/fsview`` replays every recording against the queries themselves.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsview.store.budget import BUDGET_BYTES
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.conformance.view_suite import Client, ViewSuite, all_servers, replay, told
from tests.kit.servers.golden_services import GoldenLake, Service, running_as
from tests.kit.servers.live_service import TOKEN, GoldenTables, HttpClient, running, serving
from tests.kit.servers.stores import ALL_KINDS, LITTLE, options_of
from tests.kit.short_runs import stride
from tests.kit.tables import golden

pytestmark = pytest.mark.property

TABLES = GoldenTables()


@pytest.fixture(scope="module")
def server() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES) as server:
        yield server
        assert sum(server.parts.hot.counts.values()) > 0


@dataclass(frozen=True)
class Serving:
    """How recordings are asked again.

    Attributes:
        how: How the service runs, as in ``running_as``.
        last_only: Whether only the last step of each recorded server is.
    """

    how: str
    last_only: bool = False

    def __str__(self) -> str:
        return f"{self.how}, last steps" if self.last_only else self.how


# A process of its own serves by the code that a child does.
SERVED = [
    Serving("child", last_only=True),
    Serving("process", last_only=True),
    pytest.param(Serving("child"), marks=pytest.mark.product),
    pytest.param(Serving("process"), marks=pytest.mark.product),
]


@pytest.fixture(scope="module", params=SERVED, ids=str)
def served(request: pytest.FixtureRequest) -> Serving:
    found: Serving = request.param
    return found


@pytest.fixture(scope="module")
def service(
    served: Serving, lake: GoldenLake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    log = tmp_path_factory.mktemp("log") / "log"
    with running_as(served.how, lake.root, log) as service:
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


def compared() -> list[tuple[str, int]]:
    """Return the steps at which Hudi's kinds of storage were compared: all answered alike."""
    summary = golden.server_document("storage_compare")["summary"]
    assert all(told["different"] == 0 for told in summary.values())
    return sorted({(name.split()[1], int(name.split()[2])) for name in summary})


@pytest.mark.property
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_kind_of_storage_answers_as_recorded(kind: str, tmp_path: Path) -> None:
    """Also where Java's leaves the status of files out."""
    store = options_of(kind, tmp_path, LITTLE if kind == "spillable" else BUDGET_BYTES)
    parts = Parts(PartsOptions((TABLES.root,), TOKEN, store=store), opener=TABLES)
    differences = []
    every = stride(2)
    some = compared()[ALL_KINDS.index(kind) % every :: every]
    with running(ServiceServer(parts, ServerOptions())) as server:
        for scenario, step in some:
            base = TABLES.base_path(scenario, step)
            recording = golden.recording(scenario, step, base=base)
            with HttpClient(server.port, base_path=base) as client:
                differences += replay(client, recording, f"{kind} {scenario}/{step:02d}")
    assert not differences, told(differences)


@pytest.mark.property
class TestEmbeddedAndStandalone(ViewSuite):
    @pytest.fixture(autouse=True)
    def _served(self, served: Serving, service: Service, lake: GoldenLake) -> None:
        self.served, self.service, self.lake = served, service, lake

    @contextmanager
    def serving(self, scenario: str, step: int, directory: Path) -> Iterator[Client]:
        with self.service.client(self.lake.base_path(scenario, step)) as client:
            yield client

    def steps(self, scenario: str) -> tuple[tuple[str, int], ...]:
        return tuple(
            (server, step)
            for server in all_servers(scenario)
            for step in tuple(golden.recorded_steps(scenario, server))[
                -1 if self.served.last_only else 0 :
            ]
        )

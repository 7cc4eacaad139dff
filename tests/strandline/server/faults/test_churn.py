"""One service with three tables that are written, compacted, cleaned, rolled back and archived
while clients ask at their own instants: each answer is right at the client's instant, and a client
is refused only where no answer would be right.

A refusal is right where a compaction that the client knows of was dropped. To a client whose
timeline the service never held, or lost at a restart, it is also right if, since then, files were
removed, instants were archived, or, in version 6, a log came from an unknown writer.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fsview.check.partition_checker import removals_pending
from fsview.local_view import LocalView
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import parts_of
from tests.kit.tables.model.moving import MovingMachine
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.strandline.server.faults.churning import TABLES, Job, SharedStorage

pytestmark = pytest.mark.property


class Service:
    """The service, which may be followed by another on its port."""

    def __init__(self, storages: dict[str, SharedStorage]) -> None:
        self.storages = storages
        self.server = self._start(0)

    def _start(self, port: int) -> ServiceServer:
        parts = parts_of("/memory", opener=lambda path, _options: self.storages[path])
        server = ServiceServer(parts, ServerOptions(port=port))
        server.start_thread()
        return server

    def restart(self) -> None:
        port = self.server.port
        self.stop()
        self.server = self._start(port)

    def stop(self) -> None:
        self.server.stop()
        assert self.server.wait(PATIENCE_S)


@pytest.fixture
def jobs() -> list[Job]:
    """Return the jobs, which have no service yet."""
    begun = []
    for name, (version, table_type) in TABLES.items():
        machine = MovingMachine()
        machine.make(version=version, table_type=table_type, change_data=False, retained=64)
        machine.table.storage.base_path = f"/memory/{name}"
        step = threading.Lock()
        storage = SharedStorage(machine.table, step)
        machine.watcher.storage = storage  # which notes what the service may have seen
        begun.append(Job(name, "", machine, storage, step))
    return begun


@pytest.fixture
def service(jobs: list[Job]) -> Iterator[Service]:
    """The service that the jobs use."""
    service = Service({job.storage.base_path: job.storage for job in jobs})
    for job in jobs:
        job.url = service.server.url
    yield service
    for job in jobs:
        view = LocalView.synced(service.server.parts.views.view(job.storage.base_path))
        if not removals_pending(view.snapshot.active):
            assert not differences_from_rebuilt(view.snapshot, job.table.storage)
    service.stop()


def churn(jobs: list[Job], seed: int, *, steps: int, clients: int) -> Counter[str]:
    """Run writers and clients side by side; return the outcomes of the questions."""
    with ThreadPoolExecutor(len(jobs) * (clients + 1)) as pool:
        running = [pool.submit(job.write, seed, steps) for job in jobs]
        for number in range(clients):
            running += [pool.submit(job.ask, seed + number, nth=number, of=clients) for job in jobs]
        for future in running:
            future.result()
    outcomes: Counter[str] = Counter()
    for job in jobs:
        assert not job.wrong, (job.name, len(job.wrong), job.outcomes, *job.wrong[:2])
        outcomes += job.outcomes
    return outcomes


@pytest.mark.property
@pytest.mark.parametrize(
    ("how", "seed"),
    [
        ("loaded first", 0),
        pytest.param("loaded first", 1, marks=pytest.mark.product),
        pytest.param("loaded late", 0, marks=pytest.mark.product),
        ("loaded late", 1),
        ("restarted", 0),
        ("restarted", 1),
    ],
)
def test_many_clients_while_many_writes_go_on(
    jobs: list[Job], service: Service, how: str, seed: int, report: Callable[[str], None]
) -> None:
    for number, job in enumerate(jobs):
        job.late = how == "loaded late"
        job.forgets = how == "restarted"
        if job.forgets and number == 0:
            job.restart = service.restart
    outcomes = churn(jobs, seed, steps=60, clients=3)
    share = outcomes["answered"] / outcomes.total()
    report(f"clients at their instants, {how}, {seed}: {share:.1%} answered, {dict(outcomes)}")
    assert share > (0.1 if how == "restarted" else 0.6), outcomes

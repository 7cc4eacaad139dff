"""Golden tables on disk, and the three ways to run a service for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fsview.wire.routes import BY_NAME
from strandline.server.process.timeline_service import TimelineService
from tests.kit.servers.live_service import TOKEN, HttpClient, serving
from tests.kit.servers.serve_process import ServeProcess
from tests.kit.tables import golden

WAYS = ("thread", "child", "process")
"""A server in a thread; the embedded service in a child; ``strandline serve`` without a token."""


class GoldenLake:
    """Golden tables below ``root``; each step is built on first use."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def base_path(self, scenario: str, step: int) -> str:
        """Return the base path of a table as it was after a step."""
        base = self.root / scenario / f"{step:02d}"
        if not base.exists():
            golden.build(scenario, step, base)
        return str(base)


class InPlace:
    """A base path at which a golden table is replaced by another of its steps."""

    def __init__(self, lake: GoldenLake, scenario: str) -> None:
        self._lake = lake
        self._scenario = scenario
        self._step: int | None = None
        self.base = lake.root / "in-place" / scenario
        self.base.parent.mkdir(exist_ok=True)

    def step(self, step: int | None) -> None:
        """Put the table of ``step`` at the base path, or nothing for ``None``."""
        if step == self._step:
            return
        if self._step is not None:
            self.base.rename(self._lake.root / self._scenario / f"{self._step:02d}")
        if step is not None:
            Path(self._lake.base_path(self._scenario, step)).rename(self.base)
        self._step = step


@dataclass(frozen=True)
class Service:
    """A running service."""

    port: int
    token: str | None

    def client(self, base_path: str = "") -> HttpClient:
        """Return a client; the service treats no partition of its table as loaded."""
        client = HttpClient(self.port, self.token, base_path)
        if base_path:
            refresh = BY_NAME["sync"]
            assert client.ask(refresh.method, refresh.path, {"basepath": base_path})[0] == 200
        return client


@contextmanager
def running_as(way: str, root: Path, log: Path) -> Iterator[Service]:
    """Run a service of the tables below ``root`` in one of ``WAYS``; processes write to ``log``."""
    if way == "thread":
        with serving(str(root)) as server:
            yield Service(server.port, TOKEN)
    elif way == "child":
        with TimelineService([str(root)]) as service:
            yield Service(int(service.url.rpartition(":")[2]), service.token)
    else:
        with ServeProcess(root, log) as process:
            yield Service(process.port, None)

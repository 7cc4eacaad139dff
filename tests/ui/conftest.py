"""A browser, and services with tables of each size; all live as long as the tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, running
from tests.ui import lake
from tests.ui.browser import launched
from timeline.storage.base import Storage
from timeline.storage.open import open_storage

LARGE = "/memory/t"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.ui)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=1000 * PATIENCE_S)
    with launched() as found:
        yield found


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the small and the medium table."""
    found = tmp_path_factory.mktemp("lake")
    lake.small(found)
    lake.medium(found)
    return found


@pytest.fixture(scope="session")
def service(root: Path) -> Iterator[ServiceServer]:
    """A service with a token, and tables of three sizes."""
    large = lake.large().storage

    def opener(base_path: str, options: Mapping[str, Any] | None) -> Storage:
        return large if base_path == LARGE else open_storage(base_path, options)

    parts = Parts(PartsOptions((str(root), "/memory"), TOKEN, ui=True), opener=opener)
    with running(ServiceServer(parts, ServerOptions())) as server:
        yield server

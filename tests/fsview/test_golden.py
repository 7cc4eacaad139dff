"""The recordings of Hudi's server against a local view that is built at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsview.table_view import TableView
from tests.conformance.view_suite import Client, ViewSuite
from tests.fsview.subject import LocalClient
from tests.kit.tables import golden


class TestLocalView(ViewSuite):
    @contextmanager
    def serving(self, scenario: str, step: int, directory: Path) -> Iterator[Client]:
        yield LocalClient(TableView(golden.GoldenStorage(scenario, step)))

"""A view asked in this process through the route table, as the service asks it."""

from __future__ import annotations

from collections.abc import Mapping

from fsview.load.source_choice import Loaded
from fsview.local_view import LocalView
from fsview.table_view import TableView
from fsview.wire.json_form import PathForms
from fsview.wire.param import LAST_INSTANT, NO_INSTANT, TIMELINE_HASH
from fsview.wire.routes import BY_PATH
from tests.conformance.view_suite import replay, told
from tests.kit import golden
from timeline.errors import StrandlineError


class LocalClient:
    """Answers requests from one table."""

    def __init__(self, table: TableView, base_path: str | None = None) -> None:
        self.table = table
        self.base_path = base_path or table.storage.base_path

    def ask(self, method: str, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        route = BY_PATH[method, path.rstrip("/")]
        try:
            if route.synced:
                view = LocalView.at(
                    self.table, params.get(LAST_INSTANT, NO_INSTANT), params.get(TIMELINE_HASH, "")
                )
            else:
                view = LocalView.newest(self.table)
            body = route.encode(route.answer(view, params), PathForms.of(self.base_path))
        except StrandlineError as error:
            return error.status, str(error).encode()
        return 200, body


def assert_answers_as_recorded(loaded: Loaded, scenario: str, server: str, step: int) -> None:
    """Give a view all that was read of a golden step, and ask it what Hudi's server was asked."""
    storage = golden.GoldenStorage(scenario, step)
    table = TableView(storage)
    files = table.newest().files
    files.versions.update(loaded.versions)
    files.known = loaded.known
    client = LocalClient(table)
    recording = golden.recording(scenario, step, server, base=client.base_path)
    found = replay(client, recording, f"{scenario}/{step:02d}", times=False)
    assert not found, told(found)
    assert ("list", "lookup") not in storage.calls.snapshot()

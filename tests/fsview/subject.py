"""A view asked in this process through the route table, as the service asks it."""

from __future__ import annotations

from collections.abc import Mapping

from fsview.local_view import LocalView
from fsview.table_view import TableView
from fsview.wire.json_form import PathForms
from fsview.wire.param import LAST_INSTANT, NO_INSTANT, TIMELINE_HASH
from fsview.wire.routes import ROUTES
from timeline.errors import StrandlineError

BY_PATH = {(route.method, route.path.rstrip("/")): route for route in ROUTES}


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
            body = route.encode(
                route.answer(view, route.arguments(params)), PathForms.of(self.base_path)
            )
        except StrandlineError as error:
            return error.status, str(error).encode()
        return 200, body

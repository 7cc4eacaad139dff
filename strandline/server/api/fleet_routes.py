"""The routes by which a server that joins a fleet learns what its neighbours hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fsview.view_manager import ViewManager
from fsview.wire.param import BASE_PATH
from strandline.fleet.neighbours import RECORD, TABLES
from strandline.server.api.handler import RouteRow, required
from strandline.server.http.reply import Reply, json_reply
from strandline.server.http.request import Request
from timeline.errors import TableNotFoundError

BYTES: Final = "application/octet-stream"


def fleet_rows(views: ViewManager) -> Iterator[RouteRow]:
    """Yield the routes; neither opens a table."""

    def tables(_: Request) -> Reply:
        return json_reply([str(table.table_id) for table in views.open_tables()])

    def record(request: Request) -> Reply:
        base_path = required(request.parameters(), BASE_PATH)
        table = views.open_table(base_path)
        stream = None if table is None else table.record()
        if stream is None:
            raise TableNotFoundError(f"no view of the table {base_path!r} is open here")
        return Reply(200, b"", BYTES, rest=stream)

    yield "GET", TABLES, tables
    yield "GET", RECORD, record

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
        lease = None if table is None else views.lease_of(table)
        stream = None if lease is None else lease.table.record()
        if stream is None:
            raise TableNotFoundError(f"no view of the table {base_path!r} is open here")
        return Reply(200, b"", BYTES, rest=_leased(stream, lease))

    yield "GET", TABLES, tables
    yield "GET", RECORD, record


def _leased(stream: Iterator[bytes], lease: object) -> Iterator[bytes]:
    """Yield a stream, and hold what keeps its table open until it ends."""
    yield from stream
    del lease

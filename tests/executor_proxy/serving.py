"""A view served over a real socket: the whole way of a look-up but for the service's own code."""

from __future__ import annotations

from fsview.table_view import TableView
from tests.executor_proxy.scripted_server import Reply, Request, ScriptedServer
from tests.fsview.subject import LocalClient


def server_of(table: TableView, base_path: str | None = None) -> ScriptedServer:
    """Return a server, not yet started, that answers from one table."""
    client = LocalClient(table, base_path)

    def answer(request: Request) -> Reply:
        status, body = client.ask(request.method, request.path, request.params)
        return Reply(body, status)

    return ScriptedServer(answer)

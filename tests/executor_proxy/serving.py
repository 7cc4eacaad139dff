"""A view served over a real socket: the whole way of a look-up but for the service's own code."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from executor_proxy.failover import Patience
from fsview.table_view import TableView
from tests.executor_proxy.scripted_server import Reply, Request, ScriptedServer
from tests.fsview.subject import LocalClient

IN_A_HURRY: Final = MappingProxyType({"patience": Patience(first_wait_s=0.001)})
"""Arguments of a location that asks a dead service as often as any, but hardly waits in between."""


def server_of(table: TableView, base_path: str | None = None) -> ScriptedServer:
    """Return a server, not yet started, that answers from one table."""
    client = LocalClient(table, base_path)

    def answer(request: Request) -> Reply:
        status, body = client.ask(request.method, request.path, request.params)
        return Reply(body, status)

    return ScriptedServer(answer)

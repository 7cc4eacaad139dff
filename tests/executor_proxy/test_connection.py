"""``executor_proxy.connection``: which connections a thread keeps."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from executor_proxy.connection import MAX_PEERS
from executor_proxy.http import HttpSession
from tests.executor_proxy.scripted_server import Reply, ScriptedServer


def ask(server: ScriptedServer) -> None:
    assert HttpSession(server.url).get("/x", {}) == b"[]"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors can't be counted")
def test_services_that_have_ended_leave_no_socket():
    descriptors = []
    for _ in range(10):
        with ScriptedServer(lambda _: Reply()) as server:
            ask(server)
        descriptors.append(len(os.listdir("/proc/self/fd")))
    # Threads of earlier tests may have some open for a moment.
    assert min(descriptors[5:]) <= descriptors[0]


def test_a_thread_keeps_the_connections_used_last():
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ScriptedServer(lambda _: Reply())) for _ in range(MAX_PEERS + 1)
        ]
        for server in (*servers[:-1], servers[0], servers[-1]):
            ask(server)
        for server in servers[:2]:
            ask(server)
        assert [server.connections for server in servers[:2]] == [1, 2]

"""A load of clients that ask servers for some time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import cycle, islice

from benchmarks.servers.clients import Client, Clients
from benchmarks.servers.server import ServerError


class LookupLoad:
    """Clients of one or more servers; a context manager that closes their connections.

    Args:
        expected: By a server's port, the body of the answer to each target that it is asked, as
            sent.
        connections: Number of clients; the servers have them in turn.
    """

    def __init__(self, expected: Mapping[int, Mapping[str, bytes]], connections: int) -> None:
        self._expected = expected
        self._targets = {port: cycle(answers) for port, answers in expected.items()}
        self._clients = Clients(*islice(cycle(expected), connections))

    def __enter__(self) -> LookupLoad:
        return self

    def __exit__(self, *problem: object) -> None:
        self._clients.__exit__(*problem)

    def run(self, duration_s: float) -> list[float]:
        """Ask for some time; return the seconds of each request.

        Raises:
            ServerError: An answer is another one, late, or a connection was closed.
        """
        latencies: list[float] = []
        began = time.perf_counter()
        waiting = 0
        for client in self._clients:
            client.ask(next(self._targets[client.port]))
            waiting += 1
        while waiting:
            for client in self._clients.answered():
                now = time.perf_counter()
                latencies.append(now - client.sent_s)
                self._check(client)
                if now - began < duration_s:
                    client.ask(next(self._targets[client.port]))
                else:
                    waiting -= 1
        return latencies

    def _check(self, client: Client) -> None:
        if client.body != self._expected[client.port][client.target]:
            raise ServerError(f"{client.target} was answered with {client.body[:300]!r}")

"""A proxy in front of an object store that logs each HTTP request and delays it.

``python -m benchmarks.object_store.delay http://127.0.0.1:5000 --ms 30 --log requests.jsonl``
prints its own endpoint and runs until its stdin is closed. ``delayed`` runs it in a process of its
own, so that it takes no time of the process that is measured.

A request waits before it is forwarded; requests on different connections wait at the same time. The
log has a line for each answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote, urlsplit

_HEAD_BYTES: Final = 1 << 16
_BLOCK_BYTES: Final = 1 << 16
_WITHOUT_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Request:
    """One request that was answered.

    Attributes:
        method: The HTTP method.
        target: Path and query, percent-decoded.
        agent: The header ``User-Agent``.
        status: The status of the answer.
        started_s: When its head had come, on the machine's monotonic clock.
        ended_s: When its answer had begun.
    """

    method: str
    target: str
    agent: str
    status: int
    started_s: float
    ended_s: float


class Proxy:
    """A running proxy.

    Attributes:
        endpoint: Its URL.
    """

    def __init__(self, endpoint: str, log: Path) -> None:
        self.endpoint = endpoint
        self._log = log

    def requests(self) -> list[Request]:
        """Return the requests that were answered so far, in the order in which they came."""
        lines = self._log.read_text().splitlines()
        found = (Request(**json.loads(line)) for line in lines)
        return sorted(found, key=lambda each: each.started_s)


@contextmanager
def delayed(endpoint: str, delay_s: float, log: Path) -> Iterator[Proxy]:
    """Run a proxy in front of an endpoint until the block ends.

    Args:
        endpoint: The URL of the store.
        delay_s: How long each request waits before it is forwarded.
        log: The file for the requests.
    """
    log.touch()
    command = [sys.executable, "-m", "benchmarks.object_store.delay", endpoint]
    command += ["--ms", str(delay_s * 1000), "--log", str(log)]
    with running(command) as own:
        yield Proxy(own, log)


class ServerFailedError(RuntimeError):
    """A server ended before it said its endpoint; its stderr says why."""


@contextmanager
def running(command: list[str]) -> Iterator[str]:
    """Run a server that prints its endpoint and ends with its stdin; yield the endpoint.

    It is in a session of its own: Ctrl+C in a terminal must not end it before its clients.

    Raises:
        ServerFailedError: It ended at its start.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        own = process.stdout.readline().strip()
        if not own:
            raise ServerFailedError(f"{' '.join(command)} ended with {process.wait()}")
        yield own
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a request or an answer.

    Attributes:
        raw: Its bytes.
        first: The three parts of its first line.
        headers: Its headers by lower-case name.
    """

    raw: bytes
    first: tuple[str, str, str]
    headers: dict[str, str]

    @classmethod
    async def read(cls, source: asyncio.StreamReader) -> _Head | None:
        """Return the next head; ``None`` at the end of the connection."""
        try:
            raw = await source.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        one, two, three = [*lines[0].split(" ", 2), "", ""][:3]
        return cls(raw, (one, two, three), headers)


class _Connection:
    """A client's connection and the one to the store that it is relayed to."""

    def __init__(self, delay_s: float, log: IO[str]) -> None:
        self._delay_s = delay_s
        self._log = log
        self._asked: deque[tuple[_Head, float]] = deque()

    async def relay(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        store: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Relay until one side closes."""
        asking = asyncio.ensure_future(self._requests(client[0], store[1]))
        answering = asyncio.ensure_future(self._answers(store[0], client[1]))
        try:
            await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (asking, answering):
                each.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await each
            client[1].close()
            store[1].close()

    async def _requests(self, client: asyncio.StreamReader, store: asyncio.StreamWriter) -> None:
        while (head := await _Head.read(client)) is not None:
            self._asked.append((head, time.monotonic()))
            await asyncio.sleep(self._delay_s)
            store.write(head.raw)
            await _relay_body(head, client, store)

    async def _answers(self, store: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while (head := await _Head.read(store)) is not None:
            status = int(head.first[1])
            if status < 200:  # an interim answer, such as 100 Continue
                client.write(head.raw)
                await client.drain()
                continue
            asked, started = self._asked.popleft()
            # Before the answer, so that the log has every request whose answer has come.
            self._note(asked, status, started)
            client.write(head.raw)
            if asked.first[0] != "HEAD" and status not in _WITHOUT_BODY:
                await _relay_body(head, store, client)
            await client.drain()

    def _note(self, asked: _Head, status: int, started: float) -> None:
        method, target, _ = asked.first
        agent = asked.headers.get("user-agent", "")
        found = Request(method, unquote(target), agent, status, started, time.monotonic())
        self._log.write(json.dumps(asdict(found)) + "\n")
        self._log.flush()


async def _relay_body(head: _Head, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    """Relay the body that follows a head."""
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            line = await source.readline()
            to.write(line)
            size = int(line.split(b";")[0], 16)
            if not size:
                break
            to.write(await source.readexactly(size + 2))
            await to.drain()
        while (line := await source.readline()) != b"\r\n":  # trailers
            to.write(line)
        to.write(line)
    left = int(head.headers.get("content-length", 0))
    while left:
        block = await source.read(min(left, _BLOCK_BYTES))
        if not block:
            raise ConnectionError("the connection ended within a body")
        left -= len(block)
        to.write(block)
        await to.drain()
    await to.drain()


async def _serve(endpoint: str, delay_s: float, log: IO[str]) -> None:
    """Serve until stdin is closed."""
    parts = urlsplit(endpoint)
    assert parts.hostname is not None

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store = await asyncio.open_connection(parts.hostname, parts.port, limit=_HEAD_BYTES)
        with suppress(asyncio.CancelledError):  # at the end, while clients are connected
            await _Connection(delay_s, log).relay((reader, writer), store)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=_HEAD_BYTES)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Run the proxy."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.object_store.delay", description=__doc__
    )
    parser.add_argument("endpoint", help="URL of the store")
    parser.add_argument("--ms", type=float, default=30.0, help="delay of a request (default 30)")
    parser.add_argument("--log", type=Path, required=True, help="file for the requests")
    options = parser.parse_args()
    with options.log.open("a") as log:
        asyncio.run(_serve(options.endpoint, options.ms / 1000, log))


if __name__ == "__main__":
    main()

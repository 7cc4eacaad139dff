"""A timeline server in a process of its own, with requests like those of Hudi's clients.

CPU seconds are the kernel's count for all threads of the process, in nanoseconds (Linux:
``clock_getcpuclockid``; a measured server has no children). Only wall times include the client.
"""

from __future__ import annotations

import ctypes
import gzip
import http.client
import json
import os
import re
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from benchmarks.servers.big_table import BigTable, ClientState
from fsview.wire.param import BASE_PATH, LAST_INSTANT, TIMELINE_HASH
from fsview.wire.routes import BY_NAME

HEADERS: Final = {
    "User-Agent": "Apache-HttpClient/4.5.14",
    "Accept-Encoding": "gzip,deflate",
    "Connection": "Keep-Alive",
}
"""The headers of the HTTP client in Hudi's writers."""

_GZIP: Final = b"\x1f\x8b"
_QUIET_S: Final = 0.05
_QUIET_CPU_S: Final = 0.0005
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class ServerError(RuntimeError):
    """A server didn't start, or didn't answer with 200."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of some requests.

    Attributes:
        cpu_s: CPU seconds of the server's process.
        wall_s: Wall seconds of the client.
    """

    cpu_s: float
    wall_s: float


def target(route: str, base_path: str, state: ClientState, **arguments: str) -> str:
    """Return the request target of a view route with these parameters."""
    params = {
        BASE_PATH: base_path,
        **arguments,
        LAST_INSTANT: state.last_instant,
        TIMELINE_HASH: state.timeline_hash,
    }
    return f"{BY_NAME[route].path}?{urlencode(params, quote_via=quote, safe='')}"


class Server(ABC):
    """A running server; a context manager that stops it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self._clock = _cpu_clock(process.pid)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=900)

    @abstractmethod
    def calls(self) -> Mapping[str, int]:
        """Return the numbers of file-system calls so far: ``list``, ``stat``, ``read``."""

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def ask(self, where: str, method: str = "GET") -> bytes:
        """Send one request and return the body as received, compressed or not.

        Raises:
            ServerError: The status isn't 200.
        """
        try:
            response = self._response(method, where)
        except ConnectionError:
            # A server closes connections that are idle for long.
            self._connection.close()
            response = self._response(method, where)
        body = response.read()
        if response.status != 200:
            raise ServerError(f"{method} {where}: {response.status}: {body[:300]!r}")
        return body

    def _response(self, method: str, where: str) -> http.client.HTTPResponse:
        self._connection.request(method, where, headers=HEADERS)
        return self._connection.getresponse()

    def view(self, route: str, table: BigTable, state: ClientState, **arguments: str) -> bytes:
        """Send a request to a view route."""
        where = target(route, str(table.path), state, **arguments)
        return self.ask(where, BY_NAME[route].method)

    def cost(
        self, targets: Iterable[str], method: str = "GET", *, until_idle: bool = False
    ) -> Cost:
        """Send requests one after the other and return their total cost.

        Args:
            targets: The request targets.
            method: The method of all requests.
            until_idle: Whether to count the process's work after the last answer, too.
        """
        self.settle()
        cpu, wall = self.cpu_s(), time.perf_counter()
        for where in targets:
            self.ask(where, method)
        wall = time.perf_counter() - wall
        if until_idle:
            self.settle()
        return Cost(self.cpu_s() - cpu, wall)

    def cpu_s(self) -> float:
        """Return the CPU seconds of the server's process so far."""
        return time.clock_gettime(self._clock)

    def settle(self) -> None:
        """Wait until the process idles; a JVM compiles and collects after an answer."""
        before = self.cpu_s()
        while True:
            time.sleep(_QUIET_S)
            now = self.cpu_s()
            if now - before < _QUIET_CPU_S:
                return
            before = now

    def resident_bytes(self) -> int:
        """Return the process's resident memory in bytes."""
        with open(f"/proc/{self.process.pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Rss:"):
                    return int(line.split()[1]) * 1024
        raise ServerError(f"process {self.process.pid} has no resident memory")


class StrandlineServer(Server):
    """``strandline serve``, started as users do."""

    def __init__(self, root: str | None, *options: str, module: str = "strandline") -> None:
        """Start it with additional command-line options; ``module`` has the command line."""
        roots = () if root is None else ("--root", root)
        command = [sys.executable, "-m", module, "serve", "--no-token", "--port", "0"]
        process = subprocess.Popen(
            [*command, *roots, "--log-level", "WARNING", *options],
            stderr=subprocess.PIPE,
            text=True,
            # The service would take variables such as STRANDLINE_IVY_DIR for settings.
            env={k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_")},
        )
        super().__init__(process, _printed_port(process))

    def told(self) -> dict[str, Any]:
        """Return the status of the service."""
        body = self.ask("/v1/strandline/status")
        found: dict[str, Any] = json.loads(
            gzip.decompress(body) if body.startswith(_GZIP) else body
        )
        return found

    def status(self) -> dict[str, Any]:
        """Return the status of the service's one table; empty before the first request."""
        return next(iter(self.told()["tables"].values()), {})

    def calls(self, cause: str | None = None) -> Counter[str]:
        """Return the numbers of storage calls so far by kind, of one cause or of all."""
        kinds: Counter[str] = Counter()
        for call in self.status().get("storage_calls", ()):
            if cause in (None, call["cause"]):
                kinds[call["kind"]] += call["count"]
        return kinds


def _printed_port(process: subprocess.Popen[str]) -> int:
    """Return the port that the service prints."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        found = re.search(r"on (http://\S+) to everybody", line)
        if found and (port := urlsplit(found[1]).port) is not None:
            return port
    raise ServerError(f"strandline serve ended: {''.join(lines)}")


def _cpu_clock(pid: int) -> int:
    """Return the clock of a process's CPU time.

    Raises:
        OSError: There is no such process.
    """
    clock = ctypes.c_int()
    error = _LIBC.clock_getcpuclockid(ctypes.c_int(pid), ctypes.byref(clock))
    if error:
        raise OSError(error, f"no CPU clock of process {pid}")
    return clock.value

"""An S3 server (moto) in a process of its own: ``python -m benchmarks.object_store.s3_server``.

It prints its endpoint and runs until its stdin is closed. Its log, if it is given a file, has a
line for each request: when the answer began, on the machine's monotonic clock, and the request.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.object_store.delay import running

CREDENTIALS: Final = {"key": "test", "secret": "test"}
"""Options of s3fs; moto takes any."""
_REQUEST: Final = " - - ["
"""Is between a client's address and the time of its request; other lines tell of errors."""


@contextmanager
def s3_process(log: Path | None = None) -> Iterator[str]:
    """Run a server until the block ends; yield its endpoint.

    Args:
        log: The file for its log of requests; ``None``: none is kept.
    """
    command = [sys.executable, "-m", "benchmarks.object_store.s3_server"]
    with running(command + ([] if log is None else ["--log", str(log)])) as endpoint:
        yield endpoint


def answered_s(log: Path) -> list[float]:
    """Return when the answers in a server's log began, on the machine's monotonic clock."""
    lines = log.read_text("utf-8").splitlines()
    return [float(line.split(" ", 1)[0]) for line in lines if _REQUEST in line]


def s3_options(endpoint: str, agent: str = "") -> Mapping[str, Any]:
    """Return options of s3fs for an endpoint.

    Args:
        endpoint: The URL of the server, or of a proxy in front of it.
        agent: Appended to the header ``User-Agent``.
    """
    config = {"user_agent_extra": agent} if agent else {}
    return {**CREDENTIALS, "endpoint_url": endpoint, "config_kwargs": config}


def main() -> None:
    """Run the server."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - only the server needs it

    parser = argparse.ArgumentParser(prog="python -m benchmarks.object_store.s3_server")
    parser.add_argument("--log", type=Path, help="file for the requests")
    _log_to(parser.parse_args().log)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


def _log_to(file: Path | None) -> None:
    """Have the server's own log of requests, a line for each, written to a file."""
    logger = logging.getLogger("werkzeug")
    logger.setLevel(logging.ERROR if file is None else logging.INFO)
    if file is None:
        return
    logger.propagate = False
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(_Monotonic())
    logger.addHandler(handler)


class _Monotonic(logging.Formatter):
    """Formats a record after the machine's monotonic time."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{time.monotonic():.6f} {' '.join(record.getMessage().splitlines())}"


if __name__ == "__main__":
    main()

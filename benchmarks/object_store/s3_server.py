"""An S3 server (moto) in a process of its own: ``python -m benchmarks.object_store.s3_server``.

It prints its endpoint and runs until its stdin is closed.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.object_store.delay import running

CREDENTIALS: Final = {"key": "test", "secret": "test"}
"""Options of s3fs; moto takes any."""


@contextmanager
def s3_process() -> Iterator[str]:
    """Run a server until the block ends; yield its endpoint."""
    with running([sys.executable, "-m", "benchmarks.object_store.s3_server"]) as endpoint:
        yield endpoint


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

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()

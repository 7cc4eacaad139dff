"""An S3 server (moto) in this process, and storages on it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from moto.server import ThreadedMotoServer

from timeline.storage.fsspec_storage import FsspecStorage

_CREDENTIALS = {"key": "test", "secret": "test"}


@dataclass(frozen=True)
class S3Server:
    """A running server.

    Attributes:
        endpoint: Its URL.
    """

    endpoint: str

    @property
    def options(self) -> dict[str, Any]:
        """Options of s3fs for this server."""
        return {**_CREDENTIALS, "endpoint_url": self.endpoint}

    def storage(self, scheme: str = "s3") -> FsspecStorage:
        """Return the storage of a table in a new bucket."""
        url = f"{scheme}://b-{uuid.uuid4()}/warehouse/t"
        storage = FsspecStorage(url, self.options)
        storage._fs.mkdir(url.split("/")[2])
        return storage


@contextmanager
def s3_server(*, ignores_conditions: bool = False) -> Iterator[S3Server]:
    """Run a server within the block.

    Args:
        ignores_conditions: Whether it takes a conditional write for any other, as some servers do.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    listening = server._server
    assert listening is not None
    # moto looks whether a condition holds and then writes; S3 does both in one step.
    listening.app = _one_at_a_time(listening.app, ignores_conditions)
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()


def _one_at_a_time(app: Callable[..., Any], ignores_conditions: bool) -> Callable[..., Any]:
    """Return a WSGI application that works on one request at a time."""
    turn = threading.Lock()

    def answer(environ: Any, start_response: Any) -> Any:
        if ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with turn:
            return list(app(environ, start_response))

    return answer

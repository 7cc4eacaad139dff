"""``S3Endpoint``: storages on an S3 server; ``s3_server``: moto's server in this process."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from tests.kit.storage.s3_faults import RequestFaults
from timeline.storage.fsspec_storage import FsspecStorage

CREDENTIALS = {"key": "test", "secret": "test"}
_ACCOUNT = "123456789012"
"""moto's, whatever the credentials."""


@dataclass(frozen=True)
class S3Endpoint:
    """A running S3 server of any kind.

    Attributes:
        endpoint: Its URL.
    """

    endpoint: str

    @property
    def options(self) -> dict[str, Any]:
        """Options of s3fs for this server."""
        return {**CREDENTIALS, "endpoint_url": self.endpoint}

    def storage(self, scheme: str = "s3") -> FsspecStorage:
        """Return the storage of a table in a new bucket."""
        url = f"{scheme}://b-{uuid.uuid4()}/warehouse/t"
        storage = self.storage_at(url)
        # Not by mkdir, which takes S3Proxy's answers for those of a bucket that exists.
        storage._fs.call_s3("create_bucket", Bucket=url.split("/")[2])
        return storage

    def storage_at(self, url: str) -> FsspecStorage:
        """Return the storage of a table."""
        return FsspecStorage(url, self.options)


@dataclass(frozen=True)
class S3Server(S3Endpoint):
    """A running server of moto's.

    Attributes:
        requests: The requests to it, and their faults.
    """

    requests: RequestFaults

    def single_try(self, folder: Path | None = None) -> FsspecStorage:
        """Return the storage of a table whose client sends no failed request again by itself.

        s3fs still repeats a request whose connection was closed without an answer.

        Args:
            folder: The table's files, which are put into the new bucket without a request.
        """
        bucket = f"b-{uuid.uuid4()}"
        backend = s3_backends[_ACCOUNT]["aws"]
        backend.create_bucket(bucket, "us-east-1")
        for path in folder.rglob("*") if folder else ():
            if path.is_file():
                key = f"warehouse/t/{path.relative_to(folder).as_posix()}"
                backend.put_object(bucket, key, path.read_bytes())
        options = {**self.options, "config_kwargs": {"retries": {"max_attempts": 0}}}
        return FsspecStorage(f"s3://{bucket}/warehouse/t", options)

    def drop(self, storage: FsspecStorage) -> None:
        """Delete a table's bucket and all that is in it, without a request."""
        bucket = storage._root.partition("/")[0]
        backend = s3_backends[_ACCOUNT]["aws"]
        backend.buckets[bucket].keys.clear()
        backend.delete_bucket(bucket)

    def save(self, storage: FsspecStorage, folder: Path) -> Path:
        """Write a table's files to a local folder without a request; return the folder."""
        bucket, _, root = storage._root.partition("/")
        folder.mkdir(parents=True)
        for key, found in s3_backends[_ACCOUNT]["aws"].buckets[bucket].keys.items():
            path = folder / key.removeprefix(f"{root}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(found.value)
        return folder


@contextmanager
def s3_server(
    *,
    ignores_conditions: bool = False,
    watch: Callable[[], None] = lambda: None,
    hold: Callable[[str, str], None] = lambda method, path: None,
) -> Iterator[S3Server]:
    """Run a server within the block.

    Args:
        ignores_conditions: Whether it takes a conditional write for any other, as some servers do.
        watch: Called before each request is carried out, and again before it is answered.
        hold: Called with the method and path of each request, which is carried out when it returns;
            others are carried out meanwhile.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    listening = server._server
    assert listening is not None
    requests = RequestFaults(listening.app)
    # moto looks whether a condition holds and then writes; S3 does both in one step.
    listening.app = _one_at_a_time(requests, ignores_conditions, watch, hold)
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}", requests)
    finally:
        server.stop()


def _one_at_a_time(
    app: RequestFaults,
    ignores_conditions: bool,
    watch: Callable[[], None],
    hold: Callable[[str, str], None],
) -> Callable[..., Any]:
    """Return a WSGI application that works on one request at a time."""
    turn = threading.Lock()

    def answer(environ: Any, start_response: Any) -> Any:
        if ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        hold(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        with turn:
            watch()
            found = app(environ, start_response)
            watch()
            return found

    return answer

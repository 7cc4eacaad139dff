"""``S3Endpoint``: storages on an S3 server; ``s3_server``: moto's server in this process."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import DechunkedInput, ThreadedWSGIServer

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

        s3fs still repeats a request whose connection was closed without an answer, but only once:
        it would wait for two seconds in all.

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
        # A tenth of a request's time is in the user agent that botocore makes up for each.
        config = {"retries": {"max_attempts": 0}, "user_agent": "tests"}
        options = {**self.options, "config_kwargs": config}
        storage = FsspecStorage(f"s3://{bucket}/warehouse/t", options)
        storage._fs.retries = 2
        return storage

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
    # S3 alone: moto's own server looks at each request for the service that it is for.
    requests = RequestFaults(create_backend_app("s3"))
    # moto looks whether a condition holds and then writes; S3 does both in one step.
    server = _Listening(_one_at_a_time(requests, ignores_conditions, watch, hold))
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    try:
        yield S3Server(f"http://127.0.0.1:{server.port}", requests)
    finally:
        server.shutdown()
        serving.join()
        server.end_connections()


class _Listening(ThreadedWSGIServer):
    """Serves an application on connections that stay open for later requests, as S3's do."""

    def __init__(self, app: Callable[..., Any]) -> None:
        super().__init__("127.0.0.1", 0, app, _Connection)
        self.connections: set[socket.socket] = set()

    def end_connections(self) -> None:
        """Have clients find that the server has gone."""
        for connection in tuple(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Connection(MotoRequestHandler):
    """A client's connection; werkzeug's own handler answers one request and closes it."""

    server: _Listening
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Log nothing: a line for each request takes longer than many a request."""

    def handle_expect_100(self) -> bool:
        """Let the client send its body."""
        self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def run_wsgi(self) -> None:
        """Answer a request whose head has been read."""
        environ = self.make_environ()
        body = environ["wsgi.input"]
        length = (
            -1 if isinstance(body, DechunkedInput) else int(self.headers["Content-Length"] or 0)
        )
        # All of it, whatever the application reads: the next request begins after it.
        environ["wsgi.input"] = BytesIO(body.read(length))
        given: list[Any] = []
        for data in self.server.app(
            environ, lambda *status_and_headers: given.extend(status_and_headers)
        ):
            # A head and what follows it are sent by one call.
            self.wfile.write(self._head(*given, len(data)) + data)
            given.clear()

    def _head(
        self, status: str = "", headers: Sequence[tuple[str, str]] = (), size: int = 0
    ) -> bytes:
        """Return the head of an answer of so many bytes; nothing once it has been sent."""
        if not status:
            return b""
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
        if not any(name.lower() == "content-length" for name, _ in headers):
            lines.append(f"Content-Length: {size}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


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

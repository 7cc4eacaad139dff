"""A collector of spans, which the OTLP exporter of another process reaches over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.spans import Seen, Spans


class SpanCollector:
    """Receives what exporters of other processes send.

    Attributes:
        url: Its address.
        paths: The paths that were posted to.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: set[str] = set()
        self._found: list[Seen] = []
        self._changed = threading.Condition()

    @property
    def spans(self) -> Spans:
        return Spans(self._found)

    def take(self, path: str, body: bytes) -> None:
        sent = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.paths.add(path)
            for of_process in sent.resource_spans:
                resource = _values(of_process.resource.attributes)
                self._found += [
                    Seen(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        ("", "INTERNAL", "SERVER", "CLIENT")[span.kind],
                        _values(span.attributes),
                        span.status.code == span.status.STATUS_CODE_ERROR,
                        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                        resource["service.name"],
                    )
                    for scope in of_process.scope_spans
                    for span in scope.spans
                ]
            self._changed.notify_all()

    def wait_for(self, name: str) -> Seen:
        """Return the first span of a name, once it has come."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.spans.named(name), PATIENCE_S)
            return self.spans.named(name)[0]


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collecting() -> Iterator[SpanCollector]:
    """Run a collector."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = SpanCollector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()

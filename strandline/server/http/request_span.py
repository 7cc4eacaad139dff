"""``RequestSpans``: the spans of a server's requests, by OpenTelemetry's conventions for HTTP.

A request with a valid ``traceparent`` continues that trace, and any other one may begin a trace, as
the process's sampler decides. A request that is answered from ready bytes has a span only if its
``traceparent`` is sampled: beginning one would cost as much as the answer. Requests to open paths
have none: anybody could fill the queue of spans with them.
"""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from typing import Final

from strandline.server.http.authorization import NOTHING, right_for
from strandline.server.http.reply import Reply
from strandline.server.http.request import REQUEST_ID, Application, Fields, Request
from timeline import tracing
from timeline.tracing import TABLE, Carrier, Value

TRACEPARENT: Final = tracing.TRACEPARENT.encode("ascii")
TRACE_HEADERS: Final = {name.encode("ascii"): name for name in tracing.HEADERS}
"""The headers of a trace as received and as text."""
_FLAGS: Final = slice(54, 55)
"""Place of the digit of ``traceparent`` whose lowest bit is whether it is sampled."""
_SAMPLED: Final = frozenset(bytes([digit]) for digit in b"13579bdf")


class RequestSpans:
    """Records the requests to one service.

    Args:
        paths: The paths of its routes, which name spans.

    Attributes:
        scheme: ``http`` or ``https``; the server sets it.
    """

    def __init__(self, paths: Collection[str] = ()) -> None:
        self._routes = {path: path.rstrip("/") or path for path in paths}
        self.scheme = "http"

    def of(self, answer: Application) -> Application:
        """Return an application that answers as the given one, and records the requests."""

        async def recorded(request: Request) -> Reply:
            if not tracing.is_on() or right_for(request.path) == NOTHING:
                return await answer(request)
            route = self._routes.get(request.path, "")
            attributes = self._attributes(request.method, route, request.table, request.fields)
            attributes |= {
                "url.path": request.path,
                "client.address": request.peer,
                "network.protocol.version": request.version,
            }
            name = f"{request.method} {route}".rstrip()
            carrier = _carrier(request.fields)
            with tracing.span(name, attributes, kind="SERVER", parent=carrier) as span:
                reply = await answer(request)
                span.set("http.response.status_code", reply.status)
                if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    span.fail(reply.why[0] or str(reply.status))
            return reply

        return recorded

    def note_ready(self, path: str, table: str, fields: Fields, took_s: float) -> None:
        """Record a GET that was answered from ready bytes, if its trace is sampled.

        Args:
            path: Of its route.
            table: The table's base path.
            fields: Its header fields, with ``TRACEPARENT``.
            took_s: How long its answer took, in seconds.
        """
        if fields[TRACEPARENT][_FLAGS] not in _SAMPLED or not tracing.is_on():
            return
        attributes = self._attributes("GET", path, table, fields)
        attributes |= {"url.path": path, "http.response.status_code": HTTPStatus.OK.value}
        tracing.note(f"GET {path}", took_s, attributes, kind="SERVER", parent=_carrier(fields))

    def _attributes(self, method: str, route: str, table: str, fields: Fields) -> dict[str, Value]:
        found = {
            "http.request.method": method,
            "http.route": route,
            "url.scheme": self.scheme,
            TABLE: table,
            "strandline.request.id": fields.get(REQUEST_ID, b"").decode("latin-1"),
        }
        return {name: value for name, value in found.items() if value}


def _carrier(fields: Fields) -> Carrier:
    """Return the headers of a trace among a request's."""
    found = {text: fields.get(name) for name, text in TRACE_HEADERS.items()}
    return {name: value.decode("latin-1") for name, value in found.items() if value is not None}

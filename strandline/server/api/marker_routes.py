"""The routes of markers, but for their creation (``strandline.server.api.marker_creation``).

Source: Hudi 1.2.0 ``RequestHandler``, ``MarkerHandler``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from fsview.wire.marker_form import DELETE_DIRECTORY, DIRECTORY_EXISTS, MARKER_DIRECTORY, MARKERS
from strandline.server.api.handler import RouteRow, json_body, required, shown
from strandline.server.http.reply import Reply
from strandline.server.http.request import Request
from strandline.server.marker.registry import MarkerService


def marker_rows(markers: MarkerService) -> Iterator[RouteRow]:
    """Yield the five routes of markers that are answered on threads."""

    def directory(request: Request) -> str:
        return required(request.parameters(), MARKER_DIRECTORY)

    def named(keep: Callable[[str], bool], request: Request) -> Reply:
        found = [name for name in markers.names(directory(request)) if keep(name)]
        return shown(json_body(found), request.parameters())

    yield "GET", f"{MARKERS}/all", partial(named, lambda _: True)
    yield "GET", f"{MARKERS}/create-and-merge", partial(named, lambda n: not n.endswith("APPEND"))
    yield "GET", f"{MARKERS}/append", partial(named, lambda n: n.endswith("APPEND"))
    yield "GET", DIRECTORY_EXISTS, lambda r: json_body(markers.exists(directory(r)))
    yield "POST", DELETE_DIRECTORY, lambda r: json_body(markers.delete(directory(r)))

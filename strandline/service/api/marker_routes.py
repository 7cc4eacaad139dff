"""The routes of markers; creation usually goes by ``strandline.service.api.application``.

Source: Hudi 1.2.0 ``RequestHandler``, ``MarkerHandler``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.service.api.handler import Add, json_body, parameters, required, shown
from strandline.service.http.paths import CREATE_MARKER, MARKER_DIRECTORY, MARKERS
from strandline.service.http.reply import Reply
from strandline.service.marker.registry import MarkerService

MARKER_NAME: Final = "markername"
EARLY_CONFLICTS: Final = "basepath"
"""Sent by writers that want early conflicts found; what it says is in the directory's path too."""


def add_marker_routes(add: Add, markers: MarkerService) -> None:
    """Add the six routes of markers."""

    def directory() -> str:
        return required(parameters(), MARKER_DIRECTORY)

    def names(keep: Callable[[str], bool]) -> Reply:
        found = [name for name in markers.names(directory()) if keep(name)]
        return shown(json_body(found))

    def create() -> Reply:
        params = parameters()
        name = required(params, MARKER_NAME)
        refusable = bool(params.get(EARLY_CONFLICTS))
        return json_body(markers.submit(directory(), name, refusable=refusable).result())

    add("GET", f"{MARKERS}/all", lambda: names(lambda _: True))
    add("GET", f"{MARKERS}/create-and-merge", lambda: names(lambda n: not n.endswith("APPEND")))
    add("GET", f"{MARKERS}/append", lambda: names(lambda n: n.endswith("APPEND")))
    add("GET", f"{MARKERS}/dir/exists", lambda: json_body(markers.exists(directory())))
    add("POST", f"{MARKERS}/dir/delete", lambda: json_body(markers.delete(directory())))
    add("POST", CREATE_MARKER, create)

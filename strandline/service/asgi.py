"""The application as the server sees it: marker creations and probes wait on the loop; else Flask.

A task that creates a marker waits for a flush (``strandline.service.markers``). A thousand of
them may wait at once; on Flask's pool each would hold a thread, here each is a future. Probes must
have their answer when all threads of that pool hang in storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

from strandline.service.admission import NOTHING, Admission, Right
from strandline.service.app import GREETING, OPEN_PATHS, greeting, health
from strandline.service.handling import json_body, reply_to, required, unauthorized
from strandline.service.marker_routes import (
    CREATE_MARKER,
    EARLY_CONFLICTS,
    MARKER_DIRECTORY,
    MARKER_NAME,
)
from strandline.service.markers import MarkerService
from strandline.service.readiness import Readiness
from strandline.service.replies import Reply
from strandline.service.wsgi import Receive, Scope, Send, send_reply

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_CREATE_PATHS: Final = frozenset({CREATE_MARKER, f"{CREATE_MARKER}/"})
_PROBING: Final = frozenset({"GET", "HEAD"})


class ServiceApp:
    """The ASGI application of a service."""

    def __init__(
        self,
        markers: MarkerService,
        admission: Admission,
        readiness: Readiness,
        rest: Application,
    ) -> None:
        self._markers = markers
        self._admission = admission
        self._readiness = readiness
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"] in _CREATE_PATHS and scope["method"] == "POST":
            await send_reply(await self._create(scope), send)
        elif (
            scope["type"] == "http" and scope["path"] in OPEN_PATHS and scope["method"] in _PROBING
        ):
            await send_reply(await self._probed(scope["path"]), send)
        else:
            await self._rest(scope, receive, send)

    async def _probed(self, path: str) -> Reply:
        return greeting() if path == GREETING else health(await self._readiness.reasons_on_loop())

    async def _create(self, scope: Scope) -> Reply:
        headers = dict(reversed(scope["headers"]))
        accept = headers.get(b"accept", b"").decode("latin-1")
        free = scope.get("free", NOTHING)
        if not self._admission.admits(Right.MARKERS, free, headers.get(b"authorization")):
            return unauthorized(accept)
        try:
            query = scope["query_string"].decode("ascii")
            pairs = parse_qsl(query, keep_blank_values=True, errors="replace")
            params = dict(reversed(pairs))
            name = required(params, MARKER_NAME)
            directory = required(params, MARKER_DIRECTORY)
            refusable = bool(params.get(EARLY_CONFLICTS))
            created = self._markers.submit_known(directory, name, refusable=refusable)
            if created is None:
                # Finding a directory looks at the file system (links), so it isn't done here.
                created = await asyncio.to_thread(
                    self._markers.submit, directory, name, refusable=refusable
                )
            answer: asyncio.Future[bool] = asyncio.wrap_future(created)
            # A client that leaves doesn't take its marker out of the flush of many.
            return json_body(await asyncio.shield(answer))
        except Exception as exc:  # noqa: BLE001 - the boundary of a request
            return reply_to(exc, accept, scope["path"])

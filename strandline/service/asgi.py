"""The application as the server sees it: marker creations wait on the loop, the rest goes to Flask.

A task that creates a marker waits for a flush (``strandline.service.markers``). A thousand of
them may wait at once; on Flask's pool each would hold a thread, here each is a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

from strandline.service.bearer import BearerCheck
from strandline.service.handling import json_body, reply_to, required, unauthorized
from strandline.service.marker_routes import CREATE_MARKER, MARKER_DIRECTORY, MARKER_NAME
from strandline.service.markers import MarkerService
from strandline.service.replies import Reply
from strandline.service.wsgi import Receive, Scope, Send, send_reply

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_CREATE_PATHS: Final = frozenset({CREATE_MARKER, f"{CREATE_MARKER}/"})


class ServiceApp:
    """The ASGI application of a service."""

    def __init__(self, markers: MarkerService, bearer: BearerCheck, rest: Application) -> None:
        self._markers = markers
        self._bearer = bearer
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"] in _CREATE_PATHS and scope["method"] == "POST":
            await send_reply(await self._create(scope), send)
        else:
            await self._rest(scope, receive, send)

    async def _create(self, scope: Scope) -> Reply:
        headers = dict(reversed(scope["headers"]))
        accept = headers.get(b"accept", b"").decode("latin-1")
        if not self._bearer.admits(headers.get(b"authorization")):
            return unauthorized(accept)
        try:
            query = scope["query_string"].decode("ascii")
            pairs = parse_qsl(query, keep_blank_values=True, errors="replace")
            params = dict(reversed(pairs))
            name = required(params, MARKER_NAME)
            directory = required(params, MARKER_DIRECTORY)
            created = self._markers.submit_known(directory, name)
            if created is None:
                # Finding a directory looks at the file system (links), so it isn't done here.
                created = await asyncio.to_thread(self._markers.submit, directory, name)
            answer: asyncio.Future[bool] = asyncio.wrap_future(created)
            return json_body(await answer)
        except Exception as exc:  # noqa: BLE001 - the boundary of a request
            return reply_to(exc, accept, scope["path"])

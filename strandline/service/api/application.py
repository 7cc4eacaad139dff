"""The application as the server sees it: marker creations and probes wait on the loop; else Flask.

A task that creates a marker waits for a flush (``strandline.service.marker.registry``). A thousand
of them may wait at once; on Flask's pool each would hold a thread, here each is a future. Probes
must have their answer when all threads of that pool hang in storage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from strandline.service.api.flask_app import greeting, health
from strandline.service.api.marker_creation import MarkerCreation
from strandline.service.api.readiness import Readiness
from strandline.service.http.paths import CREATE_MARKER, GREETING, OPEN_PATHS, PROBING
from strandline.service.http.reply import Reply
from strandline.service.http.wsgi_bridge import Receive, Scope, Send, send_reply
from strandline.service.marker.registry import MarkerService

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_CREATE_PATHS: Final = frozenset({CREATE_MARKER, f"{CREATE_MARKER}/"})


class ServiceApp:
    """The ASGI application of a service."""

    def __init__(
        self,
        markers: MarkerService,
        readiness: Readiness,
        rest: Application,
    ) -> None:
        self._creation = MarkerCreation(markers)
        self._readiness = readiness
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"] in _CREATE_PATHS and scope["method"] == "POST":
            await self._creation.answer(scope, send)
        elif scope["type"] == "http" and scope["path"] in OPEN_PATHS and scope["method"] in PROBING:
            await send_reply(await self._probed(scope["path"]), send)
        else:
            await self._rest(scope, receive, send)

    async def _probed(self, path: str) -> Reply:
        return greeting() if path == GREETING else health(await self._readiness.reasons_on_loop())

"""``MarkerCreation``: creates markers on the server's loop, where no thread waits for the flush.

Most requests of a stage are these. Each waits for a group commit
(``strandline.service.marker.directory``), and a thousand may wait at once.
"""

from __future__ import annotations

import asyncio
from typing import Final

from strandline.service.api.handler import json_body, required
from strandline.service.http.authorization import MARKERS
from strandline.service.http.reply import Reply
from strandline.service.http.request import Request
from strandline.service.http.table_of_request import MARKER_DIRECTORY
from strandline.service.marker.loop_future import LoopFutures
from strandline.service.marker.registry import MarkerService
from timeline.errors import InputError

CREATE_MARKER: Final = f"{MARKERS}/create"
MARKER_NAME: Final = "markername"
EARLY_CONFLICTS: Final = "basepath"
"""The parameter of writers that want early conflicts detected; the value isn't needed."""

_QUERY_BYTES: Final = 32 * 1024
"""Longest query that is parsed; the longest directory and marker take less, escaped."""
_REPLIES: Final = {created: json_body(created) for created in (True, False)}


class MarkerCreation:
    """Answers ``marker/create``; used on one loop."""

    def __init__(self, markers: MarkerService) -> None:
        self._markers = markers
        self._futures: LoopFutures | None = None
        self._searches: dict[str, asyncio.Future[None]] = {}

    async def answer(self, request: Request) -> Reply:
        """Answer one request, once its marker is durable.

        Raises:
            StrandlineError: The request is wrong, or the storage fails.
        """
        if len(request.query) > _QUERY_BYTES:
            raise InputError(
                f"the query has {len(request.query)} bytes; allowed: up to {_QUERY_BYTES}"
            )
        params = request.parameters()
        name = required(params, MARKER_NAME)
        directory = required(params, MARKER_DIRECTORY)
        refusable = bool(params.get(EARLY_CONFLICTS))
        # The parts are assembled before the loop runs.
        if self._futures is None:
            self._futures = LoopFutures(asyncio.get_running_loop())
        created = self._futures.create()
        # Repeated, as the directory may be retired between its search and this call.
        while not self._markers.submit(directory, name, created, refusable=refusable):
            await self._find(directory)
        return _REPLIES[await created.future]

    async def _find(self, directory: str) -> None:
        """Wait until a directory is found; requests for the same directory share one search.

        A search resolves links, which may hang, so it runs on a thread.
        """
        search = self._searches.get(directory)
        if search is None:
            search = asyncio.wrap_future(self._markers.find(directory))
            self._searches[directory] = search
            search.add_done_callback(lambda done: self._search_done(directory, done))
        await asyncio.shield(search)  # a client that leaves must not cancel it for the others

    def _search_done(self, directory: str, done: asyncio.Future[None]) -> None:
        del self._searches[directory]
        if not done.cancelled():
            done.exception()  # marks it as retrieved: the clients may all have left

"""The creation of a marker on the server's loop: no thread waits for the flush.

Of a stage's requests these are the most. A task that creates a marker waits for a group commit
(``strandline.service.marker.registry``), and a thousand tasks may wait at once: on threads each
would hold one, here each is a future.
"""

from __future__ import annotations

import asyncio
from typing import Final

from strandline.service.api.handler import json_body, required
from strandline.service.http.authorization import MARKERS
from strandline.service.http.loop_future import LoopAnswers
from strandline.service.http.reply import Reply
from strandline.service.http.request import Request
from strandline.service.http.table_of_request import MARKER_DIRECTORY
from strandline.service.marker.registry import MarkerService
from timeline.errors import InputError

CREATE_MARKER: Final = f"{MARKERS}/create"
MARKER_NAME: Final = "markername"
EARLY_CONFLICTS: Final = "basepath"
"""Sent by writers that want early conflicts found; what it says is in the directory's path too."""

_QUERY_BYTES: Final = 32 * 1024
"""Longest query that is read; a directory and a marker of the longest names take less, escaped."""
_REPLIES: Final = {created: json_body(created) for created in (True, False)}


class MarkerCreation:
    """Answers ``marker/create``; of one loop."""

    def __init__(self, markers: MarkerService) -> None:
        self._markers = markers
        self._answers: LoopAnswers | None = None
        self._finding: dict[str, asyncio.Future[None]] = {}

    async def answer(self, request: Request) -> Reply:
        """Answer one request, once its marker is durable.

        Raises:
            StrandlineError: What the request or the storage did.
        """
        if len(request.query) > _QUERY_BYTES:
            raise InputError(
                f"the query has {len(request.query)} bytes; allowed: up to {_QUERY_BYTES}"
            )
        params = request.parameters()
        name = required(params, MARKER_NAME)
        directory = required(params, MARKER_DIRECTORY)
        refusable = bool(params.get(EARLY_CONFLICTS))
        if self._answers is None:
            self._answers = LoopAnswers(asyncio.get_running_loop())
        answer = self._answers.expect()
        while not self._markers.submit(directory, name, answer, refusable=refusable):
            await self._found(directory)
        return _REPLIES[await answer.future]

    async def _found(self, directory: str) -> None:
        """Wait until a directory is found; one search serves every request that waits for it.

        A search looks at the file system (links), which may hang, so it isn't done on the loop.
        """
        finding = self._finding.get(directory)
        if finding is None:
            finding = asyncio.wrap_future(self._markers.find(directory))
            self._finding[directory] = finding
            finding.add_done_callback(lambda done: self._over(directory, done))
        await asyncio.shield(finding)  # a client that leaves doesn't take it from the others

    def _over(self, directory: str, done: asyncio.Future[None]) -> None:
        del self._finding[directory]
        if not done.cancelled():
            done.exception()  # it may be that nobody waits for it any more

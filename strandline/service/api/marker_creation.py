"""The creation of a marker on the server's loop: no thread waits for the flush, no framework.

Of a stage's requests these are the most, and all but the marker's name is the same in each; so the
query is read here by the plain rule of its form, and both answers are made beforehand.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl

from strandline.service.api.handler import json_body, reply_to, required, why
from strandline.service.api.marker_routes import EARLY_CONFLICTS, MARKER_NAME
from strandline.service.http.exchange import WHY
from strandline.service.http.loop_future import LoopAnswers
from strandline.service.http.paths import MARKER_DIRECTORY
from strandline.service.http.query_text import REMEMBERED_BYTES, unquoted
from strandline.service.http.reply import Reply, accept_of
from strandline.service.http.wsgi_bridge import RawHeaders, Scope, Send, send_reply, send_whole
from strandline.service.marker.registry import MarkerService
from timeline.errors import InputError

_DIRECTORY: Final = MARKER_DIRECTORY.encode("ascii")
_QUERY_BYTES: Final = 32 * 1024
"""Longest query that is read; a directory and a marker of the longest names take less, escaped."""


class MarkerCreation:
    """Answers ``marker/create``; of one loop."""

    def __init__(self, markers: MarkerService) -> None:
        self._markers = markers
        self._answers: LoopAnswers | None = None
        self._finding: dict[str, asyncio.Future[None]] = {}

    async def answer(self, scope: Scope, send: Send) -> None:
        """Answer one request, once its marker is durable."""
        try:
            created = await self._create(scope["query_string"])
        except Exception as exc:  # noqa: BLE001 - the boundary of a request
            scope[WHY] = why(exc)
            accept = accept_of(scope["headers"])
            await send_reply(reply_to(exc, accept, scope["path"]), send)
            return
        await send_whole(200, *_SAID[created], send)

    async def _create(self, query: bytes) -> bool:
        if len(query) > _QUERY_BYTES:
            raise InputError(f"the query has {len(query)} bytes; allowed: up to {_QUERY_BYTES}")
        params = read_parameters(query)
        name = required(params, MARKER_NAME)
        directory = required(params, MARKER_DIRECTORY)
        refusable = bool(params.get(EARLY_CONFLICTS))
        if self._answers is None:
            self._answers = LoopAnswers(asyncio.get_running_loop())
        answer = self._answers.expect()
        while not self._markers.enqueue(directory, name, answer, refusable=refusable):
            await self._found(directory)
        return await answer.future

    async def _found(self, directory: str) -> None:
        """Have a directory found, once for all who wait for it.

        That looks at the file system (links), which may hang, so it isn't done on the loop.
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


def read_parameters(query: bytes) -> dict[str, str]:
    """Return the parameters of a query string, the first of each name."""
    params: dict[str, str] = {}
    try:
        for pair in query.split(b"&"):
            name, _, value = pair.partition(b"=")
            if name == _DIRECTORY:
                again = _unquoted_again if len(value) <= REMEMBERED_BYTES else unquoted
                params.setdefault(MARKER_DIRECTORY, again(value))
            elif name.isalpha():
                params.setdefault(name.decode("ascii"), unquoted(value))
            else:
                return _read_form(query)
    except UnicodeDecodeError:
        return _read_form(query)
    return params


def _read_form(query: bytes) -> dict[str, str]:
    """Return the same by all rules of forms; what isn't UTF-8 becomes a mark."""
    pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="replace")
    return dict(reversed(pairs))


_unquoted_again = lru_cache(maxsize=1024)(unquoted)
"""``unquoted`` with a memory, for what all tasks of a write send."""


def _said(value: bool) -> tuple[RawHeaders, bytes]:
    reply: Reply = json_body(value)
    headers = [(name.encode("ascii"), text.encode("ascii")) for name, text in reply.all_headers()]
    return headers, reply.body


_SAID: Final = {value: _said(value) for value in (True, False)}
"""The two answers, which look the same however they are asked for."""

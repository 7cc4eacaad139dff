"""``MarkerCreation``: creates markers on the server's loop, where no thread waits for the flush.

One marker a request for Hudi's clients, many for Strandline's (``fsview.wire.marker_form``).

These are most of a Spark stage's requests. Each waits for a group commit
(``strandline.server.marker.directory``), and a thousand may wait at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from fsview.wire.marker_form import (
    EARLY_CONFLICTS,
    MARKER_DIRECTORY,
    MARKER_NAME,
    MARKER_NAMES,
    QUERY_BYTES,
    split_names,
)
from strandline.server.api.dispatcher import json_body, required
from strandline.server.http.reply import Reply
from strandline.server.http.request import Request
from strandline.server.marker.registry import MarkerService
from timeline.errors import InputError

_REPLIES: Final = {created: json_body(created) for created in (True, False)}


class MarkerCreation:
    """Answers ``marker/create`` and ``marker/create-all``; used on one loop."""

    def __init__(self, markers: MarkerService) -> None:
        self._markers = markers
        self._futures: LoopFutures | None = None
        self._searches: dict[str, asyncio.Future[None]] = {}
        self._created = self._refused = 0

    async def answer(self, request: Request) -> Reply:
        """Answer a request for one marker, once it is durable.

        Raises:
            StrandlineError: The request is wrong, or the storage fails.
        """
        params = _parameters(request)
        (created,) = await self._create(params, (required(params, MARKER_NAME),))
        return _REPLIES[created]

    async def answer_all(self, request: Request) -> Reply:
        """Answer a request for several markers, once all of them are durable.

        Raises:
            StrandlineError: The request is wrong, or the storage fails, maybe after some markers.
        """
        params = _parameters(request)
        names = split_names(required(params, MARKER_NAMES))
        return json_body(await self._create(params, names))

    async def _create(self, params: Mapping[str, str], names: Sequence[str]) -> list[bool]:
        """Create distinct markers; return for each whether it is new."""
        directory = required(params, MARKER_DIRECTORY)
        refusable = bool(params.get(EARLY_CONFLICTS))
        # The parts are assembled before the loop runs.
        if self._futures is None:
            self._futures = LoopFutures(asyncio.get_running_loop())
        created = {name: self._futures.create() for name in names}
        # Repeated, as the directory may be retired between its search and this call.
        while not self._markers.submit(directory, created, refusable=refusable):
            await self._find(directory)
        futures = [each.future for each in created.values()]
        # The usual case needs no ``gather``, which marks all errors as retrieved and raises one.
        new = [await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures)
        self._created += sum(new)
        self._refused += len(new) - sum(new)
        return new

    def status(self) -> dict[str, int]:
        """Return how many markers were created, and how many not; from any thread."""
        return {"created": self._created, "refused": self._refused}

    async def _find(self, directory: str) -> None:
        """Wait until a directory is found; requests for the same directory share one search.

        A search resolves links, which may hang, so it runs on a thread.
        """
        search = self._searches.get(directory)
        if search is None:
            search = asyncio.wrap_future(self._markers.find(directory))
            self._searches[directory] = search
            search.add_done_callback(lambda done: self._search_done(directory, done))
        await asyncio.shield(search)  # a client that disconnects must not cancel it for the others

    def _search_done(self, directory: str, done: asyncio.Future[None]) -> None:
        del self._searches[directory]
        if not done.cancelled():
            done.exception()  # marks it as retrieved: all clients may have disconnected


def _parameters(request: Request) -> Mapping[str, str]:
    """Return a request's parameters, unless they are too long to be parsed on the loop."""
    if len(request.query) > QUERY_BYTES:
        raise InputError(f"the query has {len(request.query)} bytes; allowed: up to {QUERY_BYTES}")
    return request.parameters()


class LoopFuture:
    """One result: the loop awaits ``future``, any other thread sets the result once."""

    __slots__ = ("_futures", "future")

    def __init__(self, futures: LoopFutures, future: asyncio.Future[bool]) -> None:
        self._futures = futures
        self.future = future

    def set_result(self, result: bool, /) -> None:
        """Complete the future, from any thread."""
        self._futures.deliver(self.future, result, None)

    def set_exception(self, exception: BaseException, /) -> None:
        """Complete the future with an error, from any thread."""
        self._futures.deliver(self.future, False, exception)


class LoopFutures:
    """The futures of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: deque[tuple[asyncio.Future[bool], bool, BaseException | None]] = deque()
        self._woken = False

    def create(self) -> LoopFuture:
        """Return a new future; on the loop."""
        return LoopFuture(self, self._loop.create_future())

    def deliver(
        self, future: asyncio.Future[bool], result: bool, error: BaseException | None
    ) -> None:
        """Have the loop complete a future, from any thread."""
        self._ready.append((future, result, error))
        # A thread that finds the flag set has appended before the loop takes the first item.
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._complete_ready)

    def _complete_ready(self) -> None:
        # Before the queue is emptied: an item appended after the last check wakes the loop again.
        self._woken = False
        while self._ready:
            future, result, error = self._ready.popleft()
            if future.done():
                continue  # the client has disconnected
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

"""One request that the application answers: it waits for its turn, and is answered once.

Nearly all replies are whole. One whose length isn't known comes in parts: the exchange has a thread
make each, and sends it before it asks for the next.

A client may leave at any time. Its exchange is then cancelled: what waits for a thread is taken out
of the queue, what runs can see it (``Request.has_left``), and its reply is dropped without a word.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import Final, Protocol

from strandline.service.http.reply import INTERNAL, Reply, failure
from strandline.service.http.request import Application, Request
from strandline.service.table_threads import TableThreads

logger = logging.getLogger(__name__)

STOPPING: Final = "the service is stopping"
_PIECE_BYTES: Final = 1 << 18
"""Longer bodies go out in pieces of this size, each once the client has taken the one before."""
_JOINED_BYTES: Final = 1 << 16
"""Up to here head and body go out in one piece, which spares a system call."""


class Outlet(Protocol):
    """Where responses go: the connection."""

    async def writable(self) -> None:
        """Wait until the client has taken most of what it was sent."""

    def write(self, data: bytes) -> None:
        """Send bytes; to a client that has left, none."""

    def refused(self, request: Request, reply: Reply) -> None:
        """Hear that a request is answered with 400 or more."""

    def exchange_over(self, exchange: Exchange, *, whole: bool) -> None:
        """Hear that an exchange has ended, with a whole response or broken off."""


class Exchange:
    """A request and its response.

    Attributes:
        request: What is asked.
        keep_alive: Whether the connection goes on after it; may turn false until the response
            begins.
        task: Runs it, once it has its turn.
    """

    __slots__ = ("_begun", "_done", "_outlet", "keep_alive", "request", "task")

    def __init__(self, outlet: Outlet, request: Request, *, keep_alive: bool) -> None:
        self._outlet = outlet
        self._begun = self._done = False
        self.request = request
        self.keep_alive = keep_alive
        self.task: asyncio.Task[None] | None = None

    async def run(self, app: Application, threads: TableThreads) -> None:
        """Let the application answer; whatever happens, the exchange is over then.

        Args:
            app: The application.
            threads: Make the parts of replies that come in parts.
        """
        try:
            await self._send(await app(self.request), threads)
        except asyncio.CancelledError:
            self.request.gone.set()
            self._answer_for_it(HTTPStatus.SERVICE_UNAVAILABLE, STOPPING)
            raise
        except Exception:
            logger.exception("%s: unforeseen error", self.request.path)
        finally:
            self._answer_for_it(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
            self._outlet.exchange_over(self, whole=self._done)
            # With its error a task holds what was being sent, until the garbage collector comes.
            self.task = None

    def _answer_for_it(self, status: int, message: str) -> None:
        """Answer in place of an application that hasn't begun to."""
        if self._begun:
            return
        self._begun = True
        self.keep_alive = False
        reply = replace(failure(status, message, self.request.accept), why=("", message))
        self._outlet.refused(self.request, reply)
        self._outlet.write(reply.last_words(with_body=self.request.method != "HEAD"))
        self._done = True

    async def _send(self, reply: Reply, threads: TableThreads) -> None:
        await self._outlet.writable()
        if reply.status >= HTTPStatus.BAD_REQUEST:
            self._outlet.refused(self.request, reply)
        if self.request.method == "HEAD":
            await self._write(reply, b"")
        elif reply.rest is None:
            await self._write(reply, reply.body)
        elif not await self._write_parts(reply, reply.rest, threads):
            return
        self._done = True

    async def _write_parts(
        self, reply: Reply, parts: Iterator[bytes], threads: TableThreads
    ) -> bool:
        """Send parts as they are made; return whether all were. An error breaks off."""
        table = self.request.table
        chunked = self.request.version == "1.1"
        if not chunked:
            # HTTP/1.0 has no chunks: the end of the connection is the end of the body.
            self.keep_alive = False
        try:
            while part := await threads.run(table, next, parts, b""):
                sent = b"%x\r\n%b\r\n" % (len(part), part) if chunked else part
                await self._write(reply, sent, chunked=chunked)
        except Exception as error:  # noqa: BLE001 - the boundary of a request, which has begun
            logger.warning("an answer in parts is broken off: %s", error)
            return False
        await self._write(reply, b"0\r\n\r\n" if chunked else b"", chunked=chunked)
        return True

    async def _write(self, reply: Reply, data: bytes, *, chunked: bool = False) -> None:
        """Send bytes of a reply's body, behind its head if they are the first."""
        outlet = self._outlet
        await outlet.writable()
        if not self._begun:
            self._begun = True
            # Made as late as may be: the service may have begun to stop meanwhile.
            head = reply.head(keep_alive=self.keep_alive, chunked=chunked)
            if len(data) <= _JOINED_BYTES:
                data = head + data
            else:
                outlet.write(head)
        # What a client doesn't take is held here once, not in the transport's buffer as well.
        for start in range(0, len(data), _PIECE_BYTES):
            await outlet.writable()
            outlet.write(data[start : start + _PIECE_BYTES])

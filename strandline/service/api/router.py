"""The router: the one way from a request to its reply, by the table of routes.

Every route is a row: method, path, handler. Rows come from ``fsview.wire.routes`` for views, and
from the modules of markers and writers. Handlers run in one of three places:

* on the server's loop, what waits without a thread (the creation of a marker) or must be answered
  when every thread hangs in storage (probes);
* on a thread, shared fairly among tables, the protocol of views, markers and writers;
* on a thread, below ``PAGES``, what people read: a Flask app behind a small WSGI bridge.

A path that is known for another method is unknown: Hudi's server answers 404 as well.

Source: Hudi 1.2.0 ``RequestHandler``.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, TypeVar

from strandline.service.api.handler import Handler, LoopRow, Row, reply_to
from strandline.service.http.reply import NOT_FOUND, Reply, compressed, failure, success
from strandline.service.http.request import Request
from strandline.service.table_threads import TableThreads

T = TypeVar("T")

PAGES: Final = "/v1/strandline/"
"""Where the paths of pages begin."""


class Router:
    """Answers the requests of a service; on the server's loop."""

    def __init__(
        self,
        on_loop: Iterable[LoopRow],
        on_threads: Iterable[Row],
        pages: Handler,
        *,
        gzip: bool = True,
    ) -> None:
        """Make a router.

        Args:
            on_loop: Routes that are answered on the loop, where nothing may block.
            on_threads: Routes that are answered on threads.
            pages: Answers everything below ``PAGES``, on a thread.
            gzip: Whether long bodies are compressed for clients that accept it.
        """
        self._on_loop = _table(on_loop)
        self._on_threads = _table(on_threads)
        self._pages = pages
        self._gzip = gzip

    @property
    def routes(self) -> frozenset[tuple[str, str]]:
        """Method and path of every route but the pages', with and without a slash at the end."""
        return frozenset({*self._on_loop, *self._on_threads})

    async def answer(self, threads: TableThreads, request: Request) -> Reply:
        """Answer one request.

        Args:
            threads: Run what may wait for storage.
            request: Whose client is admitted.
        """
        # The server drops the body of a reply to HEAD.
        asked = "GET" if request.method == "HEAD" else request.method, request.path
        if (waits := self._on_loop.get(asked)) is not None:
            try:
                return await waits(request)
            except Exception as error:  # noqa: BLE001 - the boundary of a request
                return reply_to(error, request)
        handler = self._on_threads.get(asked)
        if handler is None and request.path.startswith(PAGES):
            handler = self._pages
        if handler is None:
            return failure(HTTPStatus.NOT_FOUND, NOT_FOUND, request.accept)
        return await threads.run(request.table, self._handled, handler, request)

    def _handled(self, handler: Handler, request: Request) -> Reply:
        try:
            reply = handler(request)
        except Exception as error:  # noqa: BLE001 - the boundary of a request
            reply = reply_to(error, request)
        return compressed(reply) if self._gzip and request.takes_gzip else reply


async def greeting(_: Request) -> Reply:
    """Return what Hudi's server greets with."""
    return success(b"Hello Hudi")


def _table(rows: Iterable[tuple[str, str, T]]) -> dict[tuple[str, str], T]:
    """Return handlers by method and path, the path with and without a slash at its end."""
    table = {}
    for method, path, handler in rows:
        bare = path.rstrip("/")
        table[method, bare or "/"] = table[method, f"{bare}/"] = handler
    return table

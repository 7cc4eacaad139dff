"""``Dispatcher``: the one way from a request to its reply, by the table of routes.

A row of the table is a method, a path and a handler. There are three ways to run a handler:

* on the server's loop: creations of markers, which wait without a thread, and probes, which must be
  answered even while every thread hangs in storage;
* on a thread, shared fairly among tables: the other routes of views, markers and writers;
* on a thread, for paths below ``PAGES``: a Flask app behind a WSGI bridge, for people.

Requests below ``/v2`` go to ``strandline.server.rest``, whatever their method.

A client may bound its wait for a view route (``strandline.server.api.late_answers``).

A route that exists only for another method gets 404, as from Hudi's server.

What all handlers share is here, too: their types, parameters, replies. ``reply_to`` alone decides
how an error is reported.

Source: Hudi 1.2.0 ``RequestHandler``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar

from fsview.wire.param import PRETTY, V2
from strandline.server.api.late_answers import LateAnswers, wait_of
from strandline.server.http.reply import (
    INTERNAL,
    NOT_FOUND,
    Reply,
    compressed,
    failure,
    failure_of,
    pretty,
    success,
)
from strandline.server.http.request import Request
from strandline.server.table_threads import TableThreads
from timeline.errors import InputError, StrandlineError

logger = logging.getLogger(__name__)

Handler = Callable[[Request], Reply]
"""Answers a request on a thread, where it may wait for storage."""
RouteRow = tuple[str, str, Handler]
"""Method, path, handler; the path also counts with, or without, a slash at the end."""
LoopRow = tuple[str, str, Callable[[Request], Awaitable[Reply]]]
"""A row whose handler runs on the server's loop."""
Rest = Callable[[TableThreads, Request], Awaitable[Reply]]
"""Answers a request on the loop, and has threads run what may wait."""


def required(params: Mapping[str, str], name: str) -> str:
    """Return a parameter.

    Raises:
        InputError: It is missing or empty.
    """
    value = params.get(name, "")
    if not value:
        raise InputError(f"the parameter {name!r} is missing")
    return value


def json_body(value: object) -> Reply:
    """Return a success with a value as JSON, in the form of Hudi's routes."""
    return success(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def shown(reply: Reply, params: Mapping[str, str]) -> Reply:
    """Return a reply of JSON, indented if the parameters have ``PRETTY``."""
    return replace(reply, body=pretty(reply.body)) if PRETTY in params else reply


def reply_to(error: Exception, request: Request) -> Reply:
    """Return the reply that reports an error; unforeseen errors are logged and not revealed."""
    if isinstance(error, StrandlineError):
        return failure_of(error, request.accept)
    logger.error("%s: unforeseen error", request.path, exc_info=error)
    return failure(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL, request.accept)


T = TypeVar("T")

PAGES: Final = "/v1/strandline/"
"""Prefix of the pages' paths."""
STATUS: Final = f"{PAGES}status"
PAGE_ROUTES: Final = frozenset({("GET", STATUS)})
"""Method and path of every page, known before Flask is loaded."""


class Dispatcher:
    """Answers the requests of a service; used on the server's loop."""

    def __init__(
        self,
        on_loop: Iterable[LoopRow],
        on_threads: Iterable[RouteRow],
        pages: Handler,
        late_answers: LateAnswers,
        *,
        gzip: bool = True,
        rest: Rest | None = None,
    ) -> None:
        """Make a dispatcher.

        Args:
            on_loop: Routes whose handlers never block.
            on_threads: Routes whose handlers may block.
            pages: Handler of all paths below ``PAGES``, on a thread.
            late_answers: Answers clients that bound their wait.
            gzip: Whether long bodies are compressed for clients that accept it.
            rest: Answers all paths below ``/v2``.
        """
        self._rest = rest
        self._on_loop = _table(on_loop)
        self._on_threads = _table(on_threads)
        self._pages = pages
        self._late_answers = late_answers
        self._gzip = gzip

    @property
    def routes(self) -> frozenset[tuple[str, str]]:
        """Method and path of every route except pages, with and without a slash at the end."""
        return frozenset({*self._on_loop, *self._on_threads})

    async def answer(self, threads: TableThreads, request: Request) -> Reply:
        """Answer one request.

        Args:
            threads: Run handlers that may wait for storage.
            request: An admitted request.
        """
        if self._rest is not None and (request.path == V2 or request.path.startswith(f"{V2}/")):
            return await self._rest(threads, request)
        # The exchange drops the body of a reply to HEAD.
        route = "GET" if request.method == "HEAD" else request.method, request.path
        if (on_loop := self._on_loop.get(route)) is not None:
            try:
                return await on_loop(request)
            except Exception as error:  # noqa: BLE001 - the boundary of a request
                return reply_to(error, request)
        handler = self._on_threads.get(route)
        if handler is None and request.path.startswith(PAGES):
            handler = self._pages
        if handler is None:
            return failure(HTTPStatus.NOT_FOUND, NOT_FOUND, request.accept)
        work = partial(threads.run, request.table, self._handled, handler)
        wait_s = wait_of(request)
        if wait_s is None:
            return await work(request)
        return await self._late_answers.answer(request, wait_s, work)

    def _handled(self, handler: Handler, request: Request) -> Reply:
        try:
            reply = handler(request)
        except Exception as error:  # noqa: BLE001 - the boundary of a request
            reply = reply_to(error, request)
        return compressed(reply) if self._gzip and request.accepted.zipped else reply


async def greeting(_: Request) -> Reply:
    """Return the greeting of Hudi's server."""
    return success(b"Hello Hudi")


def _table(rows: Iterable[tuple[str, str, T]]) -> dict[tuple[str, str], T]:
    """Return handlers by method and path, with and without a slash at the end."""
    table = {}
    for method, path, handler in rows:
        bare = path.rstrip("/")
        table[method, bare or "/"] = table[method, f"{bare}/"] = handler
    return table

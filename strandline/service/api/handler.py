"""What the handlers of routes have in common: rows of the route table, bodies, errors.

What an error becomes on the wire is decided in one place, ``reply_to``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from strandline.service.http.reply import INTERNAL, Reply, failure, failure_of, pretty, success
from strandline.service.http.request import Request
from timeline.errors import InputError, StrandlineError

logger = logging.getLogger(__name__)

Handler = Callable[[Request], Reply]
"""Answers a request on a thread; it may wait for storage."""
Row = tuple[str, str, Handler]
"""Method, path (a slash at its end more or less is the same), handler."""
LoopRow = tuple[str, str, Callable[[Request], Awaitable[Reply]]]
"""The same of a handler that runs on the server's loop."""

PRETTY: Final = "pretty"
"""The parameter that asks for an indented body, whatever its value."""


def required(params: Mapping[str, str], name: str) -> str:
    """Return a parameter that must be there and not be empty.

    Raises:
        InputError: It isn't.
    """
    value = params.get(name, "")
    if not value:
        raise InputError(f"the parameter {name!r} is missing")
    return value


def json_body(value: object) -> Reply:
    """Return a plain value as a success."""
    return success(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def shown(reply: Reply, params: Mapping[str, str]) -> Reply:
    """Return a reply of JSON as the request wants it: indented if it has ``pretty``."""
    return replace(reply, body=pretty(reply.body)) if PRETTY in params else reply


def reply_to(error: Exception, request: Request) -> Reply:
    """Return what an error becomes on the wire; an unforeseen one is logged, its text not sent."""
    if isinstance(error, StrandlineError):
        return failure_of(error, request.accept)
    logger.error("%s: unforeseen error", request.path, exc_info=error)
    return failure(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL, request.accept)

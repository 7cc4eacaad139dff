"""What all handlers share: rows of the route table, parameters, replies, errors.

``reply_to`` alone decides how an error is reported.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus

from fsview.wire.param import PRETTY
from strandline.server.http.reply import INTERNAL, Reply, failure, failure_of, pretty, success
from strandline.server.http.request import Request
from timeline.errors import InputError, StrandlineError

logger = logging.getLogger(__name__)

Handler = Callable[[Request], Reply]
"""Answers a request on a thread, where it may wait for storage."""
RouteRow = tuple[str, str, Handler]
"""Method, path, handler; the path also counts with, or without, a slash at the end."""
LoopRow = tuple[str, str, Callable[[Request], Awaitable[Reply]]]
"""A row whose handler runs on the server's loop."""


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

"""What the handlers of routes have in common: parameters in, replies and errors out.

What an error becomes on the wire is decided in one place, ``reply_to``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus

from flask import request
from werkzeug.exceptions import HTTPException

from strandline.service.http.reply import (
    INTERNAL,
    NOT_FOUND,
    Reply,
    failure,
    failure_of,
    pretty,
    success,
)
from timeline.errors import InputError, StrandlineError

logger = logging.getLogger(__name__)

Handler = Callable[[], Reply]
Add = Callable[[str, str, Handler], None]
"""Adds a route: method, path (a slash at its end more or less is the same), handler."""


def parameters() -> dict[str, str]:
    """Return the parameters of the request's query string; of several of one name the first."""
    return request.args.to_dict()


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


def shown(reply: Reply) -> Reply:
    """Return a reply of JSON as the request wants it: indented if it has ``pretty``."""
    return replace(reply, body=pretty(reply.body)) if "pretty" in request.args else reply


def reply_to(error: BaseException, accept: str, path: str) -> Reply:
    """Return what an error becomes on the wire; what nobody foresaw is logged, not told."""
    if isinstance(error, StrandlineError):
        return failure_of(error, accept)
    if isinstance(error, HTTPException):
        # A route that is there for another method is no route, to Hudi.
        if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            return failure(HTTPStatus.NOT_FOUND, NOT_FOUND, accept)
        return failure(error.code or 500, error.name, accept)
    logger.error("%s: unforeseen error", path, exc_info=error)
    return failure(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL, accept)


def why(error: BaseException) -> tuple[str, str] | None:
    """Return an error's code and text, for the log; ``None`` where its status says all."""
    return (error.code, str(error)) if isinstance(error, StrandlineError) else None

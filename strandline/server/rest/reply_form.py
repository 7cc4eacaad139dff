"""The replies of ``/v2``: JSON, Arrow, entity tags, and the one shape of errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from http import HTTPStatus
from importlib import import_module
from typing import Any, Final

from strandline.server.http.reply import INTERNAL, JSON, Reply, names_type
from strandline.server.http.request import Request
from strandline.server.rest.listing import Listing, Row, plain
from strandline.server.rest.openapi import ARROW
from strandline.server.rest.operation import MARKS_BYTES, Operation
from strandline.server.rest.parameter import Refusal
from timeline.encoding.json_text import dumps
from timeline.errors import StrandlineError, ViewBehindError

logger = logging.getLogger(__name__)

METHODS: Final = "GET, HEAD"
"""Allowed below ``/v2``."""


def refusal(error: Exception, request: Request) -> Reply:
    """Return the reply that reports an error; unforeseen ones are logged and not revealed."""
    parameter = value = allowed = hint = None
    headers: dict[str, str] = {}
    if isinstance(error, Refusal):
        status, code, message = error.status, error.code, error.message
        parameter, value, allowed = error.parameter, error.value, error.allowed
        if error.retry_after_s:
            headers["retry-after"] = str(error.retry_after_s)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["allow"] = METHODS
    elif isinstance(error, StrandlineError):
        status, code, message, hint = error.status, error.code, error.message, error.hint
        if isinstance(error, ViewBehindError):  # Hudi's clients expect 400, and another code
            status, code = HTTPStatus.GONE, "snapshot_gone"
        if error.retryable and status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers["retry-after"] = "1"
    else:
        logger.error("%s: unforeseen error", request.path, exc_info=error)
        status, code, message = 500, "internal", INTERNAL
    shape = {
        "status": int(status),
        "code": code,
        "error": message,
        "parameter": parameter,
        "value": value,
        "allowed": allowed,
        "hint": hint,
    }
    return Reply(int(status), json_of(shape), JSON, headers, why=(code, str(error)))


def json_of(value: Any) -> bytes:
    """Return the JSON text of a value, which may have file names that aren't UTF-8."""
    try:
        return dumps(value)
    except (TypeError, UnicodeEncodeError):
        return json.dumps(value).encode()


def plain_rows(operation: Operation, rows: list[Row]) -> list[dict[str, Any]]:
    """Return the rows of a page as JSON has them, with the columns of the operation."""
    names = [each.name for each in operation.columns]
    return [{name: plain(row[name]) for name in names if name in row} for row in rows]


def summary_reply(make: Callable[[int], dict[str, Any]], many: int) -> Reply:
    """Return a summary with as many marks as ``MARKS_BYTES`` allow, and ``many`` at most."""
    while True:
        body = json_of(make(many))
        if len(body) <= MARKS_BYTES or many == 1:
            return Reply(HTTPStatus.OK, body, JSON)
        many = max(1, min(many - 1, many * MARKS_BYTES // len(body)))


def is_arrow(request: Request) -> bool:
    """Whether the client prefers Arrow to JSON."""
    return names_type(request.accept, ARROW)


def arrow_reply(
    operation: Operation,
    arguments: Mapping[str, Any],
    listing: Listing,
    rows: list[Row],
    more: Mapping[str, str],
) -> Reply:
    """Return a page as an Arrow stream; ``more`` and the listing's head are its metadata."""
    served_table: Any = import_module("strandline.table_api.served_table")
    head = {k: v if isinstance(v, str) else json.dumps(v) for k, v in listing.head.items()}
    columns = [c for c in operation.columns if not c.optional or arguments["details"]]
    return Reply(HTTPStatus.OK, served_table.arrow_stream(columns, rows, {**head, **more}), ARROW)


# Entity tags (RFC 9110, section 8.8.3), weak, as compression changes the bytes.


def tag_of(content: bytes) -> str:
    """Return the weak tag of a content."""
    return f'W/"{blake2b(content, digest_size=12).hexdigest()}"'


def unchanged(tag: str) -> Reply:
    """Return the reply to a client that has what a tag names."""
    return Reply(HTTPStatus.NOT_MODIFIED, b"", JSON, {"etag": tag})


def tagged(reply: Reply, request: Request, tag: str | None = None) -> Reply:
    """Return a reply with its tag, by default that of its body; 304 if the client has it."""
    tag = tag or tag_of(reply.body)
    if request.has_tag(tag):
        return unchanged(tag)
    headers = {**reply.headers, "etag": tag, "vary": "accept, accept-encoding"}
    return replace(reply, headers=headers)

"""The OpenAPI 3.1 document of ``/v2``, made from ``OPERATIONS``."""

from __future__ import annotations

from typing import Any, Final

from fsview.wire.param import V2
from strandline.server.rest.operation import OPENAPI, OPERATIONS, Column, Operation
from strandline.version import __version__

ARROW: Final = "application/vnd.apache.arrow.stream"
_JSON: Final = "application/json"
_TEXT: Final[dict[str, Any]] = {"type": "string"}
_NULLABLE: Final[dict[str, Any]] = {"type": ["string", "null"]}
_ERROR: Final = {
    "type": "object",
    "required": ["status", "code", "error", "parameter", "value", "allowed", "hint"],
    "properties": {
        "status": {"type": "integer"},
        "code": _TEXT,
        "error": _TEXT,
        "parameter": _NULLABLE,
        "value": _NULLABLE,
        "allowed": _NULLABLE,
        "hint": _NULLABLE,
    },
}
_COUNT: Final[dict[str, Any]] = {"type": "integer"}
_SECONDS: Final[dict[str, Any]] = {"type": "number"}


def _listed(**columns: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list of objects; null: the server doesn't answer."""
    return {"type": ["array", "null"], "items": _object(columns)}


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    names = [*properties] if required is None else required
    return {"type": "object", "required": names, "properties": properties}


_CALLS: Final = {
    "type": "array",
    "items": _object({"kind": _TEXT, "cause": _TEXT, "seconds": _SECONDS}),
}
_SERVER: Final = {
    "type": "object",
    "required": ["server", "error", "version", "ready", "reasons", "metrics"],
    "properties": {
        "server": _NULLABLE,
        "error": _NULLABLE,
        "version": _NULLABLE,
        "ready": {"type": ["boolean", "null"]},
        "reasons": {"type": "array", "items": _TEXT},
        "pid": {"type": ["integer", "null"]},
        "uptime_s": {"type": ["number", "null"]},
        "restarts": {"type": ["integer", "null"]},
        "roots": {"type": ["array", "null"], "items": _TEXT},
        "awaited_roots": {"type": ["array", "null"], "items": _TEXT},
        "settings": {"type": ["object", "null"]},
        "hanging": _listed(
            table=_TEXT,
            seconds=_SECONDS,
            calls=_CALLS,
            clients={"type": "array", "items": _TEXT},
        ),
        "newest_refusals": _listed(
            at={"type": "string", "format": "date-time"},
            status=_COUNT,
            code=_TEXT,
            route=_TEXT,
            table=_TEXT,
            client=_TEXT,
            reason=_TEXT,
            request=_TEXT,
            count=_COUNT,
        ),
        "metrics": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["type", "help", "samples"],
                "properties": {
                    "type": _TEXT,
                    "help": _TEXT,
                    "samples": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["labels", "value"],
                            "properties": {
                                "name": _TEXT,
                                "labels": {"type": "object", "additionalProperties": _TEXT},
                                "value": {"type": "number"},
                            },
                        },
                    },
                },
            },
        },
    },
}
_SAID: Final = {
    "304": "Nothing has changed since the answer with the `ETag` in `If-None-Match`.",
    "400": "A parameter isn't known, is missing, or isn't allowed.",
    "401": "The bearer token is missing or wrong.",
    "403": "The table is outside the service's roots.",
    "404": "There is no such table, instant, file group or route.",
    "410": "The cursor or the snapshot isn't held any more.",
    "422": "The table's version or type isn't supported, or there are too many rows.",
    "500": "Metadata is damaged, or storage failed.",
    "503": "Storage can't be reached, files are being removed, or too many requests watch;"
    " `Retry-After` may say when.",
}


def document() -> dict[str, Any]:
    """Return the document as plain values."""
    paths = {each.path: {"get": _operation(each)} for each in OPERATIONS}
    paths[OPENAPI] = {
        "get": {
            "operationId": "openapi",
            "summary": "This document.",
            "responses": {
                "200": {"description": "OpenAPI 3.1.", "content": {_JSON: {"schema": {}}}},
                **_errors(("304", "400", "401")),
            },
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Strandline",
            "version": __version__,
            "description": f"What a timeline service knows of its tables, below `{V2}`.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR, "Server": _SERVER},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {_JSON: {"schema": answer_schema(operation)}}
    if operation.columns:
        content[ARROW] = {"schema": {"type": "string", "format": "binary"}}
    codes = (*_SAID,) if operation.of_table else ("304", "400", "401", "410", "500", "503")
    return {
        "operationId": operation.name,
        "summary": operation.doc,
        "parameters": [
            {
                "name": each.name,
                "in": "query",
                "description": each.doc,
                "required": each.required,
                "allowEmptyValue": each.kind == "flag",
                "schema": each.schema,
            }
            for each in operation.parameters
        ],
        "responses": {"200": {"description": "The answer.", "content": content}, **_errors(codes)},
    }


def _errors(codes: tuple[str, ...]) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    found: dict[str, Any] = {code: {"description": _SAID[code]} for code in codes}
    for code in codes:
        if code not in ("304", "401"):
            found[code]["content"] = {_JSON: {"schema": schema}}
    # Of a request that breaks a rule of HTTP, or has too many parameters.
    found["400"]["content"]["text/plain"] = {"schema": _TEXT}
    return found


def answer_schema(operation: Operation) -> dict[str, Any]:
    """Return the JSON schema of an operation's answer."""
    head: dict[str, Any] = {}
    if operation.of_table:
        head = {"table": _TEXT, "instant": _NULLABLE, "state": _NULLABLE}
    head |= {name: dict(schema) for name, schema in operation.members.items()}
    if not operation.columns:
        return _object(head)
    rows = _object(_properties(operation.columns), _required(operation.columns))
    pages = {"next": _NULLABLE, "more": {"type": "boolean"}}
    found = _object({**head, "rows": {"type": "array", "items": rows}, **pages})
    if not operation.marks:
        return found
    marks = {
        each.name: {"type": "array", "items": schema}
        for each, schema in zip(operation.marks, _properties(operation.marks).values(), strict=True)
    }
    numbers = {"type": "object", "additionalProperties": {"type": "integer"}}
    summary = {**head, "marks": _object(marks), "total": numbers}
    if operation.marks[0].name == "path":
        summary |= {"prefix": _TEXT, "depth": {"type": "integer"}}
    return {"oneOf": [found, _object(summary)]}


def _properties(columns: tuple[Column, ...]) -> dict[str, Any]:
    return {each.name: each.schema for each in columns}


def _required(columns: tuple[Column, ...]) -> list[str]:
    return [each.name for each in columns if not each.optional]

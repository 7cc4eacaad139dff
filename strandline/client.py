"""``RestClient``: asks a service's ``/v2`` from Python.

Operations, parameters and columns are those of ``strandline.server.rest.operation``, which
docs/reference.md lists; parameters are checked before anything is sent::

    client = RestClient("http://lake-service:26754", token)
    for row in client.rows("partitions", table="/lake/trips", filter="bytes>1000000"):
        print(row["partition"], row["bytes"])
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from executor_proxy.exchange import Timeouts
from executor_proxy.http import DEFAULT_TIMEOUTS, HttpSession
from strandline.server.rest.openapi import ARROW
from strandline.server.rest.operation import BY_NAME, Operation
from strandline.server.rest.parameter import Refusal
from timeline.encoding.json_text import bounded_loads
from timeline.errors import BadAnswerError, InputError

_NEXT: Final = b"strandline.next"
_WATCH_SHARE: Final = 0.75
"""Fraction of the time-outs that the service may wait for a change."""


class RestClient:
    """A client of one service, or of a fleet, any of whose servers may be asked; thread-safe.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        token: The service's bearer token.
        ca_file: PEM file of trusted certificate authorities; ``None`` for the system's.
        timeouts: Timeouts of each exchange.

    Raises:
        ConfigError: ``url``, ``token`` or ``ca_file`` is invalid.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        ca_file: str | os.PathLike[str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        authorities = None if ca_file is None else os.fspath(ca_file)
        self._session = HttpSession(url, token, timeouts, authorities)

    def __repr__(self) -> str:
        return f"RestClient({self._session.url!r})"

    def get(self, name: str, **parameters: object) -> dict[str, Any]:
        """Return one answer, with at most ``limit`` rows.

        Args:
            name: Of the operation, such as ``"partitions"``.
            parameters: Its parameters; ``None`` counts as missing.

        Raises:
            InputError: The service has no such operation or parameter, or the value isn't allowed.
            RemoteFailureError: The service refuses the request; the message says why.
            ServiceError: No valid answer came.
            StrandlineError: The error that the service answered, such as ``TableNotFoundError``.
        """
        operation, texts = _checked(name, parameters)
        body = self._session.get(operation.path, texts)
        try:
            value = bounded_loads(body)
        except ValueError as error:
            raise BadAnswerError(f"{operation.path} answered {body[:200]!r}: {error}") from error
        if not isinstance(value, dict):
            raise BadAnswerError(f"{operation.path} answered {body[:200]!r}; allowed: an object")
        return value

    def rows(self, name: str, **parameters: object) -> Iterator[dict[str, Any]]:
        """Yield all rows of an operation, page by page, all of the first page's state.

        Args:
            name: As of ``get``, whose errors this raises.
            parameters: As of ``get``; ``limit`` is the number of rows of a page.
        """
        cursor: str | None = None
        while True:
            value = self.get(name, **{**parameters, "cursor": cursor})
            yield from value["rows"]
            cursor = value["next"]
            if cursor is None:
                return

    def arrow(self, name: str, **parameters: object) -> pa.Table:
        """Return all rows of an operation as one Arrow table; arguments and errors as ``rows``."""
        pages, cursor = [], None
        while True:
            operation, texts = _checked(name, {**parameters, "cursor": cursor})
            body = self._session.request(
                "GET", operation.path, texts, accept=f"{ARROW}, application/json"
            )
            try:
                found = pa.ipc.open_stream(body).read_all()
            except pa.ArrowInvalid as error:
                raise BadAnswerError(
                    f"{operation.path} answered no Arrow stream: {error}"
                ) from error
            pages.append(found)
            following = (found.schema.metadata or {}).get(_NEXT)
            if following is None:
                return pa.concat_tables([page.replace_schema_metadata() for page in pages])
            cursor = following.decode()

    def watch(self, table: str, after: str | None = None) -> dict[str, Any]:
        """Wait until a table changes, for as long as the time-outs allow.

        Args:
            table: Its base path.
            after: ``state`` of an earlier answer; ``None``: answered at once.

        Returns:
            ``state``, ``instant`` and ``changed``; if that is false, ask again with ``after``.
        """
        timeout_s = _WATCH_SHARE * min(self._session.timeouts.each())
        return self.get("watch", table=table, after=after, timeout=f"{timeout_s:.3f}")


def _checked(name: str, parameters: Mapping[str, object]) -> tuple[Operation, dict[str, str]]:
    """Return an operation and the texts of its parameters.

    Raises:
        InputError: There is no such operation or parameter, or a value isn't allowed.
    """
    operation = BY_NAME.get(name)
    if operation is None:
        raise InputError(f"{name!r} is no operation; allowed: {', '.join(BY_NAME)}")
    texts = {key: _text(value) for key, value in parameters.items() if value is not None}
    try:
        operation.arguments(texts)
    except Refusal as refusal:
        raise InputError(refusal.message) from refusal
    return operation, texts


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""``RequestFaults``: fails chosen HTTP requests at the S3 server, before or after their effect."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from io import BytesIO
from typing import Any, NamedTuple

_ERROR = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>InternalError</Code><Message>injected</Message></Error>"""

App = Callable[[Any, Any], Iterable[bytes]]
"""A WSGI application."""


class RequestEffect(Enum):
    """How a request goes wrong.

    ``CUT_AFTER`` closes the connection in place of an answer; s3fs then sends the request again,
    and a conditional one finds what it has created. ``GONE_BEFORE`` and ``GONE_AFTER`` refuse all
    later requests as well: the bucket is left as by a client that dies there.
    """

    ERROR_BEFORE = "500 before"
    ERROR_AFTER = "500 after"
    CUT_AFTER = "cut after"
    HALF_ANSWER = "half an answer"
    GONE_BEFORE = "gone before"
    GONE_AFTER = "gone after"


class Request(NamedTuple):
    """A request: its method, path with query, and the bytes of its answer; 0 for ``HEAD``."""

    method: str
    path: str
    length: int


class RequestFaults:
    """A WSGI application that fails as planned; called by one thread at a time.

    Args:
        app: The application that does the work.

    Attributes:
        log: The requests since ``begin`` that didn't fail.
        fired: How many of the planned faults have happened since.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.begin({})

    def begin(self, plan: Mapping[int, RequestEffect]) -> None:
        """Count requests anew; fail those whose numbers, from 1, are in the plan."""
        self.log: list[Request] = []
        self._count = 0
        self.fired = 0
        self._plan = dict(plan)
        self._is_gone = False
        self._delayed: re.Pattern[str] | None = None
        self._late: dict[str, Any] = {}

    def delay(self, ending: str) -> None:
        """Let the next ``PUT`` of a path that ends so take effect in ``carry_out``.

        Its connection is closed without an answer, also when it is sent again.

        Args:
            ending: A regular expression.
        """
        self._delayed = re.compile(f"{ending}$")

    def carry_out(self) -> int:
        """Carry out the delayed requests; return their number."""
        late = list(self._late.values())
        self._late.clear()
        for environ in late:
            list(self._app(environ, lambda *_: None))
        return len(late)

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        """Answer a request."""
        if self._is_late(environ):
            return []
        self._count += 1
        effect = self._plan.get(self._count)
        self.fired += effect is not None
        self._is_gone = self._is_gone or effect is RequestEffect.GONE_BEFORE
        if self._is_gone or effect is RequestEffect.ERROR_BEFORE:
            # What the client is still sending would reset the connection before it reads an answer.
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return _refusal(environ, start_response)
        if effect is None:
            body = b"".join(self._app(environ, start_response))
            self._add(environ, body)
            return [body]
        if effect is RequestEffect.HALF_ANSWER:
            body = b"".join(self._app(environ, start_response))
            return _half(body, environ["werkzeug.socket"])
        list(self._app(environ, lambda *_: None))
        if effect is RequestEffect.CUT_AFTER:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        self._is_gone = effect is RequestEffect.GONE_AFTER
        return _refusal(environ, start_response)

    def _is_late(self, environ: Any) -> bool:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] != "PUT":
            return False
        if self._delayed is not None and self._delayed.search(path):
            self._delayed = None
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            self._late[path] = {**environ, "wsgi.input": BytesIO(body)}
        if path in self._late:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return True
        return False

    def _add(self, environ: Any, body: bytes) -> None:
        query = environ.get("QUERY_STRING", "")
        path = environ["PATH_INFO"] + ("?" + query if query else "")
        self.log.append(Request(environ["REQUEST_METHOD"], path, len(body)))


def _refusal(environ: Any, start_response: Any) -> list[bytes]:
    start_response("500 Internal Server Error", [("Content-Length", str(len(_ERROR)))])
    # What follows the head that answers a HEAD would be taken for the next answer.
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else _ERROR]


def _half(body: bytes, connection: socket.socket) -> Iterator[bytes]:
    yield body[: len(body) // 2]
    connection.shutdown(socket.SHUT_RDWR)

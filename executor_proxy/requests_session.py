"""``RequestsSessions``: a transport for clients that need features of ``requests``.

These are HTTP proxies, adapters, a company's certificate authorities, custom authentication. The
caller names an importable function that returns a ``requests.Session``; each thread of each process
calls it once. ``requests`` bounds the wait for each packet of the headers, not for all of them: a
service that sends its headers slowly can exceed ``exchange_s``.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from executor_proxy.exchange import (
    MAX_BODY_BYTES,
    Endpoint,
    Incoming,
    Outgoing,
    Timeouts,
    fingerprint_of,
    too_long,
)
from timeline.errors import (
    BadAnswerError,
    ConfigError,
    ServiceTimeoutError,
    ServiceUnreachableError,
)

_CHUNK_BYTES: Final = 1 << 18


class _Sessions(threading.local):
    """The sessions of one thread by factory; a forked process makes its own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._by_factory: dict[str, Any] = {}

    def take(self, factory: str) -> Any:
        """Return this thread's session of a factory, made on first use."""
        # After a fork the sessions' sockets are the parent's.
        if self._pid != os.getpid():
            self._by_factory.clear()
            self._pid = os.getpid()
        session = self._by_factory.get(factory)
        if session is None:
            session = self._by_factory[factory] = _new_session(factory)
        return session


_sessions: Final = _Sessions()


def _new_session(name: str) -> Any:
    """Make a session.

    Raises:
        ConfigError: The factory fails, or returns something else.
    """
    try:
        session = _factory(name)()
    except ConfigError:
        raise
    except Exception as exc:
        raise ConfigError(f"session is {name!r}, which fails: {exc!r}") from exc
    if not hasattr(session, "request"):
        raise ConfigError(
            f"session is {name!r}, which returns {type(session).__name__}; allowed: a function that"
            " returns a requests.Session"
        )
    return session


def _factory(name: str) -> Callable[[], Any]:
    """Import ``module:function``.

    Raises:
        ConfigError: There is none.
    """
    module, _, attribute = str(name).partition(":")
    try:
        made = getattr(import_module(module), attribute) if module and attribute else None
    except (Exception, SystemExit) as exc:  # whatever the module raises when it is imported
        raise ConfigError(f"session is {name!r}, which can't be imported: {exc}") from exc
    if not callable(made):
        raise ConfigError(f"session is {name!r}; allowed: MODULE:FUNCTION")
    factory: Callable[[], Any] = made
    return factory


@dataclass(frozen=True, slots=True)
class RequestsSessions:
    """Transport over sessions of ``requests``; thread-safe, pickles.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        factory: ``"module:function"``, which returns a ``requests.Session``.
        ca_file: PEM file of trusted certificate authorities; ``None`` for the session's.
    """

    url: str
    factory: str
    ca_file: str | None = None

    def __post_init__(self) -> None:
        Endpoint.of(self.url, self.ca_file)
        if fingerprint_of(self.ca_file) is not None:
            raise ConfigError(
                f"session is {self.factory!r}, and ca_file a fingerprint; allowed: a CA file, as"
                " sessions of requests check no fingerprint"
            )
        _factory(self.factory)

    def exchange(self, request: Outgoing, timeouts: Timeouts) -> Incoming:
        """Send a request and read its answer, its body within ``exchange_s``."""
        # Imported here: clients of the default transport don't need these packages.
        requests, urllib3 = import_module("requests"), import_module("urllib3")
        what = request.shown(self.url)
        deadline = time.monotonic() + timeouts.exchange_s
        more = {} if self.ca_file is None else {"verify": self.ca_file}
        session = _sessions.take(self.factory)
        try:
            with session.request(
                request.method,
                self.url.rstrip("/") + request.target,
                data=request.body or None,
                headers=dict(request.headers),
                timeout=timeouts.each()[:2],
                stream=True,
                allow_redirects=False,
                **more,
            ) as response:
                body = _body(response.raw, request.path, deadline)
                headers = response.headers
                return Incoming(
                    response.status_code,
                    headers.get("Content-Encoding", "").strip().lower(),
                    headers.get("Retry-After"),
                    body,
                )
        except requests.exceptions.ConnectTimeout as error:
            raise ServiceUnreachableError(
                f"{what}: no connection within {timeouts.connect_s:g} s"
            ) from error
        except (
            requests.exceptions.Timeout,
            urllib3.exceptions.ReadTimeoutError,
            TimeoutError,
        ) as error:
            raise ServiceTimeoutError(
                f"{what} was not answered within {timeouts.read_s:g} s a packet and"
                f" {timeouts.exchange_s:g} s in all"
            ) from error
        except (
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            http.client.IncompleteRead,
        ) as error:
            if _is_not_http(error):
                raise BadAnswerError(f"the answer to {what} isn't HTTP: {error}") from error
            raise ServiceUnreachableError(
                f"{what}: no connection, or it was lost ({error})"
            ) from error


def _body(raw: Any, path: str, deadline: float) -> bytes:
    """Read a body as it was sent.

    Raises:
        TimeoutError: It isn't complete by the deadline.
    """
    chunks, size = [], 0
    # read1 returns the available bytes; read would wait for a whole chunk, beyond the deadline.
    while chunk := raw.read1(_CHUNK_BYTES, decode_content=False):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise too_long(path)
        if time.monotonic() > deadline:
            raise TimeoutError
    if raw.length_remaining:  # urllib3 1 doesn't say that the connection ended early
        raise http.client.IncompleteRead(b"", raw.length_remaining)
    return b"".join(chunks)


def _is_not_http(error: BaseException) -> bool:
    """Whether the answer could not be parsed; urllib3 has the parser's error as an argument."""
    if isinstance(error, http.client.IncompleteRead):
        return False
    for each in (error, *error.args):
        causes = (each, *each.args) if isinstance(each, BaseException) else ()
        for cause in causes:
            if isinstance(cause, http.client.IncompleteRead | ConnectionError):
                return False
            if isinstance(cause, http.client.HTTPException):
                return True
    return False

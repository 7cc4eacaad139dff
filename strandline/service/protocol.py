"""The HTTP protocol: uvicorn's on httptools, which answers hot requests where they are parsed.

A request that can be answered from ready bytes costs no task, no thread and no framework: the
bytes are written from the parser's callback. Whatever else comes goes uvicorn's way to the
application, with two differences: the target may be long, up to a limit (the URL parser that
uvicorn asks has 16-bit offsets, so only the path is shown to it), and it must be ASCII.

This leans on uvicorn's inner names (``cycle``, ``flow``, ``url``, ``headers``,
``timeout_keep_alive_task``); ``tests/strandline/service/test_protocol.py`` fails if a release
changes them.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_TARGET_BYTES: Final = 4 * 1024 * 1024
"""Longest request target; ``loadpartitions`` lists its partitions there."""

Headers = list[tuple[bytes, bytes]]


class HotAnswers(Protocol):
    """Whoever has ready answers."""

    def respond(self, target: bytes, headers: Headers) -> bytes | None:
        """Return the whole response to a GET, or ``None`` when it must go the long way.

        Runs on the server's loop: no I/O, no waiting, well under a millisecond.
        """


class ServiceProtocol(HttpToolsProtocol):
    """One connection. ``hot`` is set by ``protocol_for``; the rest of the state is uvicorn's."""

    hot: HotAnswers
    _answered = False

    def on_message_begin(self) -> None:
        """Start a request; what only the long way needs is made when it is gone."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._answered = False

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request target; an error here is answered with 400."""
        if len(self.url) + len(url) > MAX_TARGET_BYTES:
            raise ValueError(f"request target of more than {MAX_TARGET_BYTES} bytes")
        if not url.isascii():
            raise ValueError("request target that isn't ASCII")
        super().on_url(url)

    def on_headers_complete(self) -> None:
        """Answer now if the answer is ready; else go the long way."""
        if self._may_answer_now():
            response = self.hot.respond(self.url, self.headers)
            if response is not None:
                self._answer(response)
                return
        self._hand_on()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body; a request answered already has none that matters."""
        if not self._answered:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        if not self._answered:
            super().on_message_complete()

    def _may_answer_now(self) -> bool:
        """Whether a response written now is in order, and the connection stays open after it."""
        parser = self.parser
        return (
            parser.get_method() == b"GET"
            and self._is_idle()
            and not self.flow.write_paused
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and parser.get_http_version() == "1.1"
        )

    def _is_idle(self) -> bool:
        """Whether no earlier request of this connection waits for its answer."""
        # uvicorn says that there always is a cycle; before the first request there is none.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _answer(self, response: bytes) -> None:
        self._answered = True
        self.transport.write(response)
        self.server_state.total_requests += 1
        # Of several requests in one packet the first has set the timer.
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _hand_on(self) -> None:
        """Let uvicorn start its task for this request."""
        headers, target, expects = self.headers, self.url, self.expect_100_continue
        super().on_message_begin()
        self.headers.extend(headers)
        self.expect_100_continue = expects
        self.url, _, query = target.partition(b"?")
        super().on_headers_complete()
        # The task reads the scope when it runs, which is after this callback.
        self.scope["query_string"] = query


def protocol_for(hot: HotAnswers) -> type[ServiceProtocol]:
    """Return the protocol class whose connections ask ``hot``."""
    namespace: dict[str, Any] = {"hot": hot, "__doc__": ServiceProtocol.__doc__}
    return type("BoundServiceProtocol", (ServiceProtocol,), namespace)

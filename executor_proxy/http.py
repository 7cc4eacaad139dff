"""``HttpSession`` sends requests to one address of the service and maps failures to errors.

Beside the failures of the transport (``executor_proxy.connection``)::

    undecodable body                          BadAnswerError
    400 of Hudi's routes                      ViewBehindError
    503 with Retry-After                      ServiceBusyError          (retryable)
    any status with a body that names a code  the class of that code, below 500
    anything else                             RemoteFailureError
"""

from __future__ import annotations

import http.client
import json
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote_plus

from executor_proxy.connection import KeptConnections
from executor_proxy.exchange import (
    MAX_BODY_BYTES,
    Outgoing,
    Timeouts,
    Transport,
    note_status,
    request_span,
    too_long,
)
from executor_proxy.requests_session import RequestsSessions
from executor_proxy.worker_state import this_worker
from fsview.wire.param import FALLBACKS_HEADER, REQUEST_ID_HEADER, WAIT_HEADER
from fsview.wire.routes import JSON
from timeline import tracing
from timeline.errors import (
    BadAnswerError,
    ConfigError,
    RemoteFailureError,
    ServiceBusyError,
    ServiceError,
    ServiceUnreachableError,
    StrandlineError,
    ViewBehindError,
)

DEFAULT_TIMEOUTS: Final = Timeouts()

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_MESSAGE_CHARS: Final = 500
"""Maximum length of an unexpected body quoted in an error."""
_WAIT_S: Final = 2
"""Most time that the service may take before it answers 503 with ``Retry-After``."""
_WAIT_SHARE: Final = 0.75
"""The same, as a fraction of the timeouts: a service that is loading must not seem dead."""
_LONGEST_RETRY_AFTER_S: Final = 60.0
"""Upper bound of ``Retry-After``."""

_READ_NO_REPORT: Final = (
    http.client.UNAUTHORIZED,
    http.client.REQUEST_HEADER_FIELDS_TOO_LARGE,
)
"""Statuses with which the service refuses a request before it counts the reports in it."""


@dataclass(frozen=True, slots=True)
class HttpSession:
    """An address of the service, credentials and timeouts; thread-safe, pickles.

    Attributes:
        url: ``http://host:port`` or ``https://host:port``, without a path.
        token: Bearer token, or ``None``; never shown.
        timeouts: Timeouts of each exchange.
        ca_file: PEM file of trusted certificate authorities, or a fingerprint, as of ``Endpoint``;
            ``None`` for the system's.
        session: ``"module:factory"``, an importable function that returns a ``requests.Session``,
            called once in each thread; ``None`` for ``http.client``.
        transport: Carries the requests.

    Raises:
        ConfigError: ``url``, ``token``, ``ca_file`` or ``session`` is invalid.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    ca_file: str | None = None
    session: str | None = None
    transport: Transport = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        is_word = isinstance(self.token, str) and _TOKEN.fullmatch(self.token)
        if self.token is not None and not is_word:
            raise ConfigError(
                "the timeline service's token is not shown; allowed: printable ASCII without"
                " spaces and line ends"
            )
        transport: Transport
        if self.session is None:
            transport = KeptConnections(self.url, self.ca_file)
        else:
            transport = RequestsSessions(self.url, self.session, self.ca_file)
        object.__setattr__(self, "transport", transport)

    def get(self, path: str, params: Mapping[str, str], *, within_s: float | None = None) -> bytes:
        """Return the body of the answer to a GET; arguments and errors as in ``request``."""
        return self.request("GET", path, params, within_s=within_s)

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes = b"",
        *,
        accept: str = JSON,
        is_safe: bool = False,
        within_s: float | None = None,
    ) -> bytes:
        """Send a GET or POST and return the body of the answer.

        The parameters are in the query of a POST, too, as in Hudi.

        Args:
            method: ``GET`` or ``POST``.
            path: Path of the route.
            params: The query.
            body: JSON, of a POST only.
            accept: Media types of the answer. JSON must be among them: then errors have a code.
            is_safe: Whether a POST may be repeated if a kept connection was closed; a GET may.
            within_s: Upper bound of all timeouts of this exchange, seconds.

        Raises:
            ServiceError: See the module's table.
            ViewBehindError: The service can't answer at the caller's timeline.
        """
        timeouts = self.timeouts if within_s is None else self.timeouts.within(within_s)
        worker = this_worker()
        headers = self._headers | {
            "Accept": accept,
            WAIT_HEADER: _wait_within(timeouts),
            REQUEST_ID_HEADER: worker.request_id(),
        }
        if method == "POST":
            headers["Content-Length"] = str(len(body))
        if body:
            headers["Content-Type"] = "application/json"
        target = f"{path}?{_query(params)}" if params else path
        is_safe = is_safe or method == "GET"
        unreported = worker.fallbacks
        reports = unreported.take(self.url)
        if reports:
            counts: Counter[str] = Counter()
            for _, cause, n in reports:
                counts[cause] += n
            headers[FALLBACKS_HEADER] = ",".join(f"{cause}={n}" for cause, n in counts.items())
        try:
            return self._call(Outgoing(method, path, target, headers, body, is_safe), timeouts)
        except ServiceError as error:
            if _is_unread(error):
                for report in reports:
                    unreported.add(*report)
            raise

    def _call(self, request: Outgoing, timeouts: Timeouts) -> bytes:
        """Send the request, decode the body, raise the error for the status."""
        what = request.shown(self.url)
        with request_span(request.method, request.path, self.url) as span:
            # Of that span, so that the service's is its child.
            if trace := tracing.headers():
                request = replace(request, headers={**request.headers, **trace})
            answer = self.transport.exchange(request, timeouts)
            note_status(span, answer.status)
        body = _decoded(answer.body, answer.encoding, what)
        if answer.status != http.client.OK:
            request_id = request.headers[REQUEST_ID_HEADER]
            raise error_of(answer.status, body, what, answer.retry_after, request_id)
        return body

    @property
    def _headers(self) -> dict[str, str]:
        headers = {"Accept-Encoding": "gzip"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


def _is_unread(error: ServiceError) -> bool:
    """Whether the service can't have counted the reports of a request that failed.

    A lost report is better than one that counts twice, so in doubt it has.
    """
    if isinstance(error, RemoteFailureError):
        return error.answered in _READ_NO_REPORT
    return isinstance(error, ServiceUnreachableError) and not error.may_have_arrived


def _wait_within(timeouts: Timeouts) -> str:
    """Return how many seconds the service may take, for ``WAIT_HEADER``."""
    seconds = min(timeouts.read_s, timeouts.exchange_s) * _WAIT_SHARE
    return str(_WAIT_S) if seconds >= _WAIT_S else f"{seconds:.3f}"


def _query(params: Mapping[str, str]) -> str:
    """Return parameters as a query; their names need no quoting."""
    return "&".join([f"{name}={quote_plus(value)}" for name, value in params.items()])


def _decoded(body: bytes, encoding: str, what: str) -> bytes:
    """Decode a body; one that grows beyond ``MAX_BODY_BYTES`` is refused."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise BadAnswerError(
            f"the answer to {what} has content encoding {encoding!r}; allowed: gzip, identity"
        )
    inflater = zlib.decompressobj(wbits=31)
    try:
        decoded = inflater.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise BadAnswerError(f"the answer to {what} isn't complete gzip: {error}") from error
    if len(decoded) > MAX_BODY_BYTES:
        raise too_long(what)
    if not inflater.eof or inflater.unused_data:
        raise BadAnswerError(
            f"the answer to {what} isn't complete gzip: it is cut, or longer than it says"
        )
    return decoded


def error_of(
    status: int, body: bytes, what: str, retry_after: str | None, request_id: str
) -> StrandlineError:
    """Return the error for an answer with a status other than 200; see the module's table.

    Args:
        status: HTTP status.
        body: Decoded body: JSON with ``title`` and optionally ``code`` and ``hint``, or plain text.
        what: Method, path, address and id, for the message.
        retry_after: Value of ``Retry-After``, or ``None``.
        request_id: The id alone, for messages that don't say what was asked.
    """
    code, text, hint = _parse_error(body)
    if status < http.client.INTERNAL_SERVER_ERROR:
        known = _classes_by_code().get(code)
        if known is not None:
            return known(f"{text} [request {request_id}]", hint=hint)
        if status == http.client.BAD_REQUEST and not code:
            # Hudi's own server has no codes and answers 400 to a client that it is behind.
            text = text or "the service is on another timeline than the caller"
            return ViewBehindError(f"{text} [request {request_id}]")
    if status == http.client.SERVICE_UNAVAILABLE and retry_after is not None:
        busy = ServiceBusyError(f"{what} isn't answered yet: {text}")
        busy.retry_after_s = _seconds(retry_after)
        return busy
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        hint = "check that the token is this service's"
    named = f", {code}" if code else ""
    failure = RemoteFailureError(
        f"{what} was answered with status {status}{named}: {text}", hint=hint
    )
    failure.answered = status
    return failure


def _seconds(retry_after: str) -> float:
    """Return the seconds of a ``Retry-After``; a date, which Strandline never sends, is 1."""
    return min(float(retry_after), _LONGEST_RETRY_AFTER_S) if retry_after.isdecimal() else 1.0


def _parse_error(body: bytes) -> tuple[str, str, str | None]:
    """Return the error's code or ``""``, its message, and its hint."""
    text = body.decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return "", text[:_MESSAGE_CHARS], None
    message = str(document.get("title") or document.get("error") or text)
    hint = document.get("hint")
    code = str(document.get("code") or "")
    return code, message[:_MESSAGE_CHARS], None if hint is None else str(hint)


def _classes_by_code() -> dict[str, type[StrandlineError]]:
    """Return the classes of the error tree by code."""
    classes: dict[str, type[StrandlineError]] = {}
    waiting: list[type[StrandlineError]] = [StrandlineError]
    while waiting:
        cls = waiting.pop()
        classes[cls.code] = cls
        waiting.extend(cls.__subclasses__())
    return classes

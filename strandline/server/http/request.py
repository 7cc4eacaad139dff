"""``Request``: an admitted request, as the application sees it; and the rules that admit it.

Every parameter is in the query string, for which this is the one parser. Only batched look-ups have
a body; those of other requests are dropped when they are parsed.

**The head of every request** is checked on the loop as soon as the headers are complete, also if a
body follows, so a request that isn't admitted costs no thread. A request that breaks a rule gets
its response at once, and the connection ends.

* Two ``Authorization``, ``Host`` or ``Transfer-Encoding`` headers get 400: proxies and servers
  disagree on which one counts. HTTP/1.1 without ``Host`` gets 400 (RFC 9112, section 3.2); probes
  that speak HTTP/1.0 send none.
* A client that isn't admitted gets 401 (``strandline.server.http.authorization``).
* A POST with ``Origin`` gets 403. Browsers send this header for web pages, and any page may POST to
  any address that the user's machine reaches; Hudi's clients and Strandline's never send it.

**The table** that a request is about follows from the text of its path and query alone. It is
determined before any access to storage, which may hang. So base paths that differ only in spelling
are one table here, while a symbolic link and its target are two.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

import httptools

from fsview.wire.lookup_form import LOOKUP_PATH
from fsview.wire.marker_form import MARKER_DIRECTORY, MARKERS
from fsview.wire.param import BASE_PATH, REQUEST_ID_HEADER, TABLE, V2
from fsview.wire.routes import PREFIX
from strandline.fleet.moving.neighbours import RECORD
from strandline.server.http.authorization import Admission, AdmittedClient, Right, right_for
from strandline.server.http.limits import PARAMETERS
from strandline.server.http.reply import SUCCESS, Accepted, Reply, accepted
from strandline.server.table_threads import NO_TABLE
from timeline.storage.table_id import canonical_base_path
from timeline.table.config import META_FOLDER
from timeline.table.partition_metadata import PATH_CHARACTERS

REMEMBERED_BYTES: Final = 512
"""Longest text whose decoded form is cached: the cache is bounded by entries, not by bytes."""


def parse_query(query: bytes) -> dict[str, str]:
    """Return the parameters of a query string; the first value of each name counts.

    ``+`` is a space; a malformed escape is kept as it is; what isn't UTF-8 becomes U+FFFD.

    Cost: in proportion to the query's length; the server's loop bounds that before it calls this.

    Source: Jetty's ``UrlEncoded``, which Hudi's server reads parameters with.
    """
    params: dict[str, str] = {}
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        key = unquoted(name)
        if pair and key not in params:
            params[key] = unquoted(value)
    return params


def unquoted(text: bytes) -> str:
    """Return a name or a value of a query string without its escapes."""
    if b"%" not in text and b"+" not in text:
        return text.decode("utf-8", "replace")
    return _unescaped_again(text) if len(text) <= REMEMBERED_BYTES else _unescaped(text)


def _unescaped(text: bytes) -> str:
    return unquote_to_bytes(text.replace(b"+", b" ")).decode("utf-8", "replace")


_unescaped_again = lru_cache(maxsize=4096)(_unescaped)
"""``_unescaped`` with an LRU cache: base paths and directories are the same in most requests."""


INSTANT_STATES: Final = "/v1/hoodie/instantstate"
STATES_DIRECTORY: Final = "instantstatedirpath"

_NAMED_BY: Final[Mapping[str, str]] = {
    f"{PREFIX}/": BASE_PATH,
    LOOKUP_PATH: BASE_PATH,
    f"{MARKERS}/": MARKER_DIRECTORY,
    f"{INSTANT_STATES}/": STATES_DIRECTORY,
    RECORD: BASE_PATH,
    f"{V2}/": TABLE,
}
"""Prefix of a path → the parameter with the table's base path, or with a directory below it."""

_ESCAPE_BYTES: Final = 3
"""Bytes of one escaped byte, such as ``%2F``."""
_CHARACTER_BYTES: Final = 4 * _ESCAPE_BYTES
"""Most bytes of one escaped character."""
_BELOW_CHARACTERS: Final = 64
"""Most characters of a directory's path after its table's."""
_VALUE_BYTES: Final = _CHARACTER_BYTES * (PATH_CHARACTERS + _BELOW_CHARACTERS)
"""Longer values are all refused later, so they aren't decoded on the loop."""


def asked_table(path: str, query: bytes) -> str:
    """Return the base path in a request, in canonical spelling; never waits, never fails.

    Args:
        path: The request's path, without escapes.
        query: Its query string.

    Returns:
        ``NO_TABLE`` if the request names no table, or is refused before storage is accessed.

    Cost: bounded by ``PATH_CHARACTERS``, apart from one copy of the query, as it runs on the loop.
    """
    wanted = next((name for start, name in _NAMED_BY.items() if path.startswith(start)), None)
    if wanted is None:
        return NO_TABLE
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if len(name) <= _ESCAPE_BYTES * len(wanted) and unquoted(name) == wanted:
            return _base_path(wanted, value)
    return NO_TABLE


def _base_path(parameter: str, value: bytes) -> str:
    """Return the base path in the value of a parameter."""
    if len(value) > _VALUE_BYTES:
        return NO_TABLE
    base_path = unquoted(value)
    if parameter not in (BASE_PATH, TABLE):
        # The meta folder itself is a valid directory, too.
        below = f"{base_path.rstrip('/')}/"
        base_path = below.rpartition(f"/{META_FOLDER}/")[0]
    if len(base_path) > PATH_CHARACTERS:
        return NO_TABLE
    cached = _canonical_again if len(base_path) <= REMEMBERED_BYTES else canonical_base_path
    return cached(base_path)


_canonical_again = lru_cache(maxsize=256)(canonical_base_path)
"""``canonical_base_path`` with an LRU cache: a service is asked for few tables."""


Headers = list[tuple[bytes, bytes]]
"""Header fields as received, names in lower case."""
Fields = Mapping[bytes, bytes]
"""Header fields by name in lower case; several of one name are joined by commas."""


def accepted_of(fields: Fields) -> Accepted:
    """Return the forms of a reply that a request with these fields accepts."""
    return accepted(fields.get(b"accept-encoding", b""), fields.get(b"accept", b""))


REQUEST_ID: Final = REQUEST_ID_HEADER.lower().encode()
_SUCCESS_ID: Final = b"%b%b: " % (SUCCESS, REQUEST_ID)
_LAST_DIGITS: Final = tuple(b"%02x" % number for number in range(256))
_SANE_ID: Final = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")


class RequestIds:
    """Gives each request an id: that of its client, or one that no other request has."""

    def __init__(self) -> None:
        self._new = _new_ids(secrets.token_hex(4).encode("ascii"))

    def of(self, fields: Fields) -> bytes:
        """Return the id of a request with these fields; a second call may return another."""
        given = fields.get(REQUEST_ID)
        if given is not None and _SANE_ID.fullmatch(given):
            return given
        return next(self._new)

    def head_of(self, fields: Fields) -> bytes:
        """Return the first lines of a success: with the id ``of`` the request, for ready bytes."""
        return _SUCCESS_ID + self.of(fields) + b"\r\n"


def _new_ids(prefix: bytes) -> Iterator[bytes]:
    """Yield ids with a prefix that no other service has."""
    for number in count(1):
        # Formatted once for many requests, as it takes as long as the other steps of an id.
        begun = b"%b-%x" % (prefix, number)
        for digits in _LAST_DIGITS:
            yield begun + digits


@dataclass(frozen=True, slots=True)
class Request:
    """One admitted request.

    Attributes:
        method: Such as ``GET``.
        path: Unescaped.
        query: The query string as received, without ``?``.
        fields: Header fields.
        version: Of HTTP, such as ``1.1``.
        peer: The client's address; empty: it has none.
        body: The body, of a request that ``reads_body``.
        cancelled: Set once the client has left or the service stops.
    """

    method: str
    path: str
    query: bytes
    fields: Fields
    version: str = "1.1"
    peer: str = ""
    body: bytes = b""
    cancelled: threading.Event = field(default_factory=threading.Event)

    def parameters(self) -> dict[str, str]:
        """Return the parameters in the query string; see ``parse_query`` for the cost."""
        return parse_query(self.query)

    @property
    def reads_body(self) -> bool:
        """Whether its handler reads its body."""
        return self.method == "POST" and self.path.rstrip("/") == LOOKUP_PATH

    @property
    def request_id(self) -> str:
        """What names it in logs and errors; the connection has checked the field, or set it."""
        return self.fields.get(REQUEST_ID, b"").decode("ascii")

    def has_tag(self, tag: str) -> bool:
        """Whether the client has what an entity tag, weak or strong, names (RFC 9110, 13.1.2)."""
        given = self.fields.get(b"if-none-match", b"").decode("latin-1")
        tags = {each.strip().removeprefix("W/") for each in given.split(",")}
        return tag.removeprefix("W/") in tags or "*" in tags

    def has_left(self) -> bool:
        """Return whether the reply isn't wanted any more; for any thread."""
        return self.cancelled.is_set()

    @property
    def accept(self) -> str:
        """The ``Accept`` header; empty: there is none."""
        return self.fields.get(b"accept", b"").decode("latin-1")

    @property
    def accepted(self) -> Accepted:
        """The forms that the reply may have."""
        return accepted_of(self.fields)

    @property
    def table(self) -> str:
        """The table that the request is about, unchecked; see ``asked_table``."""
        return asked_table(self.path, self.query)


Application = Callable[[Request], Awaitable[Reply]]
"""Answers requests on the server's loop; an error that it raises becomes a 500."""


class RefusedError(Exception):
    """A request is refused before the application sees it.

    Attributes:
        status: Of the response.
        message: Its body.
        headers: Of the response.
        target: The request target; empty: not known yet.
        accept: The request's ``Accept`` header; empty: not known yet.
        request_id: Of the request; empty: not known yet.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}
        self.target = b""
        self.accept = ""
        self.request_id = b""


_ONCE: Final = (b"host", b"authorization", b"transfer-encoding")
_WITHOUT_HOST: Final = frozenset({"0.9", "1.0"})
_UNAUTHORIZED: Final = "this service wants its bearer token in Authorization, which has {}"


def checked_fields(headers: Headers, method: bytes, version: str) -> Fields:
    """Return a request's headers by name; several of one name are joined by commas.

    Args:
        headers: As received, names in lower case.
        method: Of the request.
        version: Of HTTP, such as ``"1.1"``.

    Raises:
        RefusedError: They break a rule.
    """
    fields = dict(headers)
    if len(fields) < len(headers):
        names = [name for name, _ in headers]
        for name in _ONCE:
            if names.count(name) > 1:
                raise RefusedError(400, f"more than one {name.decode('ascii').title()} header")
        fields.clear()
        for name, value in headers:
            fields[name] = b"%b,%b" % (fields[name], value) if name in fields else value
    if b"host" not in fields and version not in _WITHOUT_HOST:
        raise RefusedError(400, "no Host header")
    if b"origin" in fields and method == b"POST":
        raise RefusedError(403, "no POST is taken from a web page, which its Origin header shows")
    if b"transfer-encoding" in fields and fields[b"transfer-encoding"].lower() != b"chunked":
        raise RefusedError(501, "a Transfer-Encoding that isn't supported; supported: chunked")
    return fields


def check_admitted(
    admission: Admission, peer: AdmittedClient, target: bytes, fields: Fields
) -> None:
    """Refuse a request that its client isn't admitted to.

    Args:
        admission: Knows the token.
        peer: The client.
        target: Path and query.
        fields: As ``checked_fields`` returned them.

    Raises:
        RefusedError: It isn't admitted, or the target has no path.
    """
    if peer.has_all or admission.bears_token(fields.get(b"authorization")):
        return
    wanted = right_for(path_of(target))
    if wanted & peer.free != wanted:
        found = "another" if fields.get(b"authorization") else "none"
        raise RefusedError(401, _UNAUTHORIZED.format(found), {"www-authenticate": "Bearer"})


def may_report(admission: Admission, peer: AdmittedClient, fields: Fields) -> bool:
    """Whether a client's reports count, whatever path it asks for; arguments as above.

    They are of clients that may read: anybody could forge reports in requests to open paths.
    """
    is_reader = Right.READS in peer.free
    return is_reader or admission.bears_token(fields.get(b"authorization"))


def request_of(
    target: bytes, method: str, version: str, fields: Fields, peer: str, body_bytes: int
) -> Request:
    """Return an admitted request, for the application.

    Args:
        target: Path and query.
        method: Such as ``"GET"``.
        version: Of HTTP, such as ``"1.1"``.
        fields: As ``checked_fields`` returned them.
        peer: The client's address.
        body_bytes: The longest body that is accepted.

    Raises:
        RefusedError: A longer body is announced, there are too many parameters, or no path.
    """
    if int(fields.get(b"content-length", b"0")) > body_bytes:
        raise RefusedError(413, f"body of more than {body_bytes} bytes")
    query = target.partition(b"?")[2]
    if query.count(b"&") >= PARAMETERS:
        raise RefusedError(400, f"more than {PARAMETERS} parameters")
    return Request(method, path_of(target), query, fields, version, peer)


def path_of(target: bytes) -> str:
    """Return the path of a request target, unescaped; the target may be an absolute URL.

    Raises:
        RefusedError: It has none.
    """
    raw, _, _ = target.partition(b"?")  # the parser's offsets have 16 bits
    try:
        path = httptools.parse_url(raw).path.decode("ascii")
    except (httptools.HttpParserInvalidURLError, AttributeError):
        raise RefusedError(400, "request target that is no path") from None
    return unquote(path) if "%" in path else path

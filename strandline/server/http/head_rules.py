"""The rules for the head of every request, checked before anything else sees the request.

They are applied on the loop as soon as the headers are complete, also if a body follows, so a
request that isn't admitted costs no thread. A request that breaks a rule gets its response at once,
and the connection ends.

* Two ``Authorization``, ``Host`` or ``Transfer-Encoding`` headers get 400: proxies and servers
  disagree on which one counts. HTTP/1.1 without ``Host`` gets 400 (RFC 9112, section 3.2); probes
  that speak HTTP/1.0 send none.
* A client that isn't admitted gets 401 (``strandline.server.http.authorization``).
* A POST with ``Origin`` gets 403. Browsers send this header for web pages, and any page may POST to
  any address that the user's machine reaches; Hudi's clients and Strandline's never send it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import httptools

from strandline.server.http.authorization import Admission, AdmittedClient, right_for
from strandline.server.http.limits import PARAMETERS
from strandline.server.http.refusals import RefusedError
from strandline.server.http.request import Fields, Headers, Request

_ONCE: Final = (b"host", b"authorization", b"transfer-encoding")
_WITHOUT_HOST: Final = frozenset({"0.9", "1.0"})
_UNAUTHORIZED: Final = "this service wants its bearer token in Authorization"


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
        raise RefusedError(401, _UNAUTHORIZED, {"www-authenticate": "Bearer"})


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

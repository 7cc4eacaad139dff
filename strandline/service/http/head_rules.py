"""The rules that every request's head is held to, before anything else looks at the request.

They are applied on the loop as soon as the headers are complete, whichever way the answer would
take and whatever body may follow: what isn't admitted costs no thread and no framework. A request
that breaks one is answered from ready bytes, and its connection ends.

* Two ``Authorization``, ``Host`` or ``Transfer-Encoding`` headers are 400: proxies and servers
  disagree on which one counts, so neither does. HTTP/1.1 without ``Host`` is 400
  (RFC 9112, section 3.2); probes that speak HTTP/1.0 send none.
* Who isn't admitted is 401 (``strandline.service.http.authorization``).
* A POST with ``Origin`` is 403: a browser sends that for a web page, and any page may send POSTs to
  any address that its reader's machine reaches. Hudi's clients and ours send none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import unquote

import httptools

from strandline.service.http.authorization import Admission, Right, right_for
from strandline.service.http.limits import PARAMETERS
from strandline.service.http.reply import JSON, TEXT, UNAUTHORIZED, unauthorized
from strandline.service.http.request import Fields, Headers
from strandline.service.http.request_reader import RefusedError

_ONCE: Final = (b"host", b"authorization", b"transfer-encoding")
_WITHOUT_HOST: Final = frozenset({"0.9", "1.0"})
_JSON: Final = JSON.encode("ascii")


def checked_fields(headers: Headers, method: bytes, version: str) -> Fields:
    """Return a request's headers by name, once they are found to follow the rules.

    Args:
        headers: As they came, names in lower case.
        method: Of the request.
        version: Of its HTTP, such as ``"1.1"``.

    Raises:
        RefusedError: They don't.
    """
    fields = dict(headers)
    if len(fields) < len(headers):
        names = [name for name, _ in headers]
        for name in _ONCE:
            if names.count(name) > 1:
                raise RefusedError(400, f"more than one {name.decode('ascii').title()} header")
        for name in fields:
            fields[name] = b",".join(value for other, value in headers if other == name)
    if b"host" not in fields and version not in _WITHOUT_HOST:
        raise RefusedError(400, "no Host header")
    if b"origin" in fields and method == b"POST":
        raise RefusedError(403, "no POST is taken from a web page, which its Origin header shows")
    if b"transfer-encoding" in fields and fields[b"transfer-encoding"].lower() != b"chunked":
        raise RefusedError(501, "a Transfer-Encoding that isn't supported; supported: chunked")
    return fields


def check_admitted(
    admission: Admission, free: Right, target: bytes, fields: Fields, method: bytes
) -> None:
    """Refuse a request that its peer may not make.

    Args:
        admission: Who may ask what.
        free: What the peer may do without the token.
        target: Path and query.
        fields: As ``checked_fields`` returned them.
        method: Of the request.

    Raises:
        RefusedError: It may not, or the target has no path.
    """
    if admission.admits(right_for(path_of(target)), free, fields.get(b"authorization")):
        return
    accept = JSON if _JSON in fields.get(b"accept", b"") else TEXT
    raise RefusedError(401, UNAUTHORIZED, _unauthorized(accept, with_body=method != b"HEAD"))


@lru_cache
def _unauthorized(accept: str, *, with_body: bool) -> bytes:
    return unauthorized(accept).last_words(with_body=with_body)


def check_bounds(fields: Fields, query: bytes, body_bytes: int) -> None:
    """Refuse what costs the application more than any request needs.

    Args:
        fields: As ``checked_fields`` returned them.
        query: The query string.
        body_bytes: The longest body that is taken.

    Raises:
        RefusedError: A longer body is announced, or there are too many parameters.
    """
    if int(fields.get(b"content-length", b"0")) > body_bytes:
        raise RefusedError(413, f"body of more than {body_bytes} bytes")
    if query.count(b"&") >= PARAMETERS:
        raise RefusedError(400, f"more than {PARAMETERS} parameters")


def path_of(target: bytes) -> str:
    """Return the path of a request target, unescaped; absolute targets have theirs found.

    Raises:
        RefusedError: It has none.
    """
    raw, _, _ = target.partition(b"?")  # the parser's offsets have 16 bits
    try:
        path = httptools.parse_url(raw).path.decode("ascii")
    except (httptools.HttpParserInvalidURLError, AttributeError):
        raise RefusedError(400, "request target that is no path") from None
    return unquote(path) if "%" in path else path

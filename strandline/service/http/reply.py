"""What goes back over the wire: bodies, compressed and indented ones, errors in Hudi's shapes.

A success is JSON under the content type ``text/plain``; Java's client looks at neither. An error
is one sentence in ``text/plain``, or, when the request accepts ``application/json``, the JSON
object that Hudi's web framework (Javalin 4) answers, with ``code`` and ``hint`` beside its
members, by which our own client finds the class again.

Nothing here knows a web framework; ``Reply.head`` writes the head of every response.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

from isal import isal_zlib

from timeline.errors import StrandlineError

TEXT: Final = "text/plain"
JSON: Final = "application/json"

GZIP_BYTES: Final = 1500
"""Bodies of this length and longer are compressed for those who accept it (Java's threshold)."""
GZIP_LEVEL: Final = 1
"""ISA-L's: as small as zlib's level 6 for these bodies, in a fourteenth of the time."""

NOT_FOUND: Final = "Not found"
INTERNAL: Final = "Internal server error"

_TYPES: Final[Mapping[int, str]] = {
    400: "badrequestresponse",
    401: "unauthorizedresponse",
    403: "forbiddenresponse",
    404: "notfoundresponse",
    409: "conflictresponse",
    500: "internalservererrorresponse",
    503: "serviceunavailableresponse",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer.

    Attributes:
        headers: Beyond content type and length, lower case.
        rest: What follows the body, made as it is sent; its length isn't known then. What it
            raises breaks the connection off.
        why: Code and text of the error that it reports, for the log; the text may say more than
            the body. Empty: the status says all.
    """

    status: int
    body: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    rest: Iterator[bytes] | None = None
    why: tuple[str, str] = ("", "")

    def head(self, *, keep_alive: bool = True, chunked: bool = False) -> bytes:
        """Return status line and headers, with the blank line.

        Args:
            keep_alive: Whether the connection goes on after the response.
            chunked: Whether the body goes out in chunks.
        """
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"content-type: {self.content_type}",
        ]
        if self.rest is None:
            lines.append(f"content-length: {len(self.body)}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if chunked:
            lines.append("transfer-encoding: chunked")
        if not keep_alive:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    def last_words(self, *, with_body: bool = True) -> bytes:
        """Return the bytes of a whole answer after which the connection ends."""
        head = self.head(keep_alive=False)
        return head + self.body if with_body else head


_GZIP_WBITS: Final = 16 + isal_zlib.MAX_WBITS
_ENCODING: Final = "content-encoding"
_GZIPPED: Final = {_ENCODING: "gzip"}


def success(body: bytes, *, zipped: bool = False) -> Reply:
    """Return the reply of a body; ``zipped`` compresses it if it is long enough to gain."""
    return compressed(Reply(200, body)) if zipped else Reply(200, body)


def compressed(reply: Reply) -> Reply:
    """Return a reply for a client that accepts gzip: compressed if it is long enough to gain."""
    if reply.rest is not None or len(reply.body) < GZIP_BYTES or _ENCODING in reply.headers:
        return reply
    return replace(reply, body=compress(reply.body), headers={**reply.headers, **_GZIPPED})


def streamed(parts: Iterable[bytes], whole_bytes: int, *, zipped: bool = False) -> Reply:
    """Return the reply of a body that comes in parts: whole, unless it is very long.

    Args:
        parts: The body; what is raised before it has become too long is raised here.
        whole_bytes: Up to this length it is put together.
        zipped: As in ``success``.
    """
    coming = iter(parts)
    begun: list[bytes] = []
    size = 0
    for part in coming:
        begun.append(part)
        size += len(part)
        if size > whole_bytes:
            break
    else:
        return success(b"".join(begun), zipped=zipped)
    rest: Iterator[bytes] = chain(begun, coming)
    if not zipped:
        return Reply(200, b"", rest=rest)
    return Reply(200, b"", headers=_GZIPPED, rest=_compressed(rest))


def _compressed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield one gzip member."""
    member = isal_zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_WBITS)
    for part in parts:
        if made := member.compress(part):
            yield made
    yield member.flush()


def json_reply(value: object, status: int = 200) -> Reply:
    """Return a value as JSON under JSON's own content type; for what Hudi doesn't have."""
    return Reply(status, (json.dumps(value, indent=2) + "\n").encode(), JSON)


def compress(body: bytes) -> bytes:
    """Return one gzip member, the same for the same body."""
    return isal_zlib.compress(body, GZIP_LEVEL, _GZIP_WBITS)


@lru_cache(maxsize=64)
def accepts_gzip(accept_encoding: bytes) -> bool:
    """Return whether an ``Accept-Encoding`` header admits gzip."""
    for part in accept_encoding.decode("latin-1").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def failure(status: int, message: str, accept: str = "") -> Reply:
    """Return an error in the form that the request's ``Accept`` header asks for."""
    return _failure(status, message, accept, {})


def failure_of(error: StrandlineError, accept: str = "") -> Reply:
    """Return an error of the tree: its sentence, never a traceback."""
    more = {"code": error.code, "hint": error.hint}
    reply = _failure(error.status, error.message, accept, more)
    return replace(reply, why=(error.code, str(error)))


def _failure(status: int, message: str, accept: str, more: Mapping[str, str | None]) -> Reply:
    if JSON not in accept:
        return Reply(status, message.encode("utf-8", "replace"))
    kind = _TYPES.get(status, "")
    shape: dict[str, Any] = {
        "title": message,
        "status": status,
        "type": f"https://javalin.io/documentation#{kind}" if kind else "about:blank",
        "details": {},
        **more,
    }
    said = json.dumps(shape, indent=4, ensure_ascii=False)
    return Reply(status, said.encode("utf-8", "replace"), JSON)


def pretty(body: bytes) -> bytes:
    """Return a JSON body indented as Jackson's default printer does it."""
    return _pretty(json.loads(body), 0).encode()


def _pretty(value: Any, depth: int) -> str:
    if isinstance(value, list):
        return f"[ {', '.join(_pretty(item, depth) for item in value)} ]" if value else "[ ]"
    if isinstance(value, dict):
        if not value:
            return "{ }"
        inner = "  " * (depth + 1)
        members = (
            f"{inner}{_text(name)} : {_pretty(member, depth + 1)}" for name, member in value.items()
        )
        return "{\n" + ",\n".join(members) + "\n" + "  " * depth + "}"
    return _text(value)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


UNAUTHORIZED: Final = "this service wants its bearer token in Authorization"


def unauthorized(accept: str) -> Reply:
    """Return the answer to a request without the service's token."""
    reply = failure(HTTPStatus.UNAUTHORIZED, UNAUTHORIZED, accept)
    return replace(reply, headers={"www-authenticate": "Bearer"})

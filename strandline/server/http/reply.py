"""``Reply``: one HTTP answer; plain, compressed and indented bodies, errors in Hudi's forms.

A success is JSON with the content type ``text/plain``; Java's client checks neither. An error is
one sentence in ``text/plain``. If the request accepts ``application/json``, it is the JSON object
of Hudi's web framework (Javalin 4) instead, with the members ``code`` and ``hint`` added, from
which Strandline's client restores the error's class.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import Any, Final, NamedTuple

from isal import isal_zlib

from fsview.wire.column_form import COLUMNS
from fsview.wire.param import REQUEST_ID_HEADER
from timeline.errors import ServiceBusyError, StrandlineError

TEXT: Final = "text/plain"
JSON: Final = "application/json"

GZIP_BYTES: Final = 1500
"""Shortest body that is compressed for clients that accept it; Java's threshold."""
COLUMNS_GZIP_BYTES: Final = 256 << 10
"""Shortest body in columns that is compressed. Clients decode columns in less time than gunzip
takes, which pays only where the network carries less than 1.4 Gbit/s."""
GZIP_LEVEL: Final = 1
"""Of ISA-L: these bodies get as small as with zlib's level 6, in a fourteenth of the time."""

SUCCESS: Final = b"HTTP/1.1 200 OK\r\n"
"""The first line of a success. Ready bytes are what follows it, so that another header fits in."""
NOT_FOUND: Final = "Not found"
INTERNAL: Final = "Internal server error"

_REQUEST_ID: Final = REQUEST_ID_HEADER.lower()
_TYPED: Final = frozenset({400, 401, 403, 404, 409, 500, 503})
"""Statuses that Javalin documents as types of errors, such as ``badrequestresponse``."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer.

    Attributes:
        headers: Names in lower case, without content type and length.
        rest: The body in parts, made while it is sent, in place of ``body``. An error in it closes
            the connection.
        why: Code and text of the reported error, for the log and the status; the text may reveal
            more than the body does. Empty: only the status is logged.
        held: An object kept alive until the reply is sent; counts a body received from a peer.
    """

    status: int
    body: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    rest: Iterator[bytes] | None = None
    why: tuple[str, str] = ("", "")
    held: object = field(default=None, compare=False, repr=False)

    @property
    def is_refusal(self) -> bool:
        """Whether it is an error that the log and the counts of refusals should show."""
        return self.status >= HTTPStatus.BAD_REQUEST and self.why[0] != ServiceBusyError.code

    def head(
        self, *, keep_alive: bool = True, chunked: bool = False, request_id: str = ""
    ) -> bytes:
        """Return status line and headers, with the blank line.

        Args:
            request_id: The request's id; empty: the head is one of many answers.
            keep_alive: Whether the connection stays open after the response.
            chunked: Whether the body is sent in chunks.
        """
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"content-type: {self.content_type}",
        ]
        if self.rest is None:
            lines.append(f"content-length: {len(self.body)}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if request_id:
            lines.append(f"{_REQUEST_ID}: {request_id}")
        if chunked:
            lines.append("transfer-encoding: chunked")
        if not keep_alive:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    def last_words(self, request_id: str, *, with_body: bool = True) -> bytes:
        """Return the bytes of a whole response after which the connection is closed."""
        head = self.head(keep_alive=False, request_id=request_id)
        return head + self.body if with_body else head


_GZIP_WBITS: Final = 16 + isal_zlib.MAX_WBITS
_ENCODING: Final = "content-encoding"
_GZIPPED: Final = {_ENCODING: "gzip"}


def success(body: bytes, *, zipped: bool = False, content_type: str = TEXT) -> Reply:
    """Return a success; if ``zipped``, a long body is compressed."""
    reply = Reply(200, body, content_type)
    return compressed(reply) if zipped else reply


def compressed(reply: Reply) -> Reply:
    """Return a reply for a client that accepts gzip; only long bodies are compressed."""
    shortest = COLUMNS_GZIP_BYTES if reply.content_type == COLUMNS else GZIP_BYTES
    if reply.rest is not None or len(reply.body) < shortest or _ENCODING in reply.headers:
        return reply
    body = isal_zlib.compress(reply.body, GZIP_LEVEL, _GZIP_WBITS)
    return replace(reply, body=body, headers={**reply.headers, **_GZIPPED})


def streamed(parts: Iterable[bytes], whole_bytes: int, *, zipped: bool = False) -> Reply:
    """Return a success whose body comes in parts; the reply is whole unless the body is very long.

    Args:
        parts: The body. Errors in the first ``whole_bytes`` are raised here.
        whole_bytes: Longest body of a whole reply.
        zipped: As in ``success``.
    """
    more = iter(parts)
    first: list[bytes] = []
    size = 0
    for part in more:
        first.append(part)
        size += len(part)
        if size > whole_bytes:
            break
    else:
        return success(b"".join(first), zipped=zipped)
    rest: Iterator[bytes] = chain(first, more)
    if not zipped:
        return Reply(200, b"", rest=rest)
    return Reply(200, b"", headers=_GZIPPED, rest=_compressed(rest))


def _compressed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield one gzip member of all parts."""
    member = isal_zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_WBITS)
    for part in parts:
        if made := member.compress(part):
            yield made
    yield member.flush()


def json_reply(value: object, status: int = 200) -> Reply:
    """Return a value as JSON with JSON's content type, for routes that Hudi doesn't have."""
    return Reply(status, (json.dumps(value, indent=2) + "\n").encode(), JSON)


class Accepted(NamedTuple):
    """The forms of a success that a client accepts beside plain JSON.

    Attributes:
        zipped: Compressed by gzip.
        columns: In columns (``fsview.wire.column_form``), where the route has that form.
    """

    zipped: bool = False
    columns: bool = False


@lru_cache(maxsize=64)
def accepted(accept_encoding: bytes, accept: bytes) -> Accepted:
    """Return what the headers ``Accept-Encoding`` and ``Accept`` admit."""
    return Accepted(_admits_gzip(accept_encoding), names_type(accept.decode("latin-1"), COLUMNS))


def names_type(accept: str, wanted: str) -> bool:
    """Whether ``Accept`` names a media type itself, not by ``*``, with a weight above 0."""
    for part in accept.lower().split(","):
        media_type, *parameters = (word.strip() for word in part.split(";"))
        if media_type == wanted:
            return not any(map(_NO_WEIGHT.fullmatch, parameters))
    return False


_NO_WEIGHT: Final = re.compile(r"q\s*=\s*0(\.0*)?")


def _admits_gzip(accept_encoding: bytes) -> bool:
    for part in accept_encoding.decode("latin-1").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def failure_of(error: StrandlineError, accept: str) -> Reply:
    """Return the reply that reports an error: its sentence, never a traceback."""
    reply = failure(error.status, error.message, accept, code=error.code, hint=error.hint)
    return replace(reply, why=(error.code, str(error)))


def failure(status: int, message: str, accept: str, **more: str | None) -> Reply:
    """Return an error in the form that the request's ``Accept`` header asks for.

    Args:
        status: Of the reply.
        message: One sentence.
        accept: The header; empty: there is none.
        more: Members added to the JSON object.
    """
    if JSON not in accept:
        return Reply(status, message.encode("utf-8", "replace"))
    kind = HTTPStatus(status).name.replace("_", "").lower() + "response"
    shape: dict[str, Any] = {
        "title": message,
        "status": status,
        "type": f"https://javalin.io/documentation#{kind}" if status in _TYPED else "about:blank",
        "details": {},
        **more,
    }
    body = json.dumps(shape, indent=4, ensure_ascii=False)
    return Reply(status, body.encode("utf-8", "replace"), JSON)


def pretty(body: bytes) -> bytes:
    """Return a JSON body with the indentation of Jackson's default printer."""
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

"""The files of the page ``/ui/``: script, style and markup, from memory.

They are files of this package (``ui/`` beside this module), the same for everybody and without any
data, so they need no token; the page asks for one and reads ``/v2`` with it. The content security
policy lets the page load nothing from elsewhere, and no script or style that isn't a file.

A browser asks again for each file with its ``ETag`` and gets 304 without a body. Only scripts in
``vendor/``, which have a version in their name, are cached without asking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from strandline.server.api.dispatcher import LoopRow
from strandline.server.http.authorization import UI
from strandline.server.http.reply import Reply, compressed
from strandline.server.http.request import Request

INDEX: Final = "index.html"
VENDOR: Final = "vendor/"
"""Prefix of files that others publish; names of scripts have a version."""
_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "img")),
        *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
    )
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
}


@dataclass(frozen=True, slots=True)
class WebFile:
    """One file of the page.

    Attributes:
        plain: The answer with the file.
        zipped: The same for clients that accept gzip; a short file isn't compressed.
    """

    plain: Reply
    zipped: Reply

    @classmethod
    def of(cls, name: str, body: bytes) -> WebFile:
        """Return a file; ``name`` is its path below ``UI``."""
        has_version = name.startswith(VENDOR) and name.endswith(".js")
        caching = "public, max-age=31536000, immutable" if has_version else "no-cache"
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {**_HEADERS, "cache-control": caching, "etag": etag}
        plain = Reply(200, body, _TYPES[name.rpartition(".")[2]], headers)
        return cls(plain, compressed(plain))

    async def answer(self, request: Request) -> Reply:
        """Return the file, or that the client has it already."""
        if request.has_tag(self.plain.headers["etag"]):
            return replace(self.plain, status=304, body=b"")
        return self.zipped if request.accepted.zipped else self.plain


def web_page_rows() -> Iterator[LoopRow]:
    """Yield a row for each file of the page; the index has the path ``UI``.

    Cost: reads, hashes and compresses 1.3 MB in 10 ms, which the rows hold with 0.5 MB more.
    """
    for name, body in _read(files(__package__) / "ui", ""):
        path = UI if name == INDEX else UI + name
        yield "GET", path, WebFile.of(name, body).answer


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the files below a folder that a browser may ask for."""
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _read(entry, f"{name}/")
        elif name.rpartition(".")[2] in _TYPES:
            yield name, entry.read_bytes()

"""Query strings: the one parser of parameters, for requests on the loop and on threads."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

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

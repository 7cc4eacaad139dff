r"""Java's properties text, as ``hoodie.properties`` and ``.hoodie_partition_metadata`` are written.

One ``key=value`` per line; ``:`` or white space separate as well; ``#`` and ``!`` begin a comment;
a line that ends in an odd number of backslashes continues on the next; ``\t \n \r \f \uXXXX``
are escapes and a backslash before anything else is dropped. The encoding is Latin-1; other
characters are written as UTF-16 ``\uXXXX``.

Source: ``java.util.Properties.load`` and ``store``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_KEY: Final = re.compile(r"(?:\\.|[^\\=:\s])*", re.DOTALL)
_SHOWN: Final = 40
"""Characters on each side of a bad escape in a message."""
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_UNESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "": ""}
_ESCAPED: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"} | {
    char: f"\\{char}" for char in "=:#!"
}


def parse_properties(data: bytes | str) -> dict[str, str]:
    r"""Parse properties text; of a repeated key the last value holds.

    Args:
        data: Bytes in Latin-1, as Java writes them, or decoded text.

    Raises:
        ValueError: A ``\u`` isn't followed by four hexadecimal digits.
    """
    properties = {}
    for line in _logical_lines(data if isinstance(data, str) else data.decode("latin-1")):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        properties[_unescape(key[0])] = _unescape(line[separator.end() :])
    return properties


def format_properties(properties: Mapping[str, str], comment: str) -> bytes:
    """Return properties text, sorted by key, below one comment line."""
    lines = [f"#{comment}"]
    lines += [f"{_escape(k, key=True)}={_escape(v)}" for k, v in sorted(properties.items())]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _logical_lines(text: str) -> Iterator[str]:
    """Yield logical lines (continued lines joined), without comments and blank lines."""
    gathered = ""
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(" \t\f")
        if not gathered and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            gathered += line[:-1]
            continue
        if gathered or line:
            yield gathered + line
        gathered = ""
    if gathered:
        yield gathered


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def char(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            around = text[max(0, match.start() - _SHOWN) : match.start() + _SHOWN]
            raise ValueError(f"malformed \\uXXXX in {around!r}")
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _UNESCAPED.get(escape, escape)

    # Escapes are UTF-16 units: a character beyond the basic plane is a pair of them.
    units = _ESCAPE.sub(char, text).encode("utf-16-be", "surrogatepass")
    return units.decode("utf-16-be", "replace")


def _escape(text: str, *, key: bool = False) -> str:
    escaped = []
    leading = True
    for char in text:
        leading = leading and char == " "
        if char == " ":
            escaped.append("\\ " if key or leading else " ")
        elif char in _ESCAPED:
            escaped.append(_ESCAPED[char])
        elif " " < char <= "~":
            escaped.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass").hex().upper()
            escaped += [f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)]
    return "".join(escaped)

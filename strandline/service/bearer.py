"""The bearer token: made at random, compared in constant time, never shown.

The embedded service makes one and hands it to executors inside the serialised view; ``strandline
serve`` reads one from a file. A service without a token serves everybody who reaches its port: Java
clients can't send one, so they are admitted by ``--no-token``, knowingly.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path
from typing import Final

from timeline.errors import ConfigError

_SCHEME: Final = b"bearer "


def new_token() -> str:
    """Return a fresh token: 256 random bits in URL-safe text."""
    return secrets.token_urlsafe(32)


def read_token_file(path: str) -> str:
    """Return the token that a file holds, without the white space around it.

    Raises:
        ConfigError: The file can't be read, is empty, or holds more than one word.
    """
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"token file {path}: {_reason(exc)}") from exc
    if not token or not token.isprintable() or " " in token:
        raise ConfigError(f"token file {path}: it must hold one word of printable ASCII")
    return token


def _reason(exc: OSError | UnicodeDecodeError) -> str:
    return (exc.strerror or "can't be read") if isinstance(exc, OSError) else "it isn't ASCII"


class BearerCheck:
    """Says whether a request's ``Authorization`` header carries the service's token."""

    __slots__ = ("_token",)

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode("ascii")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'no token' if self._token is None else '***'})"

    @property
    def is_open(self) -> bool:
        """Whether everybody is admitted."""
        return self._token is None

    def admits(self, authorization: bytes | None) -> bool:
        """Whether a header of this value (``None``: no such header) may pass."""
        if self._token is None:
            return True
        if authorization is None or authorization[:7].lower() != _SCHEME:
            return False
        return hmac.compare_digest(authorization[7:].strip(), self._token)

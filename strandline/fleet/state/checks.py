"""Validation of the arguments of a state store; the same for all stores."""

from __future__ import annotations

import re
from typing import Final

from strandline.fleet.state.base import (
    ABSENT,
    MAX_KEY_LENGTH,
    MAX_TTL_S,
    MAX_VALUE_BYTES,
    MIN_TTL_S,
    Delete,
    Op,
    Put,
)
from timeline.errors import InputError

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def check_key(key: str) -> str:
    """Return the key if it is allowed.

    Raises:
        InputError: It isn't 1 to 200 characters: names of letters, digits, ``.``, ``_`` and ``-``,
            joined by ``/``, none of them ``.`` or ``..``.
    """
    if not is_key(key):
        raise InputError(
            f"{_short(key)} is no key of a state store; allowed: names of letters, digits,"
            f" '.', '_' and '-', joined by '/', at most {MAX_KEY_LENGTH} characters,"
            " no name '.' or '..'"
        )
    return key


def is_key(key: object) -> bool:
    """Return whether a key is allowed."""
    if not isinstance(key, str) or len(key) > MAX_KEY_LENGTH:
        return False
    return all(_NAME.fullmatch(name) and name not in (".", "..") for name in key.split("/"))


def check_prefix(prefix: str) -> str:
    """Return the prefix if it is a key or ``""``; else raise ``InputError``."""
    return prefix if prefix == "" else check_key(prefix)


def check_value(key: str, value: bytes) -> bytes:
    """Return the value if it has at most ``MAX_VALUE_BYTES``; else raise ``InputError``."""
    if type(value) is not bytes:
        raise InputError(f"the value of {key!r} is of {type(value).__name__}; allowed: bytes")
    if len(value) > MAX_VALUE_BYTES:
        raise InputError(
            f"the value of {key!r} has {len(value)} bytes; allowed: at most {MAX_VALUE_BYTES}"
        )
    return value


def check_ttl(ttl_s: float) -> float:
    """Return the time to live, in seconds, if it is allowed; else raise ``InputError``."""
    if not _is_number(ttl_s, float) or not MIN_TTL_S <= ttl_s <= MAX_TTL_S:
        raise InputError(
            f"a lease's time to live is {_short(ttl_s)} seconds; allowed:"
            f" {MIN_TTL_S:g} to {MAX_TTL_S:g}"
        )
    return float(ttl_s)


def check_session(ttl_s: float, session_s: float) -> None:
    """Check a lease's time to live where all leases end with a session, else raise ``InputError``.

    Args:
        ttl_s: The time to live.
        session_s: Seconds of silence after which the session ends.
    """
    if check_ttl(ttl_s) < session_s:
        raise InputError(
            f"a lease's time to live is {ttl_s} seconds; allowed: at least the session's"
            f" {session_s:g}"
        )


def check_ops(ops: tuple[Op, ...]) -> None:
    """Check the operations of a write.

    Raises:
        InputError: There is no operation, a key occurs twice, or a key, a value, a version or all
            values together aren't allowed.
    """
    if not ops:
        raise InputError("a write has no operation; allowed: at least one")
    seen: set[str] = set()
    total = 0
    for op in ops:
        least = 1 if isinstance(op, Delete) else ABSENT
        if check_key(op.key) in seen:
            raise InputError(f"a write has {op.key!r} twice; allowed: each key once")
        seen.add(op.key)
        if not _is_number(op.version, int) or op.version < least:
            raise InputError(
                f"the expected version of {op.key!r} is {_short(op.version)};"
                f" allowed: a whole number, at least {least}"
            )
        if isinstance(op, Put):
            total += len(check_value(op.key, op.value))
    if total > MAX_VALUE_BYTES:
        raise InputError(
            f"the values of a write have {total} bytes in all; allowed: at most {MAX_VALUE_BYTES}"
        )


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, int | kind) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_KEY_LENGTH else f"{text[:MAX_KEY_LENGTH]}…"

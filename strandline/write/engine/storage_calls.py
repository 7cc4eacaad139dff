"""Storage calls of tasks, in the form in which a ``Tally`` brings their numbers to the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from timeline.storage.base import Storage

_CALL: Final = "call"


def calls_since(
    storage: Storage, before: Mapping[tuple[str, str], int]
) -> Counter[tuple[str, str]]:
    """Return the storage calls since a snapshot, by (kind, cause)."""
    return Counter(storage.calls.snapshot()) - Counter(before)


def call_numbers(calls: Mapping[tuple[str, str], int]) -> dict[tuple[str, ...], int]:
    """Return storage calls in the form of a ``Tally``, for ``storage_calls``."""
    return {(_CALL, *kind): number for kind, number in calls.items()}


def is_call(name: tuple[str, ...]) -> bool:
    """Whether a number of a ``Tally`` counts storage calls."""
    return name[0] == _CALL


def storage_calls(numbers: Mapping[tuple[str, ...], int]) -> dict[tuple[str, str], int]:
    """Return the storage calls of a ``Tally`` by (kind, cause)."""
    return {(name[1], name[2]): n for name, n in numbers.items() if is_call(name)}

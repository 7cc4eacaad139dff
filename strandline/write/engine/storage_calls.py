"""Storage calls of tasks, in the form in which a ``Tally`` brings their numbers to the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from strandline.write.engine.base import Tally
from timeline.storage.base import Storage

_CALL: Final = "call"


@contextmanager
def tallied(storage: Storage, tally: Tally, cause: str) -> Iterator[Storage]:
    """Give a task's storage for a cause; at the end of the block, add its calls to a ``Tally``.

    A block that fails adds none.
    """
    before = storage.calls.snapshot()
    yield storage.for_cause(cause)
    tally.add(call_numbers(calls_since(storage, before)))


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

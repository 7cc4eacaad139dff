"""Which calls of a run are worth failing: those at which an effect is one that no other run has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tests.kit.faulty_storage import Effect

READS = frozenset({"list", "stat", "read", "open_input"})
STREAM = frozenset({"create_stream", "write", "close"})


def distinct_calls(log: Sequence[tuple[str, str]], effect: Effect) -> Iterator[int]:
    """Yield the calls, counted from 1, at which an effect is one that no other run has.

    A read that fails after it was made is as one that fails before. A crash at a read is as one at
    the next call that changes something; it has a middle in a stream and in the deletion of a tree
    only, and one after a call is one before the next. Of a file's many writes the first, the
    second, one in the middle and the last are taken.
    """
    at = 0
    for (kind, _), run in itertools.groupby(log):
        numbers = [at := at + 1 for _ in run]
        if kind == "write":
            numbers = sorted({numbers[len(numbers) // 2], numbers[-1]})
        if effect in (Effect.ERROR_AFTER, Effect.CRASH_BEFORE) and kind in READS:
            continue
        if effect is Effect.CRASH_TORN and kind not in STREAM | {"delete_tree"}:
            continue
        if effect is Effect.CRASH_AFTER and at != len(log):
            continue
        yield from numbers

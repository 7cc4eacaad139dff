"""What a function did: its result or its error, for tests that run several side by side."""

from __future__ import annotations

from collections.abc import Callable


def outcome_of(work: Callable[[], object]) -> object:
    """Return the function's result, or the error that it raised."""
    try:
        return work()
    except Exception as error:
        return error

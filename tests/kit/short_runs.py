"""Parameters of tests of which `tox -e quick` runs a few, and numbers of examples."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings


def quick_runs(kept: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return parameters; those that aren't ``kept`` are marked `property`."""
    given = list(values)
    assert any(value in kept for value in given), f"none of {kept} is one of {given}"
    long = pytest.mark.property
    return [pytest.param(value, marks=() if value in kept else long) for value in given]


def examples(number: int) -> int:
    """Return how many examples of ``number`` are drawn: all in `tox -e all`, else two fifths.

    Not of the machines of tables and cleans, nor of what is sent to a server or is damaged: those
    are as many always.
    """
    return number * settings.default.max_examples // 100


def stride(number: int) -> int:
    """Return the step of a loop over cases that are alike: 1 in `tox -e all`, else ``number``."""
    return 1 if examples(100) == 100 else number

"""Parameters of tests of which `tox -e quick` runs a few."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick_runs(kept: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return parameters; those that aren't ``kept`` are marked `property`."""
    given = list(values)
    assert any(value in kept for value in given), f"none of {kept} is one of {given}"
    long = pytest.mark.property
    return [pytest.param(value, marks=() if value in kept else long) for value in given]

"""A walk that our writer takes alone, checked after each step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.strandline.write.evolution.checks import differences
from tests.strandline.write.evolution.walk import Walk, Write
from tests.strandline.write.index.walk import Rules
from tests.strandline.write.refusals import files
from timeline.errors import InputError

EXECUTORS: Final = {"strandline.write.driver.max.rows": "0"}
"""On Spark, no batch is small enough for the driver."""


def take(
    base: Path,
    rules: Rules,
    seed: int,
    steps: int,
    engine: Any = None,
    frame: Callable[[pa.Table], Any] = lambda rows: rows,
) -> None:
    """Take a walk.

    Args:
        base: Base path of the table, which doesn't exist yet.
        rules: The rules of the table.
        seed: Of all that is drawn.
        steps: Number of writes.
        engine: The engine or Spark session; a new local engine if there is none.
        frame: Makes what the client takes from the rows of a write.
    """
    walk = Walk(rules, seed)
    for number in range(steps):
        write = walk.draw() if number else walk.first()
        options = {**rules.options(), **EXECUTORS, **write.options}
        with WriteClient(engine or LocalEngine(tasks=2), base, options) as client:
            _commit(client, base, write, frame(write.rows))
        walk.follow(write)
        assert not list(differences(walk, base)), f"after step {number}: {write}"


def _commit(client: WriteClient, base: Path, write: Write, rows: Any) -> None:
    """Do a write, which is refused or not as it says."""
    if not write.is_refused:
        getattr(client, write.operation)(rows)
        return
    before = files(base)
    with pytest.raises(InputError):
        getattr(client, write.operation)(rows)
    assert files(base) == before

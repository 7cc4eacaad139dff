"""A walk that our writer takes alone, checked after each step."""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader
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
    *,
    keep_clients: bool = False,
) -> None:
    """Take a walk.

    Args:
        base: Base path of the table, which doesn't exist yet.
        rules: The rules of the table.
        seed: Of all that is drawn.
        steps: Number of writes.
        engine: The engine or Spark session; a new local engine if there is none.
        frame: Makes what the client takes from the rows of a write.
        keep_clients: Whether writes with the same options are one client's, which starts from the
            timeline of its last write, although others have written since.
    """
    walk = Walk(rules, seed)
    with ExitStack() as opened:
        clients: dict[str, WriteClient] = {}
        done: set[str] = set()
        for number in range(steps):
            write = walk.draw() if number else walk.first()
            options = {**rules.options(), **EXECUTORS, **write.options}
            name = str(sorted(options.items()))
            if name not in clients:
                client = WriteClient(engine or LocalEngine(tasks=2), base, options)
                clients[name] = opened.enter_context(client)
            rows = frame(write.rows)
            _commit(clients[name], base, write, rows, done, is_sole=not keep_clients)
            done |= reader.committed(base)
            if not keep_clients:
                clients.pop(name).close()
            walk.follow(write)
            assert not list(differences(walk, base)), f"after step {number}: {write}"


def _commit(
    client: WriteClient, base: Path, write: Write, rows: Any, done: Set[str], *, is_sole: bool
) -> None:
    """Do a write, which is refused or not as it says; no instant is left.

    ``done`` are the commits of earlier steps, some of which may be archived.
    """
    if not write.is_refused:
        getattr(client, write.operation)(rows)
        return
    before, committed = files(base), reader.committed(base)
    with pytest.raises(InputError):
        getattr(client, write.operation)(rows)
    if is_sole:
        assert files(base) == before
    # A client with an outdated timeline leaves a rollback of what it had requested from it.
    assert reader.committed(base) == committed
    assert reader.leftovers(base, done) == []

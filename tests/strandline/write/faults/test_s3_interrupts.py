"""A write interrupted while S3 takes a data file leaves nothing, whenever S3 has taken it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.concurrency.signals import (
    Interrupted,
    interrupt,
    interrupts,
    join_calls,
    wait_until_in,
)
from tests.kit.servers.s3_server import s3_server
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table

pytestmark = pytest.mark.property


class Interrupting:
    """Interrupts the main thread while the server holds the request for a data file.

    Args:
        times: How often.

    Attributes:
        armed: Whether the next such request is held.
        raised: Set by the signal's handler.
        left: To be set when the write has ended, if a second interrupt ends it before the request.
    """

    def __init__(self, times: int) -> None:
        self.armed = False
        self.raised = threading.Event()
        self.left = threading.Event()
        self._times = times

    def hold(self, method: str, path: str) -> None:
        if not self.armed or method != "PUT" or not path.endswith(".parquet"):
            return
        self.armed = False
        join = None
        for _ in range(self._times):
            join = wait_until_in("join", after=join)
            self.raised.clear()
            interrupt()
            assert self.raised.wait(PATIENCE_S)
        if self._times > 1:
            assert self.left.wait(PATIENCE_S)


@pytest.mark.parametrize("times", [1, 2])
def test_no_file_appears_after_the_rollback(tmp_path: Path, times: int) -> None:
    """The request goes on when its caller is interrupted. (#16)"""
    rows, interrupting = table(row("x", "asia")), Interrupting(times)
    with s3_server(hold=interrupting.hold) as server:
        storage = server.single_try()
        with client(storage.base_path, storage) as c:
            c.upsert(table(row("a")))
            interrupting.armed = True
            with interrupts() as interrupting.raised, pytest.raises(Interrupted):
                c.insert(rows)
            files = [info.name for info in storage.list_tree("asia") if "parquet" in info.name]
            assert len(files) == (times == 1)
            repeated = c.insert(rows)
            interrupting.left.set()
            join_calls()
        base = server.save(storage, tmp_path / "t")
    assert len(repeated.rolled_back) == 1
    assert reader.leftovers(base) == []
    assert [each["id"] for each in reader.rows(base)] == ["a", "x"]

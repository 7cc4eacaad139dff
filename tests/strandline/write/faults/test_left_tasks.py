"""Tasks of the driver that outlive their write, which repeated interrupts have ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.concurrency.signals import Interrupted, interrupt
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table


class HeldStorage(HookedStorage):
    """A local table whose hook runs before each data file, too."""

    def create_stream(self, path):
        self._run(0, "create_stream", path)
        return super().create_stream(path)


def helpers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("strandline-task-")]


@contextmanager
def pressed(begin: threading.Barrier) -> Iterator[None]:
    """Interrupt the main thread again and again while it waits for tasks, as an impatient user."""
    ended = threading.Event()

    def handle(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_name == "run_in_threads":
                raise Interrupted
            frame = frame.f_back

    def press() -> None:
        begin.wait(PATIENCE_S)
        while not ended.wait(0.02):
            interrupt()

    before = signal.signal(signal.SIGUSR1, handle)
    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        yield
    finally:
        ended.set()
        pressing.join(PATIENCE_S)
        signal.signal(signal.SIGUSR1, before)


def test_no_file_appears_after_the_write_was_rolled_back(tmp_path: Path) -> None:
    base, release = tmp_path / "t", threading.Event()
    arrived = threading.Barrier(3)

    def held(kind: str, path: str) -> None:
        if kind == "create_stream":
            arrived.wait(PATIENCE_S)
            release.wait(PATIENCE_S)

    with client(base) as c:
        c.insert(table(row("a", "eu"), row("b", "us")))
    storage, engine = HeldStorage(base, before=held), LocalEngine(tasks=2, cores=2)
    with pressed(arrived), pytest.raises(Interrupted), client(base, storage, engine) as c:
        c.bulk_insert(table(row("c", "eu"), row("d", "us")))
    late = helpers()
    assert late
    with client(base) as c:
        (undone,) = c.insert(table(row("e", "eu"))).rolled_back
    release.set()
    for each in late:
        each.join(PATIENCE_S)
    assert [path.name for path in base.rglob(f"*_{undone}.parquet")] == []
    assert reader.leftovers(base) == []
    assert sorted(each["id"] for each in reader.rows(base)) == ["a", "b", "e"]

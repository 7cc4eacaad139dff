"""Scans whose storage hangs or fails, whichever call it is: threads end, others go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pyarrow as pa
import pytest

from strandline.read.scan import Scan
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables.filled_golden import FilledStorage, files
from tests.strandline.read.test_prefetch import running
from timeline.errors import StorageUnavailableError
from timeline.meta_client import TableMetaClient


class Gate:
    """A hook at which one call waits until the gate opens; others pass."""

    def __init__(self, nth: int) -> None:
        self.held, self.opened = threading.Event(), threading.Event()
        self._nth, self._calls = nth, count(1)

    def __call__(self, kind: str, path: str) -> None:
        if next(self._calls) == self._nth:
            self.held.set()
            assert self.opened.wait(PATIENCE_S)


def a_table() -> FilledStorage:
    return FilledStorage(files("mor_basic_v9", 8))


def scan_of(storage: FilledStorage, threads: int) -> Scan:
    return Scan.of(TableMetaClient.open(storage), threads=threads)


def calls_of(work: Callable[[FilledStorage], object]) -> int:
    storage = a_table()
    work(storage)
    return len(storage.log)


@pytest.mark.property
@pytest.mark.parametrize("threads", [1, 2])
def test_other_scans_go_on_while_a_call_hangs(threads: int) -> None:
    rows = scan_of(a_table(), 1).to_arrow()
    with ThreadPoolExecutor(1) as pool:
        for nth in range(1, calls_of(lambda s: scan_of(s, 1).to_arrow()) + 1):
            storage, gate = a_table(), Gate(nth)
            with storage.before(gate):
                hanging = pool.submit(lambda s=storage: scan_of(s, threads).to_arrow())
                assert gate.held.wait(PATIENCE_S)
                assert scan_of(storage, threads).to_arrow() == rows
                assert not hanging.done()
                gate.opened.set()
                assert hanging.result(PATIENCE_S) == rows
    assert running() == []


def test_a_reader_that_is_dropped_while_a_call_hangs_ends_its_threads() -> None:
    """That waits for the call, and no longer."""
    storage = a_table()
    scan = scan_of(storage, 2)
    second = scan.slices[1]
    assert second.base_file is not None
    held, opened = threading.Event(), threading.Event()

    def hang(kind: str, path: str) -> None:
        if path.startswith(f"{second.partition}/"):
            held.set()
            assert opened.wait(PATIENCE_S)

    with storage.before(hang), ThreadPoolExecutor(1) as pool:
        readers = [scan.to_reader()]
        assert readers[0].read_next_batch().num_rows
        assert held.wait(PATIENCE_S)
        dropping = pool.submit(readers.clear)
        assert scan.of_slices(scan.slices[:1]).count()
        opened.set()
        dropping.result(PATIENCE_S)
    assert running() == []


@pytest.mark.property
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("read", [Scan.to_arrow, Scan.count])
def test_each_call_may_fail(read: Callable[[Scan], pa.Table | int], threads: int) -> None:
    """The error names the file, and the same scan reads all the next time."""
    expected, failed = read(scan_of(a_table(), 1)), 0
    for nth in count(1):
        storage, calls, broken = a_table(), count(1), []

        def fail(kind: str, path: str, calls=calls, nth=nth, broken=broken) -> None:
            if next(calls) == nth:
                broken.append(path)
                raise StorageUnavailableError(f"injected: {kind} {path}")

        scan, message = None, ""
        with storage.before(fail):
            try:
                scan = scan_of(storage, threads)
                found = read(scan)
            except StorageUnavailableError as error:
                failed += 1
                message = str(error)
                found = read(scan or scan_of(storage, threads))
        assert found == expected
        assert running() == []
        if not broken:
            break
        assert broken[0] in message
    assert failed == nth - 1 > 9

"""Scans whose storage fails, or hangs for a while, at each call: all rows, or an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from strandline.read.scan import Scan
from tests.kit.concurrency.running_calls import running_calls
from tests.kit.short_runs import quick_runs, stride
from tests.kit.tables import golden
from timeline.errors import StorageUnavailableError
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

TABLES = [
    *quick_runs(["cow_basic_v9"], ["mor_basic_v6", "mor_basic_v9", "cow_basic_v9"]),
    pytest.param("savepoint_mor_v6", marks=pytest.mark.product),
]
MANY = 10_000
WAIT_S = 30


@dataclass
class Calls:
    """Does something before one call of a storage, counted from 0."""

    at: int = MANY
    do: Callable[[], None] = lambda: None
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self):
        with self.lock:
            number = self.count
            self.count += 1
        if number == self.at:
            self.do()


class Troubled(LocalStorage):
    """A local table; each call that reads is told first."""

    def __init__(self, path, calls):
        super().__init__(str(path))
        self.told = calls

    def list(self, path):
        self.told()
        return super().list(path)

    def stat(self, path):
        self.told()
        return super().stat(path)

    def read(self, path, *args, **named):
        self.told()
        return super().read(path, *args, **named)

    def open_input(self, path, *args, **named):
        self.told()
        return super().open_input(path, *args, **named)


def rows(path, calls):
    """Return the rows now and as of the last instant, read by two threads, and their number."""
    meta = TableMetaClient.open(Troubled(path, calls))
    last = meta.active_timeline().write_timeline().completed().instants[-1].requested_time
    scans = Scan.of(meta, threads=2), Scan.of(meta, as_of=last, threads=2)
    return [scan.to_arrow() for scan in scans] + [scans[0].count()]


@pytest.fixture(params=TABLES)
def path(request, tmp_path):
    return golden.build_final(request.param, tmp_path)


def fail():
    raise StorageUnavailableError("injected")


@pytest.mark.property
def test_any_call_may_fail(path):
    calls = Calls()
    expected = rows(path, calls)
    assert calls.count > 10
    for at in range(calls.count):
        with pytest.raises(StorageUnavailableError, match="injected"):
            rows(path, Calls(at, fail))
    assert rows(path, Calls()) == expected
    assert running_calls("strandline-") == set()


@pytest.mark.property
def test_any_call_may_hang_for_a_while(path):
    """Nobody else waits, and the rows are the same once it goes on; by default half of them."""
    calls = Calls()
    expected = rows(path, calls)
    first = calls.count % stride(2)
    for at in range(first, calls.count, stride(2)):
        reached, go_on, found = threading.Event(), threading.Event(), []

        def hang(reached=reached, go_on=go_on):
            reached.set()
            assert go_on.wait(WAIT_S)

        reader = threading.Thread(
            target=lambda at=at, hang=hang, found=found: found.append(rows(path, Calls(at, hang)))
        )
        reader.start()
        assert reached.wait(WAIT_S)
        if at % 8 == first:
            assert rows(path, Calls()) == expected
        go_on.set()
        reader.join(WAIT_S)
        assert found == [expected]

"""``strandline.service.marker.table_threads``: a share of the threads for each table."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from strandline.service.marker import table_threads
from strandline.service.marker.table_threads import OF_A_TABLE, TABLES, TableThreads
from timeline.storage.table_id import TableId

PATIENCE_S = 20.0
GOOD = TableId.of("/good")


@pytest.fixture
def threads() -> Iterator[TableThreads]:
    threads = TableThreads("test")
    yield threads
    threads.shutdown(finish=False)


class Hanging:
    """Work that hangs until it is let go; counts its runs, and how many there were at once."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.go = threading.Event()
        self.lock = threading.Lock()
        self.runs = self.now = self.most = 0

    def __call__(self) -> None:
        with self.lock:
            self.runs += 1
            self.now += 1
            self.most = max(self.most, self.now)
        self.began.release()
        assert self.go.wait(PATIENCE_S)
        with self.lock:
            self.now -= 1

    def until_begun(self, count: int) -> None:
        for _ in range(count):
            assert self.began.acquire(timeout=PATIENCE_S)


def test_a_table_has_its_share_and_the_rest_of_it_waits(threads: TableThreads) -> None:
    work = Hanging()
    done = [threads.submit(TableId.of("/hangs"), work) for _ in range(5 * OF_A_TABLE)]
    work.until_begun(OF_A_TABLE)
    assert threads.submit(GOOD, lambda: 7).result(PATIENCE_S) == 7
    assert work.runs == OF_A_TABLE
    work.go.set()
    for each in done:
        each.result(PATIENCE_S)
    assert (work.runs, work.most) == (5 * OF_A_TABLE, OF_A_TABLE)


def test_another_table_has_a_thread_while_many_hang(threads: TableThreads) -> None:
    work = Hanging()
    for number in range(TABLES - 1):
        for _ in range(2 * OF_A_TABLE):
            threads.submit(TableId.of(f"/hangs{number}"), work)
    work.until_begun((TABLES - 1) * OF_A_TABLE)
    assert threads.submit(GOOD, lambda: 7).result(PATIENCE_S) == 7
    work.go.set()


def test_the_queue_of_a_table_is_bounded(
    threads: TableThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_threads, "QUEUED", 3)
    work, hangs = Hanging(), TableId.of("/hangs")
    for _ in range(OF_A_TABLE):
        threads.submit(hangs, work)
    work.until_begun(OF_A_TABLE)
    for _ in range(3):
        threads.submit(hangs, work)
    with pytest.raises(RuntimeError, match="3 pieces of work on the table wait already"):
        threads.submit(hangs, work)
    assert threads.submit(GOOD, lambda: 7).result(PATIENCE_S) == 7
    work.go.set()


@pytest.mark.parametrize("finish", [True, False])
def test_at_the_end_what_waits_is_finished_or_cancelled(finish: bool) -> None:
    threads, work = TableThreads("test"), Hanging()
    done = [threads.submit(GOOD, work) for _ in range(OF_A_TABLE + 2)]
    work.until_begun(OF_A_TABLE)
    if finish:
        work.go.set()
    threads.shutdown(finish=finish)
    work.go.set()
    assert [each.cancelled() for each in done] == [False] * OF_A_TABLE + [not finish] * 2
    with pytest.raises(RuntimeError, match="the end"):
        threads.submit(GOOD, work)
    assert sum(each.exception(PATIENCE_S) is None for each in done[:OF_A_TABLE]) == OF_A_TABLE


class Content:
    """Stands for what work has in memory."""


def test_an_error_is_handed_on_and_not_kept(threads: TableThreads) -> None:
    kept: list[weakref.ref[Content]] = []

    def fail() -> None:
        content = Content()
        kept.append(weakref.ref(content))
        raise OSError("damaged")

    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            assert str(threads.submit(GOOD, fail).exception(PATIENCE_S)) == "damaged"
        threads.shutdown(finish=True)
        assert [content() for content in kept] == [None] * 3
    finally:
        gc.enable()

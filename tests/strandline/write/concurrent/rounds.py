"""Rounds of two writers on one table, compared with a plain model after each.

A test orders the writes and logs what the writers said was committed. The rows that this log gives,
in the order of the instants, must be those of the table. Each attempt inserts a key of its own, so
that a row of a write that failed can't be mistaken for one of a repeated write.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from strandline.commit.lock.storage_based import LOCK_PATH
from tests.kit.servers.s3_server import S3Endpoint
from tests.strandline.write.concurrent.round_model import NAMES, Model, Orders, create
from tests.strandline.write.concurrent.round_writer import Order
from tests.strandline.write.concurrent.writer_pipes import ProcessWriter, Writer, thread_writer
from timeline.storage.base import Storage

TIMES = int(os.environ.get("STRANDLINE_ROUNDS", "1"))
"""Factor of the numbers of rounds in these tests."""
LOCKS = "org.apache.hudi.client.transaction.lock."
CONCURRENT = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.wait_time_ms_between_retry": "5",
    "hoodie.time.generator.max_expected_clock_skew_ms": "2",
}
"""Options of writers on one machine, whose clocks are the same."""
RETRYABLE = frozenset({"write_conflict", "concurrent_write"})
ATTEMPTS = 20


def with_lock(provider: str, **options: str) -> dict[str, str]:
    """Return the options of concurrent writers with one of Hudi's lock providers."""
    return {**CONCURRENT, "hoodie.write.lock.provider": LOCKS + provider, **options}


def play(
    writers: tuple[Writer, Writer], orders: Orders, rounds: int, check: Callable[[], None]
) -> Counter[str]:
    """Let both writers write at once in each round, and repeat what failed.

    In half of the rounds both are inflight before either goes on, which decides what must happen:
    exactly one of two writes to one file group fails.

    Args:
        writers: The two writers.
        orders: Makes the orders.
        rounds: Number of rounds.
        check: Called after each round.

    Returns:
        How often writes of a round conflicted, by kind.
    """
    conflicts: Counter[str] = Counter()
    for _ in range(rounds):
        kind = orders.random.choice(orders.KINDS)
        meets = orders.random.random() < 0.5
        given = [orders.one(each.name, kind, meets=meets) for each in writers]
        for writer, order in zip(writers, given, strict=True):
            writer.send(order.line)
        if meets:
            for writer in writers:
                assert writer.answer() == {"at": "inflight"}
            for writer in writers:
                writer.send("go\n")
        failed = [
            not heard(writer.answer(), order, orders.model)
            for writer, order in zip(writers, given, strict=True)
        ]
        conflicts[kind] += sum(failed)
        if kind == "nothing":
            assert failed == [False, False]
        elif meets:
            assert sum(failed) == 1
        for writer, is_left in zip(writers, failed, strict=True):
            if is_left:
                repeat(writer, kind, orders)
        check()
    return conflicts


def heard(answer: Mapping[str, Any], order: Order, model: Model) -> bool:
    """Log a commit; return false for an error after which the write may be repeated."""
    if "instant" in answer:
        assert answer["warnings"] == []
        assert answer["instant"] not in model.log
        model.log[answer["instant"]] = order
        return True
    assert answer.get("error") in RETRYABLE, answer
    assert answer["retryable"]
    return False


def repeat(writer: Writer, kind: str, orders: Orders) -> None:
    """Let a writer write until it has committed, with new keys at each attempt."""
    for _ in range(ATTEMPTS):
        order = orders.one(writer.name, kind)
        writer.send(order.line)
        if heard(writer.answer(), order, orders.model):
            return
    raise AssertionError(f"no commit in {ATTEMPTS} attempts")


def play_processes(base: Path, options: Mapping[str, str], rounds: int, seed: int) -> Counter[str]:
    """Play rounds of two processes on a new table; return the conflicts by kind."""
    orders = Orders(Model(), seed)
    create(str(base), orders, options)
    with (
        ProcessWriter.started(NAMES[0], str(base), options) as one,
        ProcessWriter.started(NAMES[1], str(base), options) as two,
    ):
        conflicts = play((one, two), orders, rounds, lambda: orders.model.check(base))
    orders.model.check_end(base)
    return conflicts


def play_threads(base: Path, options: Mapping[str, str], rounds: int, seed: int) -> Counter[str]:
    """Play rounds of two threads on a new table; return the conflicts by kind."""
    orders = Orders(Model(), seed)
    create(str(base), orders, options)
    with (
        thread_writer(NAMES[0], str(base), options) as one,
        thread_writer(NAMES[1], str(base), options) as two,
    ):
        conflicts = play((one, two), orders, rounds, lambda: orders.model.check(base))
    orders.model.check_end(base)
    return conflicts


def play_s3(
    server: S3Endpoint, copy: Path, options: Mapping[str, str], rounds: int, seed: int
) -> Counter[str]:
    """Play rounds of two processes on a new table on S3, which is copied and checked at the end."""
    storage = server.storage()
    base = storage.base_path
    orders = Orders(Model(), seed)
    create(base, orders, options, storage_options=server.options)
    with (
        ProcessWriter.started(NAMES[0], base, options, server.options) as one,
        ProcessWriter.started(NAMES[1], base, options, server.options) as two,
    ):
        conflicts = play((one, two), orders, rounds, lambda: None)
    copy_tree(storage, copy)
    orders.model.check_end(copy)
    return conflicts


def copy_tree(storage: Storage, copy: Path) -> None:
    """Copy a table to a local folder, for the naive reader."""
    for info in storage.list_tree(""):
        if info.name == LOCK_PATH:
            # s3fs would ask for the version that it has seen first.
            continue
        target = copy / info.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(storage.open_input(info.name).read())

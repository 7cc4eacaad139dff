"""Rounds of two writers on one table, compared with a plain model after each.

A test orders the writes and logs what the writers said was committed. The rows that this log gives,
in the order of the instants, must be those of the table. Each attempt inserts a key of its own, so
that a row of a write that failed can't be mistaken for one of a repeated write.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from strandline.commit.beat import instants_with_heartbeat
from strandline.commit.lock.storage_based import LOCK_PATH
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit import reader
from tests.kit.s3_server import S3Endpoint
from tests.strandline.write.round_writer import Order, obey
from tests.strandline.write.tables import OPTIONS, row, table
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

ROOT = Path(__file__).parents[3]
TIMES = int(os.environ.get("STRANDLINE_ROUNDS", "1"))
"""Factor of the numbers of rounds in these tests."""

LOCKS = "org.apache.hudi.client.transaction.lock."
SHARED = "shared"
NAMES = ("one", "two")
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


@dataclass
class Writer:
    """The test's end of a writer's pipes."""

    name: str
    orders: IO[str]
    answers: IO[str]

    def send(self, line: str) -> None:
        """Send a line, which a writer that was killed doesn't get."""
        # Not through the buffer, which would keep the line and fail again when it is closed.
        with suppress(BrokenPipeError):
            os.write(self.orders.fileno(), line.encode())

    def answer(self) -> dict[str, Any]:
        """Return the next answer; empty if the writer was killed."""
        line = self.answers.readline()
        return json.loads(line) if line.endswith("\n") else {}


@dataclass
class ProcessWriter(Writer):
    """A writer in a process of its own."""

    child: subprocess.Popen[str]

    @classmethod
    @contextmanager
    def started(
        cls,
        name: str,
        base: str,
        options: Mapping[str, str],
        storage_options: Mapping[str, Any] | None = None,
        faults: tuple[tuple[int, str], ...] = (),
    ) -> Iterator[ProcessWriter]:
        """Run a writer within the block, after which it is killed if it hasn't ended."""
        module = "tests.strandline.write.round_writer"
        arguments = [json.dumps(each) for each in (options, storage_options, faults)]
        child = subprocess.Popen(
            [sys.executable, "-m", module, base, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                writer = cls(name, child.stdin, child.stdout, child)
                assert writer.answer() == {"at": "start"}
                yield writer
            finally:
                child.kill()


@contextmanager
def thread_writer(name: str, base: str, options: Mapping[str, str]) -> Iterator[Writer]:
    """Run a writer on a thread within the block."""
    orders, answers = os.pipe(), os.pipe()
    with (
        open(orders[0]) as their_orders,
        open(orders[1], "w") as our_orders,
        open(answers[0]) as our_answers,
        open(answers[1], "w") as their_answers,
    ):
        thread = threading.Thread(target=obey, args=(their_orders, their_answers, base, options))
        thread.start()
        try:
            writer = Writer(name, our_orders, our_answers)
            assert writer.answer() == {"at": "start"}
            yield writer
        finally:
            our_orders.close()
            thread.join()


@dataclass
class Model:
    """What the table must hold.

    Attributes:
        log: Instant → operation and rows of each commit.
        is_pinned: Whether every write looks its rows up in the timeline of its request. Hudi reads
            the timeline later, so a commit may have completed in between that it builds on.
    """

    log: dict[str, Order] = field(default_factory=dict)
    is_pinned: bool = True

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows by key.

        Commits that changed the same file group didn't overlap, so instants give their order.
        """
        found: dict[str, dict[str, Any]] = {}
        for _, order in sorted(self.log.items()):
            for each in order.rows:
                stored = found.get(each["id"])
                if order.operation == "delete":
                    found.pop(each["id"], None)
                elif stored is None or each["ts"] >= stored["ts"]:
                    found[each["id"]] = each
        return [found[key] for key in sorted(found)]

    def own_keys(self, name: str) -> list[str]:
        return [each["id"] for each in self.rows() if each["region"] == name]

    def check(self, base: Path) -> None:
        """Compare the table's commits and rows with the log.

        Hudi archives the oldest commits, but may leave rollbacks and cleans that are older.
        """
        held = reader.committed(base)
        expected = {each for each in self.log if each >= min(held)}
        if held != expected:
            names = "\n".join(reader.timeline_names(base))
            raise AssertionError(
                f"missing {expected - held}, unknown {held - expected} of\n{names}"
            )
        assert reader.rows(base) == self.rows()
        if self.is_pinned:
            check_lifetimes(base)

    def check_end(self, base: Path, killed: int = 0) -> None:
        """Compare a table that nobody writes any more.

        A writer that was killed before its instant existed, or after it had completed, leaves its
        heartbeat, which says nothing about any other instant.
        """
        self.check(base)
        assert reader.leftovers(base) == []
        assert len(instants_with_heartbeat(LocalStorage(str(base)))) <= killed
        assert not (base / ".hoodie/lock").exists()


def check_lifetimes(base: Path) -> None:
    """Check that no two commits of one file group overlapped, where names tell (version ≥ 8)."""
    completed = {}
    for name in reader.timeline_names(base):
        requested, _, rest = name.partition("_")
        if rest.endswith(".commit"):
            completed[requested] = rest.partition(".")[0]
    groups: dict[str, list[str]] = {}
    for _, _, file_id, instant in reader.base_files(base):
        if instant in completed:
            groups.setdefault(file_id, []).append(instant)
    for instants in groups.values():
        for earlier, later in pairwise(sorted(instants)):
            assert completed[earlier] < later, "commits of one file group overlapped"


class Orders:
    """Makes orders at random; ``kind`` says what the two writers of a round share."""

    KINDS = ("row", "file", "nothing")

    def __init__(self, model: Model, seed: int) -> None:
        self.model = model
        self.random = random.Random(seed)
        self._attempts = 0

    def first(self) -> Order:
        """Return the first write: a row in every file group that the others write to."""
        return Order("upsert", (row(SHARED, SHARED), *(row(f"{n}-0", n) for n in NAMES)))

    def one(self, name: str, kind: str, *, meets: bool = False) -> Order:
        """Return an order of a writer whose rows no other writer inserts."""
        self._attempts += 1
        key = f"{name}-{self._attempts}"
        own = row(key, name)
        if kind == "row":
            version = self.random.randint(1, 3)
            return Order("upsert", (own, row(SHARED, SHARED, version, key)), meets)
        if kind == "file":
            return Order("insert", (own, row(f"{key}-beside", SHARED)), meets)
        stored = self.model.own_keys(name)
        operation = self.random.choice(("upsert", "insert", "delete"))
        if operation == "delete" and len(stored) > 1:
            return Order("delete", (row(self.random.choice(stored), name),), meets)
        updated = [row(k, name, 9, key) for k in stored[:1] if operation == "upsert"]
        return Order("insert" if not updated else "upsert", (own, *updated), meets)


def create(base: str, orders: Orders, options: Mapping[str, str], **storage: Any) -> None:
    """Write the table's first commit."""
    order = orders.first()
    with WriteClient(LocalEngine(), base, {**OPTIONS, **options}, **storage) as c:
        orders.model.log[c.upsert(table(*order.rows)).instant] = order


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

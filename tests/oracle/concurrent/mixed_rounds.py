"""Rounds of a writer of ours and of real Hudi on one table, compared with a model after each.

Ours is a process, Hudi a thread that drives Spark. How their writes overlap is drawn in each round:
ours can be held in the middle of a write, and it can begin when Hudi's has come to a certain point.
Failed writes are rolled back by cleans (LAZY), as Hudi demands of concurrent writers.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader
from tests.oracle.concurrent.hudi_writer import HudiWriter, wait_until
from tests.oracle.hudi import Hudi, Rows, hudi_session
from tests.strandline.write.concurrent.round_model import NAMES, SHARED, Model, Orders
from tests.strandline.write.concurrent.round_writer import Order
from tests.strandline.write.concurrent.rounds import ATTEMPTS, heard, repeat, with_lock
from tests.strandline.write.concurrent.writer_pipes import ProcessWriter
from tests.strandline.write.tables import OPTIONS, row, table

OURS, HUDIS = NAMES
READ_EVERY = 10
"""Number of rounds from one read by Hudi to the next; the naive reader reads after each."""
APART = "apart"
"""A partition in which each writer has a row in a file group of its own."""
LAZY = {
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "3",
}


class Overlap(Enum):
    """How the two writes of a round overlap."""

    HELD = "Hudi's begins and ends while ours is inflight"
    MET = "both are inflight, then either ends first"
    AT_ONCE = "both begin at once"
    AT_REQUEST = "ours begins when Hudi's is requested"
    AT_INFLIGHT = "ours begins when Hudi's is inflight"
    AT_FILE = "ours begins when Hudi's has a data file"


OURS_FIRST = (Overlap.HELD, Overlap.MET)
CERTAIN = ("row", "file", "deleted")
"""Kinds of orders that conflict if their writes overlap."""


class MixedOrders(Orders):
    """Also makes orders that delete a shared row, or change other groups of one partition."""

    KINDS = (*CERTAIN, "nothing", "partition")

    def __init__(self, model: Model, seed: int) -> None:
        super().__init__(model, seed)
        self._updates = 0

    def all_first(self) -> tuple[Order, ...]:
        """Return the first writes; each makes file groups of its own."""
        apart = (Order("insert", (row(f"{APART}-{name}", APART),)) for name in NAMES)
        return (self.first(), *apart)

    @property
    def has_shared(self) -> bool:
        """Whether the row that both writers change is stored."""
        return any(each["id"] == SHARED for each in self.model.rows())

    def one(self, name: str, kind: str, *, meets: bool = False) -> Order:
        if kind == "deleted" and self.has_shared and self.random.random() < 0.5:
            return Order("delete", (row(SHARED, SHARED),), meets)
        if kind == "partition":
            self._updates += 1
            name_of_update = f"{name}, update {self._updates}"
            return Order("upsert", (row(f"{APART}-{name}", APART, 9, name_of_update),), meets)
        return super().one(name, "row" if kind == "deleted" else kind, meets=meets)


def begin_table(base: Path, orders: MixedOrders, options: Mapping[str, str]) -> None:
    """Write the table's first commits."""
    apart = {**OPTIONS, **options, "hoodie.parquet.small.file.limit": "0"}
    with WriteClient(LocalEngine(), str(base), apart) as client:
        for order in orders.all_first():
            result = getattr(client, order.operation)(table(*order.rows))
            orders.model.log[result.instant] = order


@dataclass
class MixedRounds:
    """Plays rounds on a table.

    Attributes:
        base: The table's base path.
        orders: Makes the orders and has the model.
        ours: Our writer.
        hudis: Hudi's.
        counts: Rounds by how they ended: which writer was refused, if any.
    """

    base: Path
    orders: MixedOrders
    ours: ProcessWriter
    hudis: HudiWriter
    counts: Counter[str] = field(default_factory=Counter)

    def play(self, rounds: int) -> None:
        for number in range(1, rounds + 1):
            self._round(self.orders.random.choice(MixedOrders.KINDS))
            if not self.orders.has_shared:
                # In the next round both would insert its key, which doesn't conflict.
                repeat(self.ours, "row", self.orders)
            self.orders.model.check(self.base)
            if number % READ_EVERY == 0 or number == rounds:
                assert self.hudis.read() == self.orders.model.rows()

    def _round(self, kind: str) -> None:
        overlap = self.orders.random.choice(tuple(Overlap))
        order = self.orders.one(OURS, kind, meets=overlap in OURS_FIRST)
        theirs = self.orders.one(HUDIS, kind)
        if overlap in OURS_FIRST:
            running = self._ours_first(order, theirs, overlap)
        else:
            running = self._hudis_first(order, theirs, overlap)
        ours_committed = heard(self.ours.answer(), order, self.orders.model)
        hudis_committed = self._heard(running.result(), theirs)
        self._count(kind, overlap, ours_committed, hudis_committed)
        if not ours_committed:
            repeat(self.ours, kind, self.orders)
        if not hudis_committed:
            self._repeat_hudis(kind)

    def _ours_first(self, order: Order, theirs: Order, overlap: Overlap) -> Future[str | None]:
        self.ours.send(order.line)
        assert self.ours.answer() == {"at": "inflight"}
        before = set(reader.timeline_names(self.base))
        running = self._begin(theirs)
        if overlap is Overlap.HELD:
            running.exception()
        else:
            wait_until(lambda: has_reached(self.base, Overlap.AT_INFLIGHT, before), running)
        self.ours.send("go\n")
        return running

    def _hudis_first(self, order: Order, theirs: Order, overlap: Overlap) -> Future[str | None]:
        before = set(reader.timeline_names(self.base))
        running = self._begin(theirs)
        wait_until(lambda: has_reached(self.base, overlap, before), running)
        self.ours.send(order.line)
        return running

    def _begin(self, order: Order) -> Future[str | None]:
        """Begin a write of Hudi's; some of them clean, while ours always do."""
        cleans = str(self.orders.random.random() < 0.3).lower()
        return self.hudis.begin(order, hoodie_clean_automatic=cleans)

    def _heard(self, instant: str | None, order: Order) -> bool:
        """Log a commit of Hudi's; return false if the write was refused."""
        if instant is not None:
            self.orders.model.log[instant] = order
        return instant is not None

    def _count(self, kind: str, overlap: Overlap, ours: bool, hudis: bool) -> None:
        """Check which writes may have been refused."""
        assert ours or hudis, "both were refused"
        if kind not in CERTAIN:
            assert ours, f"ours was refused without a conflict: {kind}, {overlap}"
            assert hudis, f"Hudi's was refused without a conflict: {kind}, {overlap}"
        elif overlap is Overlap.HELD:
            assert not ours
        elif overlap is Overlap.MET:
            assert not (ours and hudis)
        refused = "Hudi's refused" if ours else "ours refused"
        self.counts["both committed" if ours and hudis else refused] += 1

    def _repeat_hudis(self, kind: str) -> None:
        for _ in range(ATTEMPTS):
            order = self.orders.one(HUDIS, kind)
            if self._heard(self._begin(order).result(), order):
                return
        raise AssertionError(f"no commit of Hudi's in {ATTEMPTS} attempts")


def has_reached(base: Path, point: Overlap, before: set[str]) -> bool:
    """Return whether a write that began after a look at the timeline has come so far."""
    new = set(reader.timeline_names(base)) - before
    if point is Overlap.AT_REQUEST:
        return any(name.endswith(".commit.requested") for name in new)
    inflight = {name[:17] for name in new if name[17:] in (".inflight", ".commit.inflight")}
    if point is Overlap.AT_FILE:
        return any(instant in inflight for *_, instant in reader.base_files(base))
    return bool(inflight) or point is Overlap.AT_ONCE


def play_mixed(
    hudi: Hudi, base: Path, options: Mapping[str, str], rounds: int, seed: int
) -> Counter[str]:
    """Play rounds on a new table; return how they ended."""
    named = {**options, **LAZY}
    orders = MixedOrders(Model(is_pinned=False), seed)
    begin_table(base, orders, named)
    with ExitStack() as stack:
        ours = stack.enter_context(ProcessWriter.started(OURS, str(base), named))
        hudis = stack.enter_context(HudiWriter.started(hudi, str(base), named))
        played = MixedRounds(base, orders, ours, hudis)
        played.play(rounds)
    # Hudi 0.15 leaves the heartbeats of refused writes.
    for beat in (base / ".hoodie/.heartbeat").iterdir():
        os.utime(beat, (0, 0))
    with WriteClient(LocalEngine(), str(base), {**OPTIONS, **named}) as client:
        client.clean()
    orders.model.check_end(base)
    return played.counts


def insert_one_key(hudi: Hudi, base: Path, options: Mapping[str, str]) -> Rows:
    """Let both insert one key into a new partition at the same time; return Hudi's rows of it."""
    begin_table(base, MixedOrders(Model(), 0), options)
    by_ours, by_hudi = (Order("insert", (row("same", "new", 1, n),), n == OURS) for n in NAMES)
    with (
        ProcessWriter.started(OURS, str(base), options) as ours,
        HudiWriter.started(hudi, str(base), options) as hudis,
    ):
        ours.send(by_ours.line)
        assert ours.answer() == {"at": "inflight"}
        assert hudis.write(by_hudi) is not None
        ours.send("go\n")
        assert "instant" in ours.answer()
        return [each for each in hudis.read() if each["id"] == "same"]


def main(release: str, folder: str, rounds: str) -> None:
    """Play rounds with a release of Hudi that writes tables of version 6."""
    options = with_lock("FileSystemBasedLockProvider", **{"hoodie.write.table.version": "6"})
    with hudi_session(Path(folder) / "warehouse", release) as hudi:
        print(play_mixed(hudi, Path(folder) / "t", options, int(rounds), seed=15))


if __name__ == "__main__":
    main(*sys.argv[1:])

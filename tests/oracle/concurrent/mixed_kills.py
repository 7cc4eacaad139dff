"""Rounds in which a writer dies beside real Hudi, or Hudi beside ours; the other one goes on.

Failed writes are rolled back by cleans (LAZY), once their heartbeats have expired; those of a
killed process expire after ``EXPIRY``.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader
from tests.oracle.concurrent.hudi_process import HudiProcess
from tests.oracle.concurrent.hudi_writer import HudiWriter
from tests.oracle.concurrent.mixed_rounds import (
    HUDIS,
    LAZY,
    OURS,
    MixedOrders,
    Overlap,
    begin_table,
    has_reached,
)
from tests.oracle.hudi import Hudi
from tests.oracle.view.walk import REFUSE_COMMIT
from tests.strandline.write.concurrent.killed_rounds import CALLS, EFFECTS
from tests.strandline.write.concurrent.round_model import Model
from tests.strandline.write.concurrent.round_writer import Order
from tests.strandline.write.concurrent.rounds import ATTEMPTS, heard
from tests.strandline.write.concurrent.writer_pipes import ProcessWriter
from tests.strandline.write.tables import OPTIONS, table

EXPIRY = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "3",
}
REFUSING = {name.replace(".", "_"): value for name, value in REFUSE_COMMIT.items()}
POINTS = (Overlap.AT_REQUEST, Overlap.AT_INFLIGHT, Overlap.AT_FILE)


class OursKilled:
    """Kills our writer (-9) at a call of its own in each round, while Hudi writes.

    Args:
        hudis: Hudi's writer.
        base: The table's base path.
        options: Options of both writers.
        orders: Makes the orders and has the model.

    Attributes:
        counts: Number of writes in doubt that ``completed`` or were ``rolled back`` by Hudi, and of
            ``locks`` left behind.
    """

    def __init__(
        self, hudis: HudiWriter, base: Path, options: Mapping[str, str], orders: MixedOrders
    ) -> None:
        self._hudis = hudis
        self._base = base
        self._options = options
        self._orders = orders
        self._model = orders.model
        self.counts: Counter[str] = Counter()

    def play(self, kills: int) -> None:
        for _ in range(kills):
            self._round(self._orders.random)
            self._model.check(self._base)
        assert self._hudis.read() == self._model.rows()

    def _round(self, random: random.Random) -> None:
        faults = ((random.randint(1, 2 * CALLS), random.choice(EFFECTS).value),)
        with ProcessWriter.started(OURS, str(self._base), self._options, None, faults) as victim:
            while self._both_write(victim):
                pass
        self._let_hudi_repair()

    def _both_write(self, victim: ProcessWriter) -> bool:
        """Let both write; return whether our writer lives."""
        kind = self._orders.random.choice(("file", "nothing"))
        order, theirs = (self._orders.one(name, kind) for name in (OURS, HUDIS))
        running = self._hudis.begin(theirs)
        victim.send(order.line)
        answer = victim.answer()
        if not answer:
            assert victim.child.wait() == -signal.SIGKILL
            # Hudi may be waiting for it.
            self._delete_lock_of(victim)
        instant = running.result()
        if instant is not None:
            self._model.log[instant] = theirs
        if answer:
            heard(answer, order, self._model)
            return True
        unknown = reader.committed(self._base) - self._model.log.keys()
        assert len(unknown) <= 1
        self.counts["completed"] += len(unknown)
        self._model.log.update(dict.fromkeys(unknown, order))
        return False

    def _let_hudi_repair(self) -> None:
        """Let Hudi write until it has rolled back what the victim left."""
        left = reader.pending(self._base)
        for _ in range(ATTEMPTS):
            order = self._orders.one(HUDIS, "nothing")
            instant = self._hudis.write(order)
            assert instant is not None
            self._model.log[instant] = order
            if not reader.pending(self._base):
                self.counts["rolled back"] += any(name.endswith(".inflight") for name in left)
                return
        raise AssertionError(f"not rolled back by Hudi: {sorted(reader.pending(self._base))}")

    def _delete_lock_of(self, victim: ProcessWriter) -> None:
        """Delete the lock file that a killed writer held, as an operator does."""
        lock = self._base / ".hoodie/lock"
        if lock.exists() and f":{victim.child.pid} " in lock.read_text():
            lock.unlink()
            self.counts["locks"] += 1


class HudiKilled:
    """Lets Hudi's writes die in different ways, and ours go on.

    Args:
        base: The table's base path.
        options: Options of both writers.
        orders: Makes the orders and has the model.

    Attributes:
        counts: Number of Hudi's writes that were ``rolled back`` by ours, or that ``completed``.
    """

    def __init__(self, base: Path, options: Mapping[str, str], orders: MixedOrders) -> None:
        self._base = base
        self._orders = orders
        self._model = orders.model
        self._ours = WriteClient(LocalEngine(), str(base), {**OPTIONS, **options})
        self.counts: Counter[str] = Counter()

    def play_refused(self, hudis: HudiWriter, rounds: int) -> None:
        """Let Hudi refuse its own commits when their files are written, by a validator."""
        for _ in range(rounds):
            order = self._orders.one(HUDIS, self._orders.random.choice(("row", "nothing")))
            with pytest.raises(Py4JJavaError):
                hudis.write(order, **REFUSING)
            self._ours_go_on(order)

    def play_killed(self, options: Mapping[str, str], points: Iterable[Overlap]) -> None:
        """Kill (-9) a JVM of Hudi's at each of these points of its first write."""
        for point in points:
            order = self._orders.one(HUDIS, "row")
            with HudiProcess.started(str(self._base), options) as hudi:
                before = set(reader.timeline_names(self._base))
                hudi.send(order.line)
                while not has_reached(self._base, point, before):
                    assert hudi.child.poll() is None
                hudi.kill()
            (self._base / ".hoodie/lock").unlink(missing_ok=True)
            self._ours_go_on(order)

    def _ours_go_on(self, order: Order) -> None:
        """Write beside the failed write while its heartbeat counts, and after it has expired."""
        unknown = reader.committed(self._base) - self._model.log.keys()
        assert len(unknown) <= 1
        self.counts["completed"] += len(unknown)
        self._model.log.update(dict.fromkeys(unknown, order))
        beats = list((self._base / ".hoodie/.heartbeat").iterdir())
        left = {name[:17] for name in reader.pending(self._base)}
        if any(name.endswith(".inflight") for name in reader.pending(self._base)):
            # For one that is only requested, ours would wait until it has expired.
            for beat in beats:
                os.utime(beat)
            self._ours_write()
            assert left == {name[:17] for name in reader.pending(self._base)}
        for beat in beats:
            os.utime(beat, (0, 0))
        self._ours_write()
        self._model.check_end(self._base)
        self.counts["rolled back"] += len(left)

    def _ours_write(self) -> None:
        order = self._orders.one(OURS, "row")
        result = self._ours.upsert(table(*order.rows))
        assert result.warnings == ()
        self._model.log[result.instant] = order


def play_ours_killed(
    hudi: Hudi, base: Path, options: Mapping[str, str], kills: int, seed: int
) -> Counter[str]:
    """Kill our writer beside Hudi on a new table; return what happened."""
    named = {**options, **LAZY, **EXPIRY}
    orders = MixedOrders(Model(is_pinned=False), seed)
    begin_table(base, orders, named)
    with HudiWriter.started(hudi, str(base), named) as hudis:
        killed = OursKilled(hudis, base, named, orders)
        killed.play(kills)
    return killed.counts


def play_hudi_killed(
    hudi: Hudi, base: Path, options: Mapping[str, str], failures: int, seed: int
) -> Counter[str]:
    """Let Hudi's writes fail, and then some be killed, on a new table; return what happened."""
    named = {**options, **LAZY}
    orders = MixedOrders(Model(is_pinned=False), seed)
    begin_table(base, orders, named)
    killed = HudiKilled(base, named, orders)
    with HudiWriter.started(hudi, str(base), named) as hudis:
        killed.play_refused(hudis, failures)
        killed.play_killed(named, POINTS)
        assert hudis.read() == orders.model.rows()
    return killed.counts

"""Rounds in which one of two writers is killed (-9) and the other goes on, compared with a model.

The test itself is the writer that goes on. The other, a process, is killed at a random storage call
of its own, or at a random one of the survivor's, so at a random moment of its own. What it was
writing then is in doubt: it counts if its instant has completed, with all of its rows.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.storage.faulty_storage import Effect
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.concurrent.round_model import NAMES, Model, Orders, create
from tests.strandline.write.concurrent.round_writer import Order
from tests.strandline.write.concurrent.rounds import ATTEMPTS, RETRYABLE
from tests.strandline.write.concurrent.writer_pipes import ProcessWriter
from tests.strandline.write.tables import OPTIONS, table
from timeline.errors import StrandlineError

CALLS = 90
"""Approximate number of storage calls of one write; the victim dies at one of its first two."""
SURVIVOR_CALLS = 30
"""Approximate number of hooked calls of one write of the survivor; likewise."""
EFFECTS = (Effect.CRASH_BEFORE, Effect.CRASH_TORN, Effect.CRASH_AFTER)


class KilledRounds:
    """Kills a writer in each round, while another one writes.

    Args:
        base: The table's base path.
        options: Options of both writers.
        seed: Of the random choices.

    Attributes:
        model: The log of both.
        counts: Number of kills ``at a call`` and ``at a moment``, of commits in doubt that
            ``completed``, of instants ``rolled back``, of ``locks`` left behind.
    """

    def __init__(self, base: Path, options: Mapping[str, str], seed: int) -> None:
        self._base = base
        self._options = {**options, "hoodie.write.lock.client.num_retries": "0"}
        self._options["hoodie.write.lock.wait_time_ms"] = "500"
        # The survivor waits for the expiry of a victim that was completing its commit.
        self._options["hoodie.client.heartbeat.interval_in_ms"] = "1000"
        self.model = Model()
        self._orders = Orders(self.model, seed)
        self._random = self._orders.random
        # Without a lock a table has one writer at a time: the survivor writes after the victim.
        self._at_once = "hoodie.write.lock.provider" in options
        self._victim: ProcessWriter | None = None
        self._left = 0
        self.counts: Counter[str] = Counter()
        create(str(base), self._orders, self._options)
        self._client = WriteClient(
            LocalEngine(),
            str(base),
            {**OPTIONS, **self._options},
            storage=HookedStorage(base, before=self._count),
        )

    def play(self, rounds: int) -> None:
        """Play rounds; a last write repairs what the last victim left."""
        with self._client:
            for _ in range(rounds):
                self._round()
                self.model.check(self._base)
            self._survivor_writes("nothing")
        self.model.check_end(self._base, killed=rounds)

    def _round(self) -> None:
        random = self._random
        faults: tuple[tuple[int, str], ...] = ()
        by_call = not self._at_once or random.random() < 0.5
        if by_call:
            at, effect = random.randint(1, 2 * CALLS), random.choice(EFFECTS)
            faults = ((at, effect.value),)
        with ExitStack() as stack:
            victim = stack.enter_context(
                ProcessWriter.started(NAMES[1], str(self._base), self._options, None, faults)
            )
            self._victim = victim
            self._left = 0 if by_call else random.randint(1, 2 * SURVIVOR_CALLS)
            self.counts["at a call" if by_call else "at a moment"] += 1
            while self._both_write(victim):
                pass

    def _both_write(self, victim: ProcessWriter) -> bool:
        """Let both write and log what the victim was told; return whether it lives.

        If it died, the timeline tells whether it had committed.
        """
        kind = self._random.choice(Orders.KINDS)
        order = self._orders.one(victim.name, kind)
        victim.send(order.line)
        if self._at_once:
            self._survivor_writes(kind)
        answer = victim.answer()
        if not answer:
            assert victim.child.wait() == -signal.SIGKILL
            self._delete_lock_of_victim()
            self._settle(order)
        elif "instant" in answer:
            self.model.log[answer["instant"]] = order
        else:
            assert answer["error"] in {*RETRYABLE, "lock"}, answer
        if not self._at_once:
            self._survivor_writes(kind)
        return bool(answer)

    def _settle(self, order: Order) -> None:
        """Log the write of a writer that died before it answered, if it was committed."""
        unknown = reader.committed(self._base) - self.model.log.keys()
        assert len(unknown) <= 1
        for instant in unknown:
            self.model.log[instant] = order
            self.counts["completed"] += 1

    def _survivor_writes(self, kind: str) -> None:
        errors = []
        for _ in range(ATTEMPTS):
            order = self._orders.one(NAMES[0], kind)
            try:
                result = getattr(self._client, order.operation)(table(*order.rows))
            except StrandlineError as error:
                errors.append(error)
                if error.code == "lock":
                    self._delete_lock_of_victim()
                elif error.code not in RETRYABLE:
                    raise
                continue
            assert result.warnings == ()
            self.counts["rolled back"] += len(result.rolled_back)
            self.model.log[result.instant] = order
            return
        raise AssertionError(f"no commit in {ATTEMPTS} attempts: {errors}")

    def _delete_lock_of_victim(self) -> None:
        """Delete the lock file that a killed writer held, as an operator does."""
        child = self._victim.child if self._victim is not None else None
        lock = self._base / ".hoodie/lock"
        if child is None or child.poll() is None or not lock.exists():
            return
        if f":{child.pid} " in json.loads(lock.read_text())["lockThreadName"]:
            lock.unlink()
            self.counts["locks"] += 1

    def _count(self, kind: str, path: str) -> None:
        """Kill the victim at the chosen call of the survivor."""
        self._left -= 1
        if self._left == 0 and self._victim is not None:
            self._victim.child.kill()


def play_killed(base: Path, options: Mapping[str, str], rounds: int, seed: int) -> Counter[str]:
    """Play rounds on a new table; return what happened."""
    played = KilledRounds(base, options, seed)
    played.play(rounds)
    return played.counts

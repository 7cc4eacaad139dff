"""Rounds on S3 in which a writer is killed or stopped at a drawn request while another goes on."""

from __future__ import annotations

import os
import select
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.servers.s3_server import S3Endpoint
from tests.kit.tables import reader
from tests.strandline.write.concurrent.round_model import NAMES, Model, Orders, create
from tests.strandline.write.concurrent.round_writer import Order
from tests.strandline.write.concurrent.rounds import RETRYABLE, copy_tree, heard, with_lock
from tests.strandline.write.concurrent.writer_pipes import ProcessWriter
from tests.strandline.write.tables import OPTIONS, table

LOOKS = 200
"""Approximate number of looks of the server's watch during one write."""

SHORT_LEASE = with_lock(
    "StorageBasedLockProvider",
    **{
        "hoodie.client.heartbeat.interval_in_ms": "2000",
        "hoodie.client.heartbeat.tolerable.misses": "3",
        "hoodie.write.lock.storage.validity.timeout.secs": "10",
        "hoodie.write.lock.storage.renew.interval.secs": "1",
    },
)
"""The lease of a writer that has ended is over after 10 s, its last heartbeat counts for 6 s."""


class Striker:
    """Sends a process a signal when the server has been watched for a number of times.

    Attributes:
        done: Becomes readable, as a file, when the signal has been sent.
    """

    def __init__(self) -> None:
        self.done, self._sent = os.pipe()
        self._left = 0
        self._victim: ProcessWriter | None = None
        self._signal = signal.SIGKILL

    def aim(self, victim: ProcessWriter, with_signal: signal.Signals, looks: int) -> None:
        """Send the signal at this look from now on."""
        self._victim, self._signal, self._left = victim, with_signal, looks

    def look(self) -> None:
        """Count a look."""
        self._left -= 1
        if self._left == 0 and self._victim is not None:
            self._victim.child.send_signal(self._signal)
            os.write(self._sent, b"x")

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.done)
        os.close(self._sent)


@dataclass
class S3Rounds:
    """Kills or stops a writer in each round; the next write of another one repairs the table.

    Attributes:
        server: The server, watched by the striker.
        striker: Strikes the victim.
        folder: For copies of the table.
        orders: Makes the orders and has the model.
        counts: Writes in doubt that ``completed``, instants ``rolled back``, and writes that had
            stalled, by their error's code or ``in time``.
    """

    server: S3Endpoint
    striker: Striker
    folder: Path
    orders: Orders
    base: str = ""
    counts: Counter[str] = field(default_factory=Counter)

    def play(self, kills: int, stalls: int) -> None:
        """Play the rounds on a new table."""
        self.base = self.server.storage().base_path
        create(self.base, self.orders, SHORT_LEASE, storage_options=self.server.options)
        kinds = [signal.SIGKILL] * kills + [signal.SIGSTOP] * stalls
        self.orders.random.shuffle(kinds)
        for number, kind in enumerate(kinds, 1):
            in_doubt = self._strike(kind)
            self._write()
            copy = self.folder / str(number)
            copy_tree(self.server.storage_at(self.base), copy)
            self._settle(copy, in_doubt)
            self.orders.model.check_end(copy, killed=number)

    def _write(self) -> None:
        order = self.orders.one(NAMES[0], "file")
        options = {**OPTIONS, **SHORT_LEASE}
        access = self.server.options
        with WriteClient(LocalEngine(), self.base, options, storage_options=access) as client:
            result = client.insert(table(*order.rows))
        assert result.warnings == ()
        self.orders.model.log[result.instant] = order
        self.counts["rolled back"] += len(result.rolled_back)

    def _strike(self, kind: signal.Signals) -> Order | None:
        """Let a process write until the signal has come; return the order that is in doubt."""
        access = self.server.options
        with ProcessWriter.started(NAMES[1], self.base, SHORT_LEASE, access) as victim:
            self.striker.aim(victim, kind, self.orders.random.randint(1, 2 * LOOKS))
            while True:
                order = self.orders.one(victim.name, "file")
                victim.send(order.line)
                struck, *_ = select.select([self.striker.done, victim.answers], [], [])
                if self.striker.done in struck:
                    os.read(self.striker.done, 1)
                    if kind == signal.SIGSTOP:
                        return self._resume(victim, order)
                answer = victim.answer()
                if not answer:
                    assert victim.child.wait() == -signal.SIGKILL
                    return order
                assert heard(answer, order, self.orders.model)

    def _resume(self, victim: ProcessWriter, order: Order) -> None:
        """Write meanwhile, then let the process go on to its answer."""
        self._write()
        victim.child.send_signal(signal.SIGCONT)
        answer = victim.answer()
        self.counts[answer.get("error", "in time")] += 1
        if "instant" in answer or answer["error"] in RETRYABLE:
            heard(answer, order, self.orders.model)
        else:
            assert answer["error"] == "lock", answer

    def _settle(self, copy: Path, in_doubt: Order | None) -> None:
        """Log the write of the writer that was killed before it answered, if it was committed."""
        unknown = reader.committed(copy) - self.orders.model.log.keys()
        assert len(unknown) <= (in_doubt is not None)
        self.counts["completed"] += len(unknown)
        self.orders.model.log.update((instant, in_doubt) for instant in unknown if in_doubt)


def play_s3_rounds(
    open_s3: Callable[..., AbstractContextManager[S3Endpoint]],
    folder: Path,
    *,
    kills: int = 0,
    stalls: int = 0,
    seed: int,
) -> Counter[str]:
    """Play rounds on a new table of a new server; return what happened."""
    striker = Striker()
    try:
        with open_s3(watch=striker.look) as server:
            played = S3Rounds(server, striker, folder, Orders(Model(), seed))
            played.play(kills, stalls)
    finally:
        striker.close()
    return played.counts

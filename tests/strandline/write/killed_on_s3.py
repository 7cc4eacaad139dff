"""Rounds on S3 in which a writer is killed (-9) at a drawn request, and another one goes on."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit import reader
from tests.kit.s3_server import S3Server, s3_server
from tests.strandline.write.round_writer import Order
from tests.strandline.write.rounds import (
    NAMES,
    Model,
    Orders,
    ProcessWriter,
    copy_tree,
    create,
    heard,
)
from tests.strandline.write.tables import OPTIONS, table

LOOKS = 200
"""Approximate number of looks of the server's watch during one write."""


@dataclass
class Killer:
    """Kills a process when the server has been watched for a number of times.

    Attributes:
        left: Looks until then; 0 for never.
        victim: The process.
    """

    left: int = 0
    victim: ProcessWriter | None = None

    def look(self) -> None:
        self.left -= 1
        if self.left == 0 and self.victim is not None:
            self.victim.child.kill()


@dataclass
class S3Kills:
    """Kills a writer in each round; the next write of another one repairs the table.

    Attributes:
        server: The server, watched by the killer.
        killer: Kills the victim.
        options: Options of both writers.
        orders: Makes the orders and has the model.
        counts: Writes in doubt that ``completed``, instants ``rolled back``.
    """

    server: S3Server
    killer: Killer
    options: Mapping[str, str]
    orders: Orders
    counts: Counter[str] = field(default_factory=Counter)

    def play(self, folder: Path, kills: int) -> None:
        storage = self.server.storage()
        base = storage.base_path
        create(base, self.orders, self.options, storage_options=self.server.options)
        for number in range(kills):
            in_doubt = self._kill(base)
            order = self.orders.one(NAMES[0], "file")
            options = {**OPTIONS, **self.options}
            access = self.server.options
            with WriteClient(LocalEngine(), base, options, storage_options=access) as client:
                result = client.insert(table(*order.rows))
            assert result.warnings == ()
            self.orders.model.log[result.instant] = order
            self.counts["rolled back"] += len(result.rolled_back)
            copy = folder / str(number)
            copy_tree(storage, copy)
            self._settle(copy, in_doubt)
            self.orders.model.check_end(copy, killed=number + 1)

    def _kill(self, base: str) -> Order:
        """Let a process write until it is killed; return the order that is in doubt."""
        with ProcessWriter.started(NAMES[1], base, self.options, self.server.options) as victim:
            self.killer.victim = victim
            self.killer.left = self.orders.random.randint(1, 2 * LOOKS)
            while True:
                order = self.orders.one(victim.name, "file")
                victim.send(order.line)
                answer = victim.answer()
                if not answer:
                    assert victim.child.wait() == -signal.SIGKILL
                    return order
                assert heard(answer, order, self.orders.model)

    def _settle(self, copy: Path, in_doubt: Order) -> None:
        """Log the write of the writer that was killed before it answered, if it was committed."""
        unknown = reader.committed(copy) - self.orders.model.log.keys()
        assert len(unknown) <= 1
        self.counts["completed"] += len(unknown)
        self.orders.model.log.update(dict.fromkeys(unknown, in_doubt))


def play_s3_kills(folder: Path, options: Mapping[str, str], kills: int, seed: int) -> Counter[str]:
    """Play rounds on a new table of a new server; return what happened."""
    killer = Killer()
    with s3_server(watch=killer.look) as server:
        played = S3Kills(server, killer, options, Orders(Model(), seed))
        played.play(folder, kills)
    return played.counts

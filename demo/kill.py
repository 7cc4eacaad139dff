"""Kills the timeline service under a running job: ``ServiceKiller``.

It strikes in the middle of a write: the rows have their keys, and the driver hasn't looked up their
partitions yet. ``LookupHook`` calls it there, in the driver, so the moment is the same in every
run, however fast the machine is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from demo.record import ServiceKill
from strandline.write.engine.base import Count, EngineContext
from timeline.errors import ServiceError

if TYPE_CHECKING:
    from strandline import TimelineService

D = TypeVar("D")


class LookupHook(EngineContext[D]):
    """A mix-in before an engine's class: calls a function before the driver looks up.

    Attributes:
        before_lookups: Called in the driver, once a write.
    """

    before_lookups: Callable[[], None]

    def persist_counted(
        self,
        data: D,
        count: Count,
        schema: pa.Schema,
        by: str | None = None,
        in_place_of: D | None = None,
    ) -> AbstractContextManager[tuple[D, pa.Table]]:
        self.before_lookups()
        return super().persist_counted(data, count, schema, by, in_place_of)


@dataclass(slots=True)
class ServiceKiller:
    """Kills the service's process in the batches of a plan; used by one thread.

    Attributes:
        plan: The batches.
        service: The service that the current write uses.
        batch: Number of the current batch.
        kills: Number of processes killed in it.
    """

    plan: ServiceKill
    service: TimelineService | None = None
    batch: int = 0
    kills: int = 0

    def begin(self, batch: int) -> None:
        """Begin a batch."""
        self.batch, self.kills = batch, 0

    def strike(self) -> None:
        """Kill the service if the current batch is one of the plan's."""
        if self.service is None:
            return
        if self.plan.is_lost_in(self.batch):
            self.kills += kill_for_good(self.service)
        elif self.batch == self.plan.once and not self.kills:
            self.kills += kill_once(self.service)


def kill_once(service: TimelineService) -> int:
    """Kill the service's process, which the driver then replaces; return 1."""
    os.kill(service.status()["pid"], signal.SIGKILL)
    return 1


def kill_for_good(service: TimelineService) -> int:
    """Kill the service's process and each replacement until the driver gives up.

    Returns:
        The number of processes killed.
    """
    killed: set[int] = set()
    while service.is_running:
        # A connection may be lost with the process that accepted it; the next one waits for the
        # replacement. At the end nothing listens any more.
        with suppress(ServiceError):
            pid = service.status()["pid"]
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    return len(killed)

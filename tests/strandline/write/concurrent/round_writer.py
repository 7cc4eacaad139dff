"""A writer that does what a test tells it, line by line, on a thread or as a process of its own.

It first prints ``{"at": "start"}``. Each line is an ``Order`` as JSON. The answer is a line of
JSON, too: ``instant`` and ``warnings`` of the write, or ``error`` (its code), ``retryable`` and
``text``. If the order says that the writers meet, the writer prints ``{"at": "inflight"}`` once its
instant is inflight, and writes its files only after another line.

Arguments of the process: base path, options, options of fsspec, and the faults of its storage as
pairs (number of the call, effect), each as JSON. At a crash the process kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import IO, Any

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from strandline.write.tasks.write_task import WriteTask
from tests.kit.storage.faulty_storage import Effect, Fault, FaultyStorage
from tests.strandline.write.tables import OPTIONS, table
from timeline.errors import StrandlineError
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage


@dataclass(frozen=True)
class Order:
    """One write.

    Attributes:
        operation: Name of the client's method.
        rows: The rows.
        meets: Whether the writer waits while its instant is inflight.
    """

    operation: str
    rows: tuple[dict[str, Any], ...]
    meets: bool = False

    @property
    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


class MeetingEngine(LocalEngine):
    """Calls a function before data files are written, when the instant is inflight."""

    def __init__(self) -> None:
        super().__init__()
        self.meet: Callable[[], None] = lambda: None

    def transform(self, data, task, schema):
        if isinstance(task, WriteTask):
            self.meet()
        return super().transform(data, task, schema)


def obey(
    orders: IO[str],
    answers: IO[str],
    base: str,
    options: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None = None,
    storage: Storage | None = None,
) -> None:
    """Write as ordered until the orders end."""

    def tell(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    def meet() -> None:
        tell({"at": "inflight"})
        orders.readline()

    engine = MeetingEngine()
    named = {**OPTIONS, **options}
    with WriteClient(
        engine, base, named, storage=storage, storage_options=storage_options
    ) as client:
        tell({"at": "start"})
        for line in iter(orders.readline, ""):
            order = Order(**json.loads(line))
            engine.meet = meet if order.meets else lambda: None
            try:
                result = getattr(client, order.operation)(table(*order.rows))
            except StrandlineError as error:
                tell({"error": error.code, "retryable": error.retryable, "text": str(error)})
            else:
                tell({"instant": result.instant, "warnings": result.warnings})


def main(base: str, options: str, storage_options: str, faults: str) -> None:
    plan = [Fault(at, Effect(effect)) for at, effect in json.loads(faults)]
    storage = FaultyStorage(LocalStorage(base), plan, end_this_process) if plan else None
    obey(sys.stdin, sys.stdout, base, json.loads(options), json.loads(storage_options), storage)


def end_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])

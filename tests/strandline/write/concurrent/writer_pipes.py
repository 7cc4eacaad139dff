"""The test's ends of the pipes of writers that run in a process or on a thread."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from tests.kit.servers.processes import Forked
from tests.strandline.write.concurrent import round_writer
from tests.strandline.write.concurrent.round_writer import obey


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

    child: Forked

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
        arguments = [json.dumps(each) for each in (options, storage_options, faults)]
        with Forked(round_writer.main, base, *arguments) as child:
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

"""Runs the same writes on several sides, in turns, and measures each.

Every side writes in a process of its own (``benchmarks.write.worker``), which stays for all rounds
and is warmed up first. In each round all sides make a table; each step of the writes is done by one
side after the other, beginning with another side each time, so that whatever else the machine does
meets all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.process_tree import cpu_seconds, peak_bytes, reset_peaks
from benchmarks.write.data import Step, totals
from benchmarks.write.fresh_job import ANSWER
from benchmarks.write.worker import TableSpec

_ROOT = Path(__file__).parents[2]


class RaceError(RuntimeError):
    """A side's process ended, or its table doesn't hold the rows."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One side with its settings.

    Attributes:
        name: Its name in the tables.
        side: Which ``benchmarks.write.worker.side`` writes.
        options: Options of its tables.
        conf: Settings of its Spark session.
    """

    name: str
    side: str
    options: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def process(self) -> tuple[str, str]:
        """The arguments of its process, which contestants of the same side and conf share."""
        return self.side, json.dumps(dict(self.conf), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured write.

    Attributes:
        wall_s: Seconds in the side's process.
        cpu_s: CPU seconds of the side's process and its descendants.
        peak_bytes: See ``process_tree.peak_bytes``.
        tasks: Number of Spark's tasks.
        load: The machine's load average before it.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    tasks: int
    load: float


Samples = dict[tuple[str, str], list[Sample]]
"""(Operation, contestant's name) → its samples in the order of rounds."""


class Worker:
    """The parent's end of a side's process.

    Attributes:
        pid: The process's id.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self._answer()

    @classmethod
    @contextmanager
    def started(
        cls, side: str, conf: str, log: Path, module: str = "benchmarks.write.worker"
    ) -> Iterator[Worker]:
        """Run the process within the block; its stderr goes to ``log``."""
        command = [sys.executable, "-m", module, side, conf]
        with (
            log.open("a") as errors,
            subprocess.Popen(
                command,
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            try:
                yield cls(process)
            except BaseException:
                process.terminate()  # it may be in the middle of a long write
                raise
            finally:
                # At the end of its orders it closes its tables; a JVM ends with its parent.
                process.communicate()

    def ask(self, **order: Any) -> dict[str, Any]:
        """Have an order carried out; return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def write(self, table: str, step: Step) -> Sample:
        """Have a step written; return what it took."""
        return self._measured(do="write", table=table, rows=str(step.rows), first=step.is_first)

    def compact(self, table: str) -> Sample:
        """Have a merge-on-read table compacted; return what it took."""
        return self._measured(do="compact", table=table)

    def stream(self, table: str, rows: Path, checkpoint: Path) -> Sample:
        """Have the files of a folder written by a stream, a batch each; return what it took."""
        return self._measured(do="stream", table=table, rows=str(rows), checkpoint=str(checkpoint))

    def _measured(self, **order: Any) -> Sample:
        pid, load = self.pid, os.getloadavg()[0]
        reset_peaks(pid)
        before = cpu_seconds(pid)
        found = self.ask(**order)
        spent = cpu_seconds(pid) - before
        return Sample(found["seconds"], spent, peak_bytes(pid), found["tasks"], load)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return dict(json.loads(line.removeprefix(ANSWER)))
        raise RaceError(f"{' '.join(map(str, self._process.args))} ended; its log says why")


def turns(names: Sequence[str], turn: int) -> list[str]:
    """Return the names in order, beginning with another one in each turn."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]


@dataclass(frozen=True, slots=True)
class Race:
    """The sides and their processes.

    Attributes:
        folder: For tables and logs.
        codec: Compression of all tables.
        contestants: Name → contestant.
        workers: Arguments of a process → its worker.
    """

    folder: Path
    codec: str
    contestants: Mapping[str, Contestant]
    workers: Mapping[tuple[str, str], Worker]

    @classmethod
    @contextmanager
    def of(cls, contestants: Sequence[Contestant], folder: Path, codec: str) -> Iterator[Race]:
        """Run the contestants' processes within the block."""
        with ExitStack() as stack:
            workers = {}
            for process in dict.fromkeys(each.process for each in contestants):
                log = folder / f"{process[0]}.log"
                workers[process] = stack.enter_context(Worker.started(*process, log))
            yield cls(folder, codec, {each.name: each for each in contestants}, workers)

    def run(self, steps: Sequence[Step], rounds: int, *, bloom: bool) -> Samples:
        """Have all steps written in each round; return what was measured.

        Raises:
            RaceError: A table doesn't hold the rows that the steps leave.
        """
        found: Samples = {}
        wanted = totals(steps)
        for number in range(rounds):
            for name in self.contestants:
                self._open(name, bloom=bloom)
            for turn, step in enumerate(steps):
                for name in turns(list(self.contestants), number + turn):
                    sample = self._worker(name).write(str(self._table(name)), step)
                    found.setdefault((step.operation, name), []).append(sample)
                    # A long race shows how far it is, and an interrupted one what it has measured.
                    print(
                        f"round {number + 1}: {step.operation}, {name}: {sample}", file=sys.stderr
                    )
            for name in self.contestants:
                self._check(name, wanted)
                shutil.rmtree(self._table(name))
        return found

    def warm_up(self, steps: Sequence[Step]) -> None:
        """Have some steps written by each side, unmeasured, so that code is loaded."""
        self.run(steps, 1, bloom=True)

    def _open(self, name: str, *, bloom: bool) -> None:
        options = dict(self.contestants[name].options)
        spec = TableSpec(str(self._table(name)), self.codec, bloom, options)
        self._worker(name).ask(do="open", spec=asdict(spec))

    def _check(self, name: str, wanted: Mapping[str, int]) -> None:
        worker = self._worker(name)
        table = str(self._table(name))
        found = worker.ask(do="digest", table=table)
        worker.ask(do="close", table=table)
        if found != wanted:
            raise RaceError(f"the table of {name} holds {found} instead of {dict(wanted)}")

    def _table(self, name: str) -> Path:
        return self.folder / name.replace(" ", "-").replace(",", "")

    def _worker(self, name: str) -> Worker:
        return self.workers[self.contestants[name].process]

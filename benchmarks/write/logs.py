"""Writes of merge-on-read tables: micro-batches, streams, compaction, requests, memory.

Micro-batches of 900 rows change two file groups of 120 MB; the table is made once, and each side
writes a copy of it, in turns: Hudi, this package, and this package with a copy-on-write table. The
same is done with 1 % of 5 million keys, after which each side compacts its own table, and with a
stream of a hundred such batches, during which each side compacts after every tenth. Fresh sessions
write the micro-batches, too, each in a JVM that has just started.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.object_store.delay import delayed
from benchmarks.object_store.s3_server import s3_process
from benchmarks.results.ratios import Bound, Ratio
from benchmarks.write import fresh
from benchmarks.write.data import (
    BULK_INSERT,
    ID,
    ONE_PERCENT,
    ORDERING,
    PARTITION,
    Step,
    changed,
    generated_steps,
    totals,
)
from benchmarks.write.race import RaceError, Sample, Samples, Worker, turns
from benchmarks.write.request_count import Ours, day, make_bucket
from benchmarks.write.worker import TableSpec
from strandline import LocalEngine, Table, WriteClient
from strandline.read.logs.temp_file import BUDGET_BYTES

HUDI: Final = "Hudi 1.2.0"
OURS: Final = "ours on Spark"
COPY: Final = "ours on Spark, copy-on-write"
MICRO: Final = "micro-batch of 900 rows"
COMPACTION: Final = "compaction of that"
STREAM: Final = "stream of 100 batches, compacted after every tenth"

MICRO_ROWS: Final = 900
_GROUPS: Final = 2
_GROUP_ROWS: Final = 1_050_000
"""Rows of a file group of about 120 MB."""
_BATCHES: Final = 5
_STREAM_BATCHES: Final = 100
_MOST_REQUESTS, _MOST_LISTS = 20, 4
_TIMES_BUDGET: Final = 10
_CHUNKS, _CHUNK_ROWS = 10, 50_000
LOGS: Final = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "false",
}
_COMPACTED_AFTER: Final = 10
COMPACTED_LOGS: Final = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": f"{_COMPACTED_AFTER}",
    "hoodie.datasource.compaction.async.enable": "false",
}
_CONF: Final = {"spark.sql.shuffle.partitions": "4"}


@dataclass(frozen=True, slots=True)
class Side:
    """Who writes.

    Attributes:
        kind: Which ``benchmarks.write.worker.sides`` writes.
        options: Options of its table.
    """

    kind: str
    options: Mapping[str, str]

    @property
    def has_logs(self) -> bool:
        """Whether its table is merge-on-read."""
        return self.options is LOGS


SIDES: Final = {HUDI: Side("hudi", LOGS), OURS: Side("spark", LOGS), COPY: Side("spark", {})}

GOALS: Final = {
    (MICRO, HUDI): 0.2,
    (MICRO, COPY): 0.3,
    (ONE_PERCENT, HUDI): 0.3,
    (COMPACTION, HUDI): 0.5,
    (STREAM, HUDI): 0.25,
}
"""(Operation, the other side) → most of its wall seconds."""


def log_figures(
    folder: Path, *, scale: float, rounds: int, codec: str, without: Sequence[str]
) -> Iterator[Ratio]:
    """Yield the figures of writes to logs.

    Args:
        folder: For rows, tables and logs of processes.
        scale: Share of the rows, and of the logs of the compacting task.
        rounds: How often each is measured.
        codec: Compression of the tables.
        without: Kinds of sides that are left out.
    """
    folder = folder / "logs"
    folder.mkdir()
    sides = {name: side for name, side in SIDES.items() if side.kind not in without}
    micro = micro_steps(folder, scale, _BATCHES)
    with LogRace.of(folder, codec, sides) as race:
        race.run("warm-up", _warm_up(folder), 1, compacts=True)
        samples = race.run("micro", micro, rounds, compacts=False)
        yield from ratios(samples)
        one_percent = generated_steps(folder, int(5_000_000 * scale))
        yield from ratios(race.run("keys", one_percent, rounds, compacts=True))
        streamed = folder / "streamed"
        streamed.mkdir()
        steps = micro_steps(streamed, scale, _STREAM_BATCHES)
        yield from ratios(race.stream(steps, rounds))
    yield from _fresh_figures(folder, micro, rounds, codec, sides)
    yield from request_figures(folder)
    yield from memory_figures(folder, scale)


def micro_steps(folder: Path, scale: float, batches: int) -> list[Step]:
    """Write a table of two file groups of 120 MB, and updates of 900 of its rows each."""
    count = max(2 * MICRO_ROWS, int(_GROUPS * _GROUP_ROWS * scale))
    path = folder / "groups.parquet"
    batch = 100_000
    with pq.ParquetWriter(path, _rows(np.arange(1)).schema) as writer:
        for first in range(0, count, batch):
            writer.write_table(_rows(np.arange(first, min(count, first + batch))))
    steps = [Step(BULK_INSERT, path, count)]
    for number in range(1, batches + 1):
        chosen = np.random.default_rng(number).choice(count, MICRO_ROWS, replace=False)
        file = folder / f"micro-{number}.parquet"
        pq.write_table(changed(_rows(chosen), number), file)
        steps.append(Step(MICRO, file, MICRO_ROWS))
    return steps


def _rows(numbers: np.ndarray) -> pa.Table:
    """Return a row of about 115 bytes for each number; its text can't be compressed."""
    drawn = np.random.default_rng(int(numbers[0])).bytes(48 * len(numbers)).hex()
    text = [drawn[at : at + 96] for at in range(0, len(drawn), 96)]
    return pa.table(
        {
            ID: [f"key-{each:010}" for each in numbers],
            PARTITION: [f"p{each % _GROUPS}" for each in numbers],
            ORDERING: np.zeros(len(numbers), np.int64),
            "amount": numbers,
            "text": text,
        }
    )


def _warm_up(folder: Path) -> list[Step]:
    warm = folder / "warm"
    warm.mkdir()
    return micro_steps(warm, 0.005, 2)


class LogRace:
    """The sides' processes, and copies of one table for each.

    Args:
        folder: For tables and logs.
        codec: Compression of the tables.
        sides: By name.
        workers: Side's name → its process.
    """

    def __init__(
        self,
        folder: Path,
        codec: str,
        sides: Mapping[str, Side],
        workers: Mapping[str, Worker],
    ) -> None:
        self._folder, self._codec, self._sides, self._workers = folder, codec, sides, workers

    @classmethod
    @contextmanager
    def of(cls, folder: Path, codec: str, sides: Mapping[str, Side]) -> Iterator[LogRace]:
        """Run the sides' processes within the block."""
        with ExitStack() as stack:
            conf = json.dumps(_CONF)
            of_kind = {
                kind: stack.enter_context(Worker.started(kind, conf, folder / f"{kind}.log"))
                for kind in dict.fromkeys(side.kind for side in sides.values())
            }
            yield cls(
                folder, codec, sides, {name: of_kind[side.kind] for name, side in sides.items()}
            )

    def run(self, name: str, steps: Sequence[Step], rounds: int, *, compacts: bool) -> Samples:
        """Have the steps after the first, which makes the table, written in each round.

        Raises:
            RaceError: A table doesn't hold the rows that the steps leave.
        """
        found: Samples = {}
        wanted = totals(list(steps))
        for number, tables in self._rounds(name, steps[0], rounds, list(self._workers)):
            for turn, step in enumerate(steps[1:]):
                for side in turns(list(tables), number + turn):
                    sample = self._workers[side].write(tables[side], step)
                    _note(found, step.operation, side, sample)
            with_logs = [side for side in tables if compacts and self._sides[side].has_logs]
            for side in turns(with_logs, number) if with_logs else ():
                sample = self._workers[side].compact(tables[side])
                _note(found, COMPACTION, side, sample)
                merged = Table(tables[side]).scan([ORDERING], read_optimized=True).to_arrow()
                _expect(side, wanted, merged)
            self._close(tables, wanted)
        return found

    def stream(self, steps: Sequence[Step], rounds: int) -> Samples:
        """Have the steps after the first written by one stream of each side with logs.

        Raises:
            RaceError: A table doesn't hold the rows that the steps leave, or a side didn't compact
                it after every tenth batch.
        """
        rows = self._folder / "stream-rows"
        rows.mkdir()
        for number, step in enumerate(steps[1:]):
            linked = rows / step.rows.name
            linked.hardlink_to(step.rows)
            os.utime(linked, (number, number))  # a stream begins with the oldest file
        found: Samples = {}
        wanted = totals(list(steps))
        sides = [side for side in self._workers if self._sides[side].has_logs]
        more = COMPACTED_LOGS
        for number, tables in self._rounds("stream", steps[0], rounds, sides, more):
            for side in turns(sides, number):
                checkpoint = Path(f"{tables[side]}-checkpoint")
                sample = self._workers[side].stream(tables[side], rows, checkpoint)
                _note(found, STREAM, side, sample)
                shutil.rmtree(checkpoint)
                made = _compactions(tables[side])
                if made != (due := len(steps[1:]) // _COMPACTED_AFTER):
                    raise RaceError(f"{side} compacted {made} times instead of {due}")
            self._close(tables, wanted)
        shutil.rmtree(rows)
        return found

    def _rounds(
        self,
        name: str,
        first: Step,
        rounds: int,
        sides: Sequence[str],
        more: Mapping[str, str] | None = None,
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield each round with the sides' tables, copies of one of the first step's rows."""
        made = {
            side: made_table(self._folder / f"{name}-{number}", first, self._spec(side))
            for number, side in enumerate(sides)
        }
        for number in range(rounds):
            tables = {side: str(self._copied(table)) for side, table in made.items()}
            for side, table in tables.items():
                self._workers[side].ask(do="open", spec=asdict(self._spec(side, table, more)))
            yield number, tables
        for table in made.values():
            shutil.rmtree(table)

    def _close(self, tables: Mapping[str, str], wanted: Mapping[str, int]) -> None:
        for side, table in tables.items():
            holds = self._workers[side].ask(do="digest", table=table)
            self._workers[side].ask(do="close", table=table)
            if holds != wanted:
                raise RaceError(f"the table of {side} holds {holds} instead of {wanted}")
            shutil.rmtree(table)

    def _spec(self, side: str, path: str = "", more: Mapping[str, str] | None = None) -> TableSpec:
        options = {**self._sides[side].options, **(more or {})}
        return TableSpec(path, self._codec, bloom=True, options=options)

    def _copied(self, table: Path) -> Path:
        copy = table.with_name(f"{table.name}-copy")
        shutil.copytree(table, copy)
        return copy


def made_table(path: Path, step: Step, spec: TableSpec) -> Path:
    """Make a table of a step's rows, each partition one file group, without Spark."""
    with WriteClient(LocalEngine(), path, spec.hudi_options()) as client:
        client.bulk_insert(pq.read_table(step.rows))
    return path


def _compactions(table: str) -> int:
    """Return how many compactions a table's timeline has, archived ones included."""
    history = Table(table).history()
    done = pc.and_(pc.equal(history["action"], "commit"), pc.equal(history["state"], "COMPLETED"))
    return int(pc.sum(done).as_py())


def _expect(side: str, wanted: Mapping[str, int], found: pa.Table) -> None:
    """Raise unless base files alone hold the rows, after a compaction."""
    holds = {"rows": found.num_rows, "ts": pc.sum(found[ORDERING]).as_py()}
    if holds != wanted:
        raise RaceError(f"base files of {side} hold {holds} instead of {wanted}")


def _note(found: Samples, operation: str, side: str, sample: Sample) -> None:
    found.setdefault((operation, side), []).append(sample)
    print(f"{operation}, {side}: {sample}", file=sys.stderr)


def ratios(samples: Samples) -> Iterator[Ratio]:
    """Yield the figures that compare our logs with the other sides, wall and CPU."""
    for operation in dict.fromkeys(operation for operation, _ in samples):
        ours = samples.get((operation, OURS), [])
        for other in (HUDI, COPY):
            theirs = samples.get((operation, other), [])
            if not ours or not theirs:
                continue
            bound = GOALS.get((operation, other))
            target = None if bound is None else Bound(ratio=bound)
            what = f"logs: {operation}, {OURS}"
            wall, partners = ([each.wall_s for each in side] for side in (ours, theirs))
            yield Ratio(what, wall, "s", other, partners, target)
            cpu, partners = ([each.cpu_s for each in side] for side in (ours, theirs))
            yield Ratio(f"{what}: CPU", cpu, "s", other, partners)


def _fresh_figures(
    folder: Path, steps: Sequence[Step], rounds: int, codec: str, chosen: Mapping[str, Side]
) -> Iterator[Ratio]:
    """Yield what micro-batches take in the first session of a fresh JVM."""
    first, *later = steps
    spec = TableSpec("", codec, bloom=True, options=LOGS)
    made = made_table(folder / "fresh", first, spec)
    found: dict[tuple[str, str], list[fresh.Spent]] = {}
    sides = [name for name, side in chosen.items() if side.has_logs]
    for number in range(rounds):
        for name in turns(sides, number):
            table = folder / f"fresh-{number}-{chosen[name].kind}"
            shutil.copytree(made, table)
            *spent, _ = fresh.job(fresh.SIDES[name], table, spec.hudi_options(), later)
            for write, took in (("first", spent[0]), ("later", fresh.mean(spent[1:]))):
                found.setdefault((write, name), []).append(took)
            shutil.rmtree(table)
    for write in ("first", "later"):
        if {(write, OURS), (write, HUDI)} <= found.keys():
            ours, theirs = found[write, OURS], found[write, HUDI]
            what = f"logs: fresh session, {write} {MICRO}, {OURS}"
            wall, partners = ([each.wall_s for each in side] for side in (ours, theirs))
            yield Ratio(what, wall, "s", HUDI, partners)
            cpu, partners = ([each.total_cpu_s for each in side] for side in (ours, theirs))
            yield Ratio(f"{what}: CPU", cpu, "s", HUDI, partners)


class LogUpserts(Ours):
    """Micro-batches that change the same rows of one file group, by a running client."""

    more: Mapping[str, Any] = LOGS

    def _rows(self, number: int) -> object:
        rows = day(0)
        at = rows.schema.get_field_index("ts")
        return rows.set_column(at, "ts", pa.array([number] * rows.num_rows))


def request_figures(folder: Path) -> Iterator[Ratio]:
    """Yield requests and lists of a warm micro-batch to an object store."""
    with (
        s3_process() as endpoint,
        delayed(endpoint, 0, folder / "requests.jsonl") as proxy,
    ):
        side = LogUpserts(proxy, make_bucket(endpoint, "logs"), service=True)
        try:
            *_, last = side.write(3 + _BATCHES)
        finally:
            side.close()
    lists = sum(seen.kind == "list" for seen in last.requests)
    logs = sum(".log." in seen.line for seen in last.requests if seen.kind == "write")
    if not logs:
        raise RaceError(f"the last batch wrote no log: {[seen.line for seen in last.requests]}")
    what = "logs: requests of a warm micro-batch"
    yield Ratio(what, [len(last.requests)], "", bound=Bound(value=_MOST_REQUESTS))
    yield Ratio(f"{what}: lists", [lists], "", bound=Bound(value=_MOST_LISTS))


_COMPACT: Final = """
import sys
from pathlib import Path
from strandline import LocalEngine, WriteClient

def mib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

options = {"hoodie.table.name": "t", "hoodie.embed.timeline.server": "false"}
with WriteClient(LocalEngine(cores=1), sys.argv[1], options) as client:
    client.schedule_compaction()
    before = mib("VmRSS")
    result = client.compact()
print(mib("VmHWM") - before, result.rows)
"""


def _make_logs(table: Path, least: int, *, shuffled: bool) -> int:
    """Make a table of one file group with logs, each of a tenth of the keys; return their bytes.

    Args:
        table: Where.
        least: Minimum size of the logs.
        shuffled: Each log has random keys, not consecutive ones; so the newest rows of consecutive
            keys are spread over all logs.
    """
    rows = _rows(np.arange(_CHUNKS * _CHUNK_ROWS))
    at = rows.schema.get_field_index(PARTITION)
    rows = rows.set_column(at, PARTITION, pa.array(["p0"] * rows.num_rows))
    # Of several groups each would have a part of the logs.
    options = {**LOGS, "hoodie.parquet.max.file.size": str(1 << 30)}
    spec = TableSpec("", "snappy", bloom=True, options=options)
    size = number = 0
    with WriteClient(LocalEngine(), table, spec.hudi_options()) as client:
        client.bulk_insert(rows)
        if len(groups := list(table.glob("p0/*.parquet"))) != 1:
            raise RaceError(f"{len(groups)} file groups instead of one: {groups}")
        while size < least:
            chunk = rows.slice(number % _CHUNKS * _CHUNK_ROWS, _CHUNK_ROWS)
            if shuffled:
                drawn = np.random.default_rng(number)
                chunk = rows.take(drawn.choice(rows.num_rows, _CHUNK_ROWS, replace=False))
            number += 1
            client.upsert(changed(chunk, number))
            size = sum(log.stat().st_size for log in table.rglob(".*.log.*"))
    return size


def memory_figures(folder: Path, scale: float) -> Iterator[Ratio]:
    """Yield the memory of a task that compacts logs of a tenth of the budget, and of ten times.

    The budget counts the bytes of the logs, and those of their decoded records again: so much may
    the whole task take beyond what the process has before, with the row group that it writes.
    """
    found = []
    large_times = _TIMES_BUDGET * scale
    kinds = (("a tenth of", 0.1, False), ("ten times", large_times, False))
    for name, times, shuffled in (*kinds, ("ten times, shuffled,", large_times, True)):
        table = folder / f"memory-{name}"
        size = _make_logs(table, int(times * BUDGET_BYTES), shuffled=shuffled)
        command = [sys.executable, "-c", _COMPACT, str(table)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peak, rows = said.split()
        print(f"{name} the budget: {size} bytes of logs, {rows} rows: {peak} MiB", file=sys.stderr)
        found.append((size / 2**20, float(peak)))
        shutil.rmtree(table)
    (small, little), *larger = found
    other = f"that of {small:,.0f} MiB"
    most = 2 * BUDGET_BYTES / 2**20
    for (large, peak), order in zip(larger, ("", ", shuffled keys"), strict=True):
        times = f"{large * 2**20 / BUDGET_BYTES:.1f} times the budget{order}"
        what = f"logs: memory of a task that compacts {large:,.0f} MiB of logs, {times}"
        yield Ratio(what, [peak], "MiB", other, [little], Bound(value=most))

"""Our writer and real Hudi take turns at a table whose columns change, checked after each step.

python -m tests.oracle.evolution.taking RELEASE FOLDER [TIMES [NUMBER [SEED]]]

takes all walks of a release, or the one with this number, each as often as ``TIMES`` says, with
other seeds each time. The tables stay in ``FOLDER``.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from strandline.records.meta_fields import META_FIELDS, PARTITION_PATH
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader
from tests.oracle.evolution.walks import OURS, THEIRS, WALKS, EvolvingWalk
from tests.oracle.hudi import Hudi, hudi_session, plain
from tests.strandline.write.evolution.checks import differences, differing_rows, shapes
from tests.strandline.write.evolution.walk import Walk, Write
from timeline.errors import InputError

FEWEST: Final = 4
"""At least one step in so many is a commit of ours, and one is Hudi's."""
SHOWN: Final = 6000
"""Characters of an error that are told."""
_PAYLOADS: Final = "org.apache.hudi.common.model."
_VECTORS: Final = "spark.sql.parquet.enableVectorizedReader"


class StrayedError(AssertionError):
    """The table isn't as the walk says; tells all that was done."""


class Writers:
    """Both writers of one table.

    Args:
        hudi: The session.
        path: The table's base path.
        walk: The walk.
        opened: Closes our clients, which stay open from one write to the next.
    """

    def __init__(self, hudi: Hudi, path: Path, walk: EvolvingWalk, opened: ExitStack) -> None:
        self._hudi, self._path, self._opened = hudi, path, opened
        self._clients: dict[tuple[tuple[str, str], ...], WriteClient] = {}
        self._ours = {
            **walk.rules.options(),
            "hoodie.write.table.version": str(walk.version),
            "hoodie.write.markers.type": "DIRECT",
            "hoodie.table.timeline.timezone": "UTC",
        }
        self._theirs = {
            **self._ours,
            "hoodie.datasource.write.precombine.field": self._ours["hoodie.table.ordering.fields"],
            "hoodie.write.auto.upgrade": "false",
            "hoodie.datasource.write.row.writer.enable": "false",
            "hoodie.metadata.index.column.stats.enable": "false",
        }
        del self._theirs["hoodie.table.ordering.fields"]
        if not hudi.is_1:
            mode = self._theirs.pop("hoodie.write.record.merge.mode")
            kind = "DefaultHoodieRecord" if mode.startswith("EVENT") else "OverwriteWithLatestAvro"
            self._theirs["hoodie.datasource.write.payload.class"] = f"{_PAYLOADS}{kind}Payload"

    def write(self, who: str, write: Write) -> None:
        """Write, or be refused."""
        act, errors = (
            (self._write_ours, (InputError,))
            if who == OURS
            else (self._write_theirs, (Py4JJavaError, CapturedException))
        )
        if not write.is_refused:
            act(write)
            return
        before, pending = reader.committed(self._path), reader.pending(self._path)
        try:
            act(write)
        except errors:
            assert reader.committed(self._path) == before, "a refused write was committed"
            if who == OURS:
                assert reader.pending(self._path) <= pending, "a refused write left an instant"
            return
        raise AssertionError("the write wasn't refused")

    def _write_ours(self, write: Write) -> None:
        options = tuple(sorted(write.options.items()))
        if options not in self._clients:
            client = WriteClient(LocalEngine(), self._path, {**self._ours, **write.options})
            self._clients[options] = self._opened.enter_context(client)
        getattr(self._clients[options], write.operation)(write.rows)

    def _write_theirs(self, write: Write) -> None:
        operation = {"hoodie.datasource.write.operation": write.operation}
        options = {**self._theirs, **write.options, **operation}
        self._hudi.write(write.rows, self._path, options, partitions=1)


def take(hudi: Hudi, evolving: EvolvingWalk, path: Path, report: Callable[[str], None]) -> None:
    """Take a walk.

    Raises:
        StrayedError: Something differs, or failed.
    """
    started, commits, trail = time.monotonic(), Counter[str](), list[str]()
    walk = evolving.begun()
    with ExitStack() as opened:
        writers = Writers(hudi, path, evolving, opened)
        for who, write in evolving.steps_of(walk):
            trail.append(f"{who} {write}")
            try:
                writers.write(who, write)
                walk.follow(write)
                # 0.15.0 gives the table the rows' order of columns, 1.2.0 keeps the table's.
                differing = [
                    *differences(walk, path, ordered=hudi.is_1),
                    *differences_for(hudi, walk, path),
                ]
            except Exception:  # whatever it is, the trail must be told
                differing = [traceback.format_exc()[-SHOWN:]]
            if differing:
                raise StrayedError(_told(evolving, trail, differing))
            commits[who] += not write.is_refused
    assert min(commits[OURS], commits[THEIRS]) * FEWEST >= evolving.steps, commits
    report(
        f"{evolving}, seed {evolving.seed}: {evolving.steps} steps in"
        f" {time.monotonic() - started:.0f} s, commits {dict(commits)},"
        f" {len(walk.columns)} columns and {len(walk.model.records)} rows left"
    )


def differences_for(hudi: Hudi, walk: Walk, path: Path) -> list[str]:
    """Return how what Hudi reads differs from a walk's table, in words."""
    from pyspark.sql.pandas.types import to_arrow_schema

    frame = hudi.frame(path)
    frame = frame.select(PARTITION_PATH, *(n for n in frame.columns if n not in META_FIELDS))
    rows = [plain(row) for row in frame.collect()]
    found = [(row.pop(PARTITION_PATH), row) for row in rows]
    # Hudi's relation has the partition column last.
    columns, expected = (
        shapes(each, ordered=False)
        for each in (to_arrow_schema(frame.drop(PARTITION_PATH).schema), walk.columns)
    )
    # It reads the partition column from the path, also of rows that stayed in another partition.
    records = [(place, {**row, "region": place}) for place, row in walk.model.records.values()]
    told = [f"Hudi: {each}" for each in differing_rows(found, records)]
    return (
        told if columns == expected else [f"Hudi's columns: {columns}; expected: {expected}", *told]
    )


def _told(evolving: EvolvingWalk, trail: Iterable[str], differing: Iterable[str]) -> str:
    return "\n".join(
        [
            f"{evolving}, seed {evolving.seed}:",
            *(f"  {number:2} {one}" for number, one in enumerate(trail)),
            *(f"  ! {one}" for one in differing),
        ]
    )


def take_all(
    hudi: Hudi,
    walks: Iterable[EvolvingWalk],
    folder: Path,
    times: int,
    report: Callable[[str], None],
) -> None:
    """Take walks several times, with other seeds each time."""
    # The vectorised reader refuses nested columns whose types have changed.
    hudi.spark.conf.set(_VECTORS, "false")
    try:
        for walk in walks:
            for number in range(times):
                seeded = replace(walk, seed=walk.seed + 1000 * number)
                take(hudi, seeded, folder / str(seeded.seed), report)
    finally:
        hudi.spark.conf.unset(_VECTORS)


def main(release: str, folder: str, times: str = "1", number: str = "", seed: str = "") -> None:
    """Take the walks of a release."""
    walks = WALKS[release] if not number else WALKS[release][int(number) : int(number) + 1]
    if seed:
        walks = tuple(replace(walk, seed=int(seed)) for walk in walks)
    with hudi_session(Path(folder) / "warehouse", release) as hudi:
        take_all(hudi, walks, Path(folder), int(times), _say)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

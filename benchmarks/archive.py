"""Archival of many instants, beside Hudi's archiver: ``python -m benchmarks.archive``.

The table has commits with their metadata, but no data files. Each round archives a copy of it by
this package and one by Hudi's ``TimelineArchiver``, called by its write client in a JVM with local
Spark that stays; Hudi's first round, which compiles, is shown apart. CPU is that of the process and
its descendants. ``--no-java`` leaves Hudi's side out.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.process_tree import cpu_seconds
from benchmarks.results.ratios import Bound, Ratio, detail_table, seconds, table
from strandline.table_services.archive.policy import archive_settings
from strandline.table_services.archive.run import Archiver
from strandline.table_services.clean.policy import CleanSettings
from timeline.clock import SystemClock, TimeGenerator, format_instant_time
from timeline.instant import COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata import codec
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config

START_MS: Final = 1_700_000_000_000
SCHEMA: Final = '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[]}'
KEPT: Final = 20
VERSIONS: Final = (6, 9)
Archive = Callable[[Path], object]


def generate(base: Path, version: int, instants: int, files: int) -> None:
    """Write a timeline of commits that each wrote some files."""
    storage = LocalStorage(str(base))
    config = TableConfig.create(
        name="t", version=version, record_key_fields=("id",), ordering_fields=("ts",)
    )
    write_table_config(storage, config, create=True)
    meta = TableMetaClient.open(storage)
    folder = base / meta.layout.folder
    drawn = random.Random(version)
    for number in range(instants):
        began, done = (
            format_instant_time(START_MS + 2000 * number + late, "UTC") for late in (0, 900)
        )
        stats = tuple(_stat(uuid.UUID(int=drawn.getrandbits(128)), began) for _ in range(files))
        commit = CommitMetadata({"p=1": stats}, {"schema": SCHEMA}, "UPSERT")
        for state in (State.REQUESTED, State.INFLIGHT):
            (folder / meta.layout.file_name(Instant(began, COMMIT, state))).touch()
        name = meta.layout.file_name(Instant(began, COMMIT, State.COMPLETED, done))
        (folder / name).write_bytes(codec.encode(commit, version))


def _stat(file: uuid.UUID, instant: str) -> WriteStat:
    return WriteStat(
        file_id=f"{file}-0",
        path=f"p=1/{file}-0_0-0-0_{instant}.parquet",
        partition_path="p=1",
        num_writes=1000,
        file_size_in_bytes=1 << 20,
    )


def ours(base: Path) -> None:
    """Archive a table by this package."""
    meta = TableMetaClient.open(LocalStorage(str(base)))
    times = TimeGenerator(SystemClock(), "UTC")
    Archiver(meta, times, archive_settings(KEPT, KEPT + 10), CleanSettings()).run()


@contextmanager
def hudis(folder: Path) -> Iterator[Archive]:
    """Start Hudi on Spark; yield what archives a table by its write client."""
    from tests.oracle.hudi import hudi_session  # noqa: PLC0415 - needs pyspark

    with hudi_session(folder / "warehouse") as hudi:
        clients = hudi.jvm.org.apache.hudi.DataSourceUtils
        context: Any = hudi.spark

        def archive(base: Path) -> None:
            version = TableMetaClient.open(LocalStorage(str(base))).config.version
            options = {
                "hoodie.keep.min.commits": str(KEPT),
                "hoodie.keep.max.commits": str(KEPT + 10),
                "hoodie.datasource.write.recordkey.field": "id",
                "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
                "hoodie.embed.timeline.server": "false",
                "hoodie.metadata.enable": "false",
                "hoodie.table.name": "t",
                "hoodie.write.auto.upgrade": "false",
                "hoodie.write.table.version": str(version),
            }
            client = clients.createHoodieClient(context._jsc, SCHEMA, str(base), "t", options)
            client.archive()
            client.close()

        yield archive


def measured(table_path: Path, archive: Archive) -> tuple[float, float]:
    """Return wall and CPU seconds of archiving a copy of a table."""
    copy = table_path.with_name("copy")
    # Nothing writes into an instant's file, so that a link is a copy.
    shutil.copytree(table_path, copy, copy_function=os.link)
    before = cpu_seconds(os.getpid())
    wall = seconds(lambda: archive(copy))
    cpu = cpu_seconds(os.getpid()) - before
    left = len(TableMetaClient.open(LocalStorage(str(copy))).active_timeline())
    assert left == KEPT, f"{left} instants are left"
    shutil.rmtree(copy)
    return wall, cpu


def measure(
    table_path: Path, what: str, rounds: int, theirs: Archive | None
) -> tuple[list[Ratio], tuple[str, ...] | None]:
    """Return the rows of a table, and that of Hudi's first round."""
    cold = None if theirs is None else measured(table_path, theirs)
    mine, other = [], []
    for _ in range(rounds):
        mine.append(measured(table_path, ours))
        if theirs is not None:
            other.append(measured(table_path, theirs))
    found = []
    for at, unit in enumerate(("", ": CPU")):
        partners = [each[at] for each in other]
        bound = Bound(ratio=1.0) if partners else None
        name = "Hudi" if partners else ""
        found.append(Ratio(what + unit, [e[at] for e in mine], "s", name, partners, bound))
    return found, cold and (what, *(f"{value:.3g}" for value in cold))


def main(arguments: Sequence[str] | None = None) -> None:
    """Archive tables of both layouts and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.archive", description=__doc__)
    parser.add_argument("--instants", type=int, default=10_000, help="commits that are archived")
    parser.add_argument("--files", type=int, default=10, help="files that each commit wrote")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the tables are made")
    parser.add_argument("--no-java", action="store_true", help="leave Hudi's side out")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        if options.no_java:
            _report(Path(name), options, None)
            return
        with hudis(Path(name)) as theirs:
            _report(Path(name), options, theirs)


def _report(folder: Path, options: argparse.Namespace, theirs: Archive | None) -> None:
    rows: list[Ratio] = []
    first: list[tuple[str, ...]] = []
    for version in VERSIONS:
        table_path = folder / f"v{version}" / "t"
        generate(table_path, version, options.instants + KEPT, options.files)
        what = f"version {version}, {options.instants:,} instants"
        found, cold = measure(table_path, what, options.rounds, theirs)
        rows += found
        first += [] if cold is None else [cold]
        shutil.rmtree(table_path)
    print(f"load average {os.getloadavg()[0]:.1f}\n\n{table(rows)}")
    if first:
        print("\n" + detail_table(("Hudi's first round", "wall s", "CPU s"), first))


if __name__ == "__main__":
    main()

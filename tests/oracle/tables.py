"""The tables that the oracle tests share: rows, options for both writers, and a reader of ours."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.oracle.hudi import Hudi, Rows, rows_of
from timeline.storage.open import open_storage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("note", pa.string()),
    ]
)
AVRO: Final = (
    '{"type":"record","name":"rides_record","namespace":"hoodie.rides","fields":['
    + ",".join(
        f'{{"name":"{name}","type":["null","{kind}"],"default":null}}'
        for name, kind in (
            ("id", "string"),
            ("city", "string"),
            ("ts", "long"),
            ("fare", "double"),
            ("note", "string"),
        )
    )
    + "]}"
)
"""The schema of Hudi's write client."""
CITIES = ("amsterdam", "bern", "são paulo/b=1 %")


def rides(ids: Iterable[int], ts: int, **changes: Any) -> pa.Table:
    """Return one row an id; an id always lies in the same city."""
    rows = [
        {
            "id": f"r{number:04}",
            "city": CITIES[number % len(CITIES)],
            "ts": ts,
            "fare": number + ts / 8,
            "note": None if number % 5 == 0 else f"at {ts}",
        }
        | changes
        for number in ids
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


FIRST = rides(range(20), ts=5)
"""The rows that the fixture ``path`` inserts."""


def ours(version: int, **more: str) -> dict[str, str]:
    """Return the options of a table of ours; ``hoodie_x_y`` is the option ``hoodie.x.y``."""
    return {
        "hoodie.table.name": "rides",
        "hoodie.write.table.version": str(version),
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.clean.automatic": "false",
        "hoodie.embed.timeline.server": "false",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def theirs(version: int, operation: str, **more: str) -> dict[str, str]:
    """Return the options with which Hudi writes the same table."""
    return {
        **{name: value for name, value in ours(version).items() if "ordering" not in name},
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.operation": operation,
        "hoodie.write.auto.upgrade": "false",
        "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.timeline.timezone": "UTC",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def services(hudi: Hudi, path: Path, version: int, **more: str) -> Any:
    """Return Hudi's write client of a copy-on-write table, whose table services are called."""
    spark: Any = hudi.spark
    options = theirs(
        version,
        "upsert",
        hoodie_datasource_write_table_type="COPY_ON_WRITE",
        hoodie_metadata_enable="false",
        **more,
    )
    return hudi.jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
        spark._jsc, AVRO, str(path), "rides", options
    )


def writer(path: Path, options: Mapping[str, str], **more: Any) -> WriteClient:
    """Return a client of ours on the local engine."""
    return WriteClient(LocalEngine(), str(path), options, **more)


def die_before_completion(
    path: Path, options: Mapping[str, str], data: pa.Table, operation: str = "upsert"
) -> None:
    """Write, and die when all data files are written and the instant is about to be completed."""
    trial = path.with_name(path.name + "-trial")
    shutil.copytree(path, trial)
    watched = FaultyStorage(open_storage(str(trial)))
    with writer(trial, options, storage=watched) as client:
        getattr(client, operation)(data)
    shutil.rmtree(trial)
    at = next(
        number
        for number, (kind, name) in enumerate(watched.log, 1)
        if kind == "create" and name.endswith((".commit", ".deltacommit", ".replacecommit"))
    )
    doomed = FaultyStorage(open_storage(str(path)), [Fault(at, Effect.CRASH_BEFORE)])
    try:
        with writer(path, options, storage=doomed) as client:
            getattr(client, operation)(data)
    except Crash:
        # This process lives on, so only its heartbeat's age tells that the writer is dead.
        for heartbeat in (path / ".hoodie" / ".heartbeat").iterdir():
            os.utime(heartbeat, (0, 0))
        return
    raise AssertionError("the writer was to die")


def view_of(path: Path) -> TableView:
    """Return a view of ours, with no service between."""
    return TableView(open_storage(str(path)))


def newest_rows(path: Path, *, by: str = "id") -> Rows:
    """Return the table's rows as a new view of ours finds them."""
    return our_rows(path, LocalView.newest(view_of(path)), by=by)


def check(hudi: Hudi, path: Path, expected: Rows) -> None:
    """Compare Hudi's rows of a table, and those of a new view of ours, with the expected ones."""
    assert hudi.read(path) == expected
    assert newest_rows(path) == expected


def our_rows(path: Path, view: LocalView, *, by: str = "id") -> Rows:
    """Return the table's rows: the files that our view names, read with pyarrow."""
    view.load_all_partitions()
    files = view.all_latest_base_files()
    tables = [pq.read_table(path / file.path, partitioning=None) for file in files]
    return sorted(
        itertools.chain(*(rows_of(table, by=by) for table in tables)), key=lambda r: r[by]
    )

"""Small writes for the tests of the write client: few rows, small filters, no service."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from fsview.load.metadata_table import FOLDER
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.patience import PATIENCE_S
from timeline.storage.local import LocalStorage
from timeline.table.config_file import read_table_config, write_table_config
from timeline.table.property_name import METADATA_PARTITIONS

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("name", pa.string())]
)
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.clean.parallelism": "1",
    # The writers of a test share a clock, so no write waits for another clock to catch up.
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
    "hoodie.parquet.compression.codec": "uncompressed",
    # A service that is slow on a busy machine, or is being replaced, is waited for.
    "strandline.remote.connect.timeout.secs": str(PATIENCE_S),
    "strandline.remote.read.timeout.secs": str(PATIENCE_S),
    "strandline.remote.first.answer.secs": str(PATIENCE_S),
    "hoodie.filesystem.view.remote.timeout.secs": str(round(PATIENCE_S)),
}


def row(key: str, region: str = "eu", ts: int = 1, name: str = "") -> dict:
    return {"id": key, "region": region, "ts": ts, "name": name or f"{key}@{ts}"}


def table(*rows: dict, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def client(base, storage=None, engine=None, clock=None, **options) -> WriteClient:
    """A client without service and clean; ``options`` with ``__`` for ``.`` are put on top."""
    names = {name: name.replace("__", ".") for name in options}
    changed = {
        name if name.startswith("strandline.") else f"hoodie.{name}": options[given]
        for given, name in names.items()
    }
    chosen = {k: v for k, v in {**OPTIONS, **changed}.items() if v is not None}
    engine = engine or LocalEngine(2, cores=1)  # so that its calls have one order
    return WriteClient(engine, str(base), chosen, storage=storage, clock=clock)


_STORED: dict[str, dict[str, bytes | None]] = {}
"""What was upserted → the table's files by name; folders have no bytes."""


def stored(base: Path, *batches: pa.Table, **options) -> Path:
    """Make a table by upserts with a ``client`` of these options; return its base path.

    Equal ones are written once in a process, and copied: that takes a twentieth of the time.
    """
    key = repr(([batch.to_pylist() for batch in batches], options))
    if key not in _STORED:
        with client(base, **options) as c:
            for batch in batches:
                c.upsert(batch)
        found = sorted(base.rglob("*"))
        _STORED[key] = {
            str(path.relative_to(base)): None if path.is_dir() else path.read_bytes()
            for path in found
        }
        return base
    base.mkdir(parents=True, exist_ok=True)
    for name, content in _STORED[key].items():
        if content is None:
            (base / name).mkdir()
        else:
            (base / name).write_bytes(content)
    return base


def change_properties(base, **changes):
    """Set properties (``__`` for a dot) from outside."""
    path = base / ".hoodie" / "hoodie.properties"
    text = path.read_text()
    for name, value in changes.items():
        key = f"hoodie.{name.replace('__', '.')}"
        text = "\n".join(line for line in text.splitlines() if not line.startswith(key + "="))
        text += f"\n{key}={value}\n"
    path.write_text(text)


def give_metadata_table(base: Path) -> None:
    """Name a metadata table in the properties, and make a folder that looks like one."""
    storage = LocalStorage(str(base))
    config = read_table_config(storage).with_properties({METADATA_PARTITIONS: "column_stats,files"})
    write_table_config(storage, config, create=False)
    for name in ("hoodie.properties", "timeline/1.deltacommit"):
        storage.replace(f"{FOLDER}/.hoodie/{name}", b"x")
    storage.replace(f"{FOLDER}/files/files-0000-0_0-0-0_1.hfile", b"x")

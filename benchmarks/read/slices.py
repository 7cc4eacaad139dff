"""The cost of a slice with a log beside its base file alone.

A slice is read: a base file, and a log of Avro records that update some of its rows. In turns with
it are read the base file alone, and the slice by the package ``hudi`` (hudi-rs); pyarrow reads the
Parquet file in turns with the base file; the log's block is decoded in turns with fastavro, which
always decodes all columns. Figures are CPU seconds of the process, with all threads.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.results.ratios import Ratio, cpu_ratio
from fsview.model.file_group import BaseFile, FileSlice, LogFile
from strandline.read.instants import Archive, CommittedInstants, NeededBytes
from strandline.read.logs.block_rows import data_pieces
from strandline.read.logs.log_blocks import LogReader
from strandline.read.pinned_rows import SliceReader, SliceRules
from strandline.records.file.base_file_writer import BaseFileWriter
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY, with_meta_fields
from strandline.records.schema.avro_schema import arrow_to_avro, avro_with_meta_fields
from tests.kit.formats.hfile import log_block
from timeline.encoding import avro
from timeline.encoding.log_block import (
    AVRO_DATA,
    INSTANT_TIME,
    SCHEMA,
    LogBlock,
    avro_values,
    scan_blocks,
)
from timeline.instant import COMMIT, DELTA_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline

FIRST: Final = "20250101000000000"
SECOND: Final = "20250102000000000"
FILE_ID: Final = "f-0"
ONE: Final = [RECORD_KEY, "price"]
OWN: Final = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("price", pa.float64()),
        ("word", pa.string()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("n", pa.int32()),
        ("flag", pa.bool_()),
        ("place", pa.struct([("x", pa.float64()), ("city", pa.string())])),
        ("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)


def generated(count: int, seed: int, keys: np.ndarray) -> dict[str, list[Any]]:
    """Return rows with these keys, by columns; a tenth of the numbers and texts are null."""
    random = np.random.default_rng(seed)
    words = np.array(["alpha", "beta", "gamma", "delta", "epsilon"])

    def some(values: Sequence[Any]) -> list[Any]:
        return [
            None if gone else value
            for value, gone in zip(values, random.random(count) < 0.1, strict=True)
        ]

    names = [f"key-{key:012d}" for key in keys]
    cities = [f"city {number}" for number in random.integers(0, 1000, count)]
    places = zip(random.random(count).tolist(), cities, strict=True)
    return {
        "_hoodie_commit_time": [FIRST] * count,
        "_hoodie_commit_seqno": [f"{FIRST}_0_{key}" for key in keys],
        RECORD_KEY: names,
        PARTITION_PATH: [""] * count,
        "_hoodie_file_name": [FILE_ID] * count,
        "id": names,
        "ts": random.integers(1, 1000, count).tolist(),
        "price": some(random.random(count).tolist()),
        "word": some(words[random.integers(0, 5, count)].tolist()),
        "text": some([f"text number {n}" for n in random.integers(0, 10**7, count)]),
        "at": some((1_700_000_000_000_000 + random.integers(0, 10**12, count)).tolist()),
        "n": some(random.integers(-(10**6), 10**6, count).tolist()),
        "flag": some((random.random(count) < 0.5).tolist()),
        "place": some([{"x": x, "city": city} for x, city in places]),
        "tags": some([[f"tag {n}"] * (n % 4) for n in range(count)]),
    }


class Bench:
    """A slice in a folder, which is read in several ways."""

    def __init__(self, folder: str, rows: int, updates: int) -> None:
        self._folder = folder
        self._storage = LocalStorage(folder)
        config = TableConfig.create(
            name="bench",
            version=9,
            table_type=MERGE_ON_READ,
            record_key_fields=("id",),
            partition_fields=(),
            ordering_fields=("ts",),
        )
        write_table_config(self._storage, config, create=True)
        self._rules = SliceRules(with_meta_fields(OWN), config)
        own_avro = arrow_to_avro(OWN, "bench")
        self._avro = avro_with_meta_fields(own_avro)
        keys = np.arange(rows)
        self._base = f"{FILE_ID}_0-0-0_{FIRST}.parquet"
        with self._storage.create_stream(self._base) as stream:
            writer = BaseFileWriter(stream, own_avro)
            columns = generated(rows, 1, keys)
            arrays = [pa.array(columns[field.name], field.type) for field in self._rules.schema]
            writer.write(pa.Table.from_arrays(arrays, schema=self._rules.schema))
            writer.close()
        chosen = np.sort(np.random.default_rng(2).choice(keys, updates, replace=False))
        self._log = f".{FILE_ID}_{SECOND}.log.1_0-0-0"
        self._storage.create(self._log, self._block(generated(updates, 3, chosen)))
        (block,) = scan_blocks(self._storage.read(self._log))
        assert isinstance(block, LogBlock)
        self._decoded = block
        base = BaseFile("", self._base, self._size(self._base), 0, FILE_ID, FIRST)
        log = LogFile("", self._log, self._size(self._log), 0, FILE_ID, SECOND, 1, "0-0-0")
        self._plain = FileSlice("", FILE_ID, FIRST, base)
        self._logged = FileSlice("", FILE_ID, FIRST, base, (log,))
        completed = (
            Instant(FIRST, COMMIT, State.COMPLETED, FIRST),
            Instant(SECOND, DELTA_COMMIT, State.COMPLETED, SECOND),
        )
        self._timeline = Timeline.of(completed)

    def figures(self, rounds: int) -> list[Ratio]:
        """Return the figures; each pair is measured in turns."""
        import_module("hudi")  # before a clock runs
        base = "base file alone"

        ratio = partial(cpu_ratio, rounds)
        return [
            ratio("base file", self._alone, "pyarrow", self._by_pyarrow, 1.1),
            ratio("merged, all columns", self.merged, base, self._alone),
            ratio("merged, all columns", self.merged, "hudi-rs", self.by_hudi, 2),
            ratio(
                "merged, key and one column",
                lambda: self.merged(ONE),
                f"{base}, the same columns",
                lambda: self._alone(ONE),
                1.3,
            ),
            ratio("log decoded, all columns", self._decode, "fastavro", self._by_fastavro),
            ratio(
                "log decoded, key and one column",
                lambda: self._decode(ONE),
                "fastavro",
                self._by_fastavro,
            ),
        ]

    def _block(self, columns: dict[str, list[Any]]) -> bytes:
        names = list(columns)
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True))
        records = [avro.write_record(self._avro, row) for row in rows]
        content = struct.pack(">ii", 3, len(records))
        content += b"".join(struct.pack(">i", len(record)) + record for record in records)
        return log_block(AVRO_DATA, {INSTANT_TIME: SECOND, SCHEMA: self._avro}, content)

    def _size(self, name: str) -> int:
        return Path(self._folder, name).stat().st_size

    def _read(self, found: FileSlice, columns: Sequence[str] | None) -> pa.Table:
        meta = TableMetaClient.open(self._storage)
        archive = Archive(meta)
        committed = CommittedInstants(self._timeline, archive)
        needed = NeededBytes(meta, self._timeline, archive)
        logs = LogReader(self._storage, committed, needed)
        reader = SliceReader(self._storage, self._rules, logs, columns)
        return pa.Table.from_batches(reader.rows(found))

    def _alone(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._read(self._plain, columns)

    def merged(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of the slice."""
        return self._read(self._logged, columns)

    def _by_pyarrow(self) -> pa.Table:
        return pq.ParquetFile(Path(self._folder, self._base)).read()

    def by_hudi(self) -> pa.Table:
        """Return the rows of the slice as hudi-rs reads them."""
        from hudi import HudiFileGroupReader  # noqa: PLC0415 - only here

        reader = HudiFileGroupReader(self._folder)
        return pa.Table.from_batches([reader.read_file_slice_from_paths(self._base, [self._log])])

    def _decode(self, columns: Sequence[str] | None = None) -> pa.Table:
        return pa.concat_tables(data_pieces(self._decoded, columns or self._rules.schema.names))

    def _by_fastavro(self) -> list[Any]:
        schema = fastavro.parse_schema(json.loads(self._avro))
        return [
            fastavro.schemaless_reader(io.BytesIO(record), schema, None)
            for record in avro_values(self._decoded)
        ]

"""Time and memory for reading a metadata table, against the package ``hudi``.

It makes a base file of the partition ``files`` as Hudi writes it, and reads it in one process for
each reader: into Python values, and into packed partitions. ``hudi`` must be installed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from fsview.load.metadata_table import FILES, FOLDER, newest_slice, read
from fsview.load.source_choice import uncertainty
from fsview.sync.metadata_reader import snapshot_of
from tests.kit.formats.hfile import hfile
from tests.kit.tables import golden
from timeline.encoding import avro
from timeline.encoding.hfile import HFile
from timeline.meta_client import TableMetaClient
from timeline.metadata.files_record import ALL_PARTITIONS, base_records
from timeline.storage.local import LocalStorage

SCENARIO, STEP = "mdt_mor_v9", 12
"""A real table, with both timelines in step, whose base file is replaced."""

INSTANT = "20261121082727123"

Reader = Callable[[Path], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        table = golden.build(SCENARIO, STEP, Path(directory) / "table")
        path = base_file(table)
        path.write_bytes(made(path.read_bytes(), args.files, args.partitions))
        size = path.stat().st_size
        print(f"{args.files:,} files in {args.partitions:,} partitions: {size:,} bytes")
        for name, reader in READERS.items():
            cpu, memory = in_a_process(reader, table)
            each = cpu / args.files * 1e6
            print(f"{name}: {cpu:.2f} s CPU, {each:.2f} us a file, {memory:.0f} MB at most")


def base_file(table: Path) -> Path:
    """Return the newest base file."""
    found = (table / FOLDER / FILES).glob("[!.]*.hfile")
    return max(found, key=lambda path: path.name.rpartition("_")[2])


def made(real: bytes, files: int, partitions: int) -> bytes:
    """Return a base file of ``files`` entries, with the schema of a real one."""
    schema = HFile(real, source="a base file").info[b"schema"].decode()
    rng = random.Random(1)
    records = {
        f"dt=2024-{number:05d}": {
            f"{uuid.UUID(int=rng.getrandbits(128))}-0_{file}-1-{number}_{INSTANT}.parquet": file + 1
            for file in range(files // partitions)
        }
        for number in range(partitions)
    }
    records[ALL_PARTITIONS] = dict.fromkeys(records, 0)
    entries = [(key.encode(), value(schema, key, sizes)) for key, sizes in sorted(records.items())]
    return hfile(entries, {b"schema": schema.encode()}, per_block=1)


def value(schema: str, key: str, files: dict[str, int]) -> bytes:
    """Return an encoded record; the unions after its map are null, one byte each."""
    fields = json.loads(schema)["fields"]
    until = [field["name"] for field in fields].index("filesystemMetadata") + 1
    sizes = {name: {"size": size, "isDeleted": False} for name, size in files.items()}
    record = {"key": "", "type": 1 if key == ALL_PARTITIONS else 2, "filesystemMetadata": sizes}
    short = json.dumps({**json.loads(schema), "fields": fields[:until]})
    return avro.write_record(short, record) + b"\0" * (len(fields) - until)


def in_a_process(reader: Reader, table: Path) -> tuple[float, float]:
    """Return the CPU seconds of a reader and the growth of its process in MB."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (reader, table))


def measured(reader: Reader, table: Path) -> tuple[float, float]:
    before, start = peak_mb(), time.process_time()
    found = reader(table)
    cpu, after = time.process_time() - start, peak_mb()
    assert found
    return cpu, after - before


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def ours(table: Path) -> object:
    return dict(base_records(base_file(table).read_bytes(), "a base file"))


def ours_packed(table: Path) -> object:
    client = TableMetaClient.open(LocalStorage(str(table)))
    snapshot = snapshot_of(client)
    assert uncertainty(snapshot) is None
    return read(client, snapshot, newest_slice(client, snapshot))


def hudis(table: Path) -> object:
    from hudi import HudiFileGroupReader  # noqa: PLC0415 - only here

    reader = HudiFileGroupReader(str(table / FOLDER))
    batch = reader.read_file_slice_from_paths(f"{FILES}/{base_file(table).name}", [])
    columns = (batch.column(name).to_pylist() for name in ("key", "filesystemMetadata"))
    return {
        key: {name: None if file["isDeleted"] else file["size"] for name, file in files}
        for key, files in zip(*columns, strict=True)
    }


READERS: dict[str, Reader] = {
    "ours, as Python's values": ours,
    "ours, packed": ours_packed,
    "hudi, as Python's values": hudis,
}

if __name__ == "__main__":
    main()

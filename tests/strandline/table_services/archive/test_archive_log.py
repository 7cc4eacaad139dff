"""What we put into the archive of version 6."""

from collections.abc import Iterator
from typing import Any

from strandline.table_services.archive.content import contents, files_by_key, key_of
from strandline.table_services.archive.log_archive import ArchiveLog, records_of
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from timeline.archive.log_archive import read_log_file
from timeline.encoding import avro
from timeline.encoding.log_block import SCHEMA, avro_values, read_blocks
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage

SCENARIO = "archival_cow_v6"
FOLDER = ".hoodie/history"


def log_files(storage: Storage) -> list[str]:
    found = (each.name for each in storage.list(FOLDER))
    return [f"{FOLDER}/{name}" for name in found if name.startswith(".commits_.archive.")]


def records(storage: Storage) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield time and state with the record of each state, without the time that it was made."""
    for path in log_files(storage):
        for block in read_blocks(storage.read(path), path):
            for data in avro_values(block):
                record: Any = avro.read_record(block.header[SCHEMA], data)
                record.pop("stateTransitionTime")
                yield (record["commitTime"], record["actionState"]), record


def test_our_records_are_those_that_hudi_wrote() -> None:
    ever: dict[str, bytes] = {}
    for step in golden.steps(SCENARIO):
        ever |= golden.contents(SCENARIO, step)
    hudis, active = MemoryStorage(), MemoryStorage()
    for path, data in ever.items():
        (hudis if path.startswith(FOLDER) else active).create(path, data)
    meta = TableMetaClient.open(active)
    archived = {key_of(i) for path in log_files(hudis) for i in read_log_file(hudis, path)}
    files = [each for key, each in files_by_key(meta.instant_files()).items() if key in archived]
    found = zip(files, contents(meta, files, threads=1), strict=True)
    log = ArchiveLog(active, FOLDER, batch=10)
    log.add(1, (record for each, read in found for record in records_of(each, read, "golden")))
    ours, theirs = dict(records(active)), dict(records(hudis))
    # Of a requested replacecommit Hudi leaves fields null that are set to their defaults here.
    planned = {at for at, record in ours.items() if record["hoodieRequestedReplaceMetadata"]}
    assert len(planned) == 1
    compared = ours.keys() - planned
    assert len(compared) > 50
    assert {at: ours[at] for at in compared} == {at: theirs[at] for at in compared}

"""A metadata table beside a model's table, kept as Hudi's writers keep theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from fsview.load.commit_files import to_read
from fsview.load.metadata_table import FILES, FOLDER
from fsview.snapshot.delta import delta_of
from tests.fsview.load.wide_table import listed
from tests.kit.formats.hfile import hfile, log_block
from tests.kit.tables.small_table import SmallTable
from timeline.encoding import avro
from timeline.encoding.log_block import (
    AVRO_DATA,
    COMMAND,
    COMMAND_TYPE,
    DELETE,
    HFILE_DATA,
    INSTANT_TIME,
    SCHEMA,
    TARGET_INSTANT_TIME,
)
from timeline.instant import CLEAN, COMMIT, COMPACTION, DELTA_COMMIT, Instant, State
from timeline.layout import TimelineLayout
from timeline.meta_client import TableMetaClient
from timeline.metadata.files_record import ALL_PARTITIONS, NOT_PARTITIONED, Files
from timeline.metadata.instant_metadata import CleanerPlan
from timeline.table.config_file import write_table_config
from timeline.table.property_name import METADATA_PARTITIONS

BEGINNING = "00000000000000010"
GROUP = "files-0000-0"
SCHEMA_TEXT = json.dumps(
    {
        "type": "record",
        "name": "HoodieMetadataRecord",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {"name": "_hoodie_commit_time", "type": ["null", "string"], "default": None},
            {"name": "key", "type": "string"},
            {"name": "type", "type": "int"},
            {
                "name": "filesystemMetadata",
                "type": [
                    "null",
                    {
                        "type": "map",
                        "values": {
                            "type": "record",
                            "name": "HoodieMetadataFileInfo",
                            "fields": [
                                {"name": "size", "type": "long"},
                                {"name": "isDeleted", "type": "boolean"},
                            ],
                        },
                    },
                ],
            },
            {"name": "BloomFilterMetadata", "type": ["null", "string"], "default": None},
        ],
    }
)


class MetadataTable:
    """The metadata table of one table; made from a listing, then updated for each instant."""

    def __init__(self, table: SmallTable) -> None:
        self.table = table
        self.storage = table.storage
        properties = {**table.meta.config.properties, METADATA_PARTITIONS: FILES}
        config = replace(table.meta.config, properties=properties)
        write_table_config(self.storage, config, create=False)
        table.meta = TableMetaClient.open(self.storage)
        self.layout = TimelineLayout.of(config)
        self.is_named = config.version >= 8
        self.base = self.merged = BEGINNING
        self.pending = ""
        self.logs = 0
        self.told: dict[str, list[tuple[str, Files]]] = {}
        there = listed(self.storage)
        files: list[tuple[str, Files]] = [*there.items()]
        files.append((ALL_PARTITIONS, dict.fromkeys(there, 0)))
        self.write_base(BEGINNING, dict(files))
        self.write_log(BEGINNING, DELETE, b"\0\0\0\3\0\0\0\1\0")
        self.complete(BEGINNING)
        self.beginning = files
        self.began = str(self.find(BEGINNING).completion_time)

    def follow(self) -> None:
        """Tell it of each completed instant that it doesn't have yet, oldest first."""
        for instant in to_read(self.table.meta.active_timeline()):
            time = instant.requested_time
            if time in self.told or self.is_listed(instant):
                continue
            self.add(time, self.records_of(instant))

    def is_listed(self, instant: Instant) -> bool:
        return str(instant.completion_time) <= self.began

    def records_of(self, instant: Instant) -> list[tuple[str, Files]]:
        """Return what an instant did, as its records."""
        meta = self.table.meta
        delta = delta_of(meta.read(instant), meta.config.base_extensions)
        found: dict[str, Files] = {}
        for partition, change in delta.partitions.items():
            added = {file.name: file.size for file in change.added}
            found[partition] = {**added, **dict.fromkeys(change.removed)}
        plan = meta.read_plan(instant) if instant.action == CLEAN else CleanerPlan()
        assert isinstance(plan, CleanerPlan)
        gone = delta.deleted_partitions.union(plan.partitions_to_be_deleted)
        found[ALL_PARTITIONS] = {**dict.fromkeys(found, 0), **dict.fromkeys(gone)}
        return list(found.items())

    def add(self, time: str, records: list[tuple[str, Files]], *, complete: bool = True) -> None:
        """Write a delta commit of these records."""
        self.told[time] = records
        self.write_log(time, HFILE_DATA, hfile_content(records))
        if complete:
            self.complete(time)

    def roll_back(self, time: str) -> None:
        """Void what a delta commit wrote, in a log as version 6 has it."""
        header = {
            INSTANT_TIME: self.table.tick(),
            TARGET_INSTANT_TIME: time,
            COMMAND_TYPE: "0",
        }
        self.logs += 1
        path = f"{FOLDER}/{FILES}/.{GROUP}_{self.base}.log.{self.logs}_0-1-{self.logs}"
        self.storage.create(path, log_block(COMMAND, header))
        self.told.pop(time)

    def compact(self, *, complete: bool = True) -> None:
        """Merge all into a new base file; without ``complete`` its compaction pends."""
        merged: dict[str, dict[str, int | None]] = {}
        for records in (self.beginning, *self.told.values()):
            for key, files in records:
                merged.setdefault(key, {}).update(files)
        time = self.table.tick() if self.is_named else max(self.told) + "001"
        kept = {
            key: {name: size for name, size in files.items() if size is not None}
            for key, files in merged.items()
        }
        self.write_base(time, kept)
        self.base, self.logs, self.pending = time, 0, time
        self.put_instant(Instant(time, COMPACTION, State.INFLIGHT))
        if complete:
            self.finish_compaction()

    def finish_compaction(self) -> None:
        """Complete the compaction that pends."""
        self.complete(self.pending, COMMIT)
        self.merged, self.pending = self.pending, ""

    def write_base(self, time: str, records: Mapping[str, Files]) -> None:
        self.put(f"{GROUP}_0-1-1_{time}.hfile", hfile_content(sorted(records.items())))

    def write_log(self, time: str, kind: int, content: bytes) -> None:
        """Write a block in a log of its own."""
        header = {INSTANT_TIME: time}
        if kind in (HFILE_DATA, AVRO_DATA):
            header[SCHEMA] = SCHEMA_TEXT
        self.logs += 1
        named, version = (time, 1) if self.is_named else (self.base, self.logs)
        name = f".{GROUP}_{named}.log.{version}_0-1-{self.logs}"
        self.put(name, log_block(kind, header, content))

    def put(self, name: str, data: bytes) -> None:
        self.storage.create(f"{FOLDER}/{FILES}/{name}", data)

    def complete(self, time: str, action: str = DELTA_COMMIT) -> None:
        """Put an instant on the metadata table's timeline."""
        ended = self.table.tick() if self.is_named else None
        self.put_instant(Instant(time, action, State.COMPLETED, ended))

    def put_instant(self, instant: Instant) -> None:
        path = f"{FOLDER}/{self.layout.folder}/{self.layout.file_name(instant)}"
        self.storage.create(path, b"")

    def find(self, time: str) -> Instant:
        """Return an instant of the metadata table's timeline."""
        folder = f"{FOLDER}/{self.layout.folder}"
        entries = self.storage.list(folder)
        parsed = (self.layout.parse(entry.name, entry.mtime_ms) for entry in entries)
        return next(i for i in parsed if i is not None and i.requested_time == time)

    def files(self) -> list[str]:
        """Return the paths of its base files and logs."""
        prefix = f"{FOLDER}/{FILES}/"
        return sorted(path for path in self.storage.files if path.startswith(prefix))


def avro_block(records: Iterable[tuple[str, Files]]) -> bytes:
    """Return the content of an Avro block of these records, keys included."""
    records = list(records)
    out = (3).to_bytes(4, "big") + len(records).to_bytes(4, "big")
    for key, files in records:
        value = _value(key, files, with_key=True)
        out += len(value).to_bytes(4, "big") + value
    return out


def delete_block(keys: Iterable[str]) -> bytes:
    """Return the content of a block that deletes records."""
    record = {"deleteRecordList": [{"recordKey": key} for key in keys]}
    data = avro.write_record(avro.schema_text("HoodieDeleteRecordList"), record)
    return (3).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data


def hfile_content(records: Iterable[tuple[str, Files]]) -> bytes:
    """Return an HFile of these records."""
    entries = sorted((_key(key).encode(), _value(key, files)) for key, files in records)
    return hfile(entries, {b"schema": SCHEMA_TEXT.encode()}, per_block=3)


def _value(key: str, files: Files, *, with_key: bool = False) -> bytes:
    said = {
        _key(name) if key == ALL_PARTITIONS else name: {
            "size": size or 0,
            "isDeleted": size is None,
        }
        for name, size in files.items()
    }
    record = {
        "key": _key(key) if with_key else "",
        "type": 1 if key == ALL_PARTITIONS else 2,
        "filesystemMetadata": said,
    }
    return avro.write_record(SCHEMA_TEXT, record)


def _key(partition: str) -> str:
    return partition or NOT_PARTITIONED

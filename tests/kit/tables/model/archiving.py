"""The archiver: what may be moved out of the active timeline, and both forms of archive.

Version 6: ``.hoodie/archived/.commits_.archive.<N>_1-0-1``, a log with an Avro record for each
state of an instant. Later versions: ``.hoodie/timeline/history``, with a Parquet file for each run,
a manifest, and a pointer to the manifest.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.kit.tables.model.table import ModelTable
from timeline.encoding import avro
from timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMPACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    ROLLBACK,
    WRITE_ACTIONS,
    Instant,
    State,
    completed_action,
)
from timeline.metadata import codec
from timeline.storage.base import Storage

KEPT_WRITES = 2
HISTORY_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        ("version", pa.int32()),
    ]
)
_PLANNED_AS = (COMPACTION, LOG_COMPACTION, CLUSTERING)


def to_archive(table: ModelTable) -> list[Instant]:
    """Return the instants that may be archived now, in timeline order: a prefix of the writes, and
    the cleans and rollbacks before its end.

    Kept are: the last writes, whatever is not older than a pending instant's predecessor or than a
    savepoint, replacecommits whose groups aren't cleaned yet, in version 6 the last clean and the
    last rollback, which have a count of their own there.
    """
    active = table.meta.active_timeline()
    writes = [i for i in active.completed() if i.action in WRITE_ACTIONS]
    ends = [i.requested_time for i in writes[-KEPT_WRITES:][:1]]
    for pending in active.pending():
        before = [i for i in writes if i.requested_time < pending.requested_time]
        ends.append(before[-1].requested_time if before else "")
    ends += [i.requested_time for i in writes if _has_files_replaced(table, i)]
    ends += list(table.saved)
    end = min(ends, default="")
    archived = [i for i in active.completed() if i.requested_time < end]
    kept: set[Instant] = set()
    if table.meta.config.layout_version == 1:
        for action in (CLEAN, ROLLBACK):
            kept.update([i for i in active.completed() if i.action == action][-1:])
    allowed = {*WRITE_ACTIONS, CLEAN, ROLLBACK}
    return [i for i in archived if i.action in allowed and i not in kept]


def _has_files_replaced(table: ModelTable, instant: Instant) -> bool:
    gone = table.truth.replaced_by.get(instant.requested_time, ())
    return any(file.group in gone for file in table.truth.files.values())


def archive(table: ModelTable, instants: list[Instant]) -> None:
    """Write some instants to the archive, then delete their files, pending ones first."""
    write = _write_log if table.meta.config.layout_version == 1 else _write_history
    write(table, instants)
    for instant in instants:
        for asked in _as_requested(table, instant):
            table.remove(asked, State.INFLIGHT, State.REQUESTED)
    for instant in instants:
        table.meta.delete_instant_file(instant)
        table.done.pop(instant.requested_time, None)


def _as_requested(table: ModelTable, instant: Instant) -> list[Instant]:
    """Return the requested instants, one for each action it may have been requested with."""
    actions = [a for a in _PLANNED_AS if completed_action(a) == instant.action]
    if table.meta.config.layout_version == 1:
        actions = [a for a in actions if a != CLUSTERING]
    return [
        Instant(instant.requested_time, action, State.REQUESTED)
        for action in (instant.action, *actions)
    ]


def _content(table: ModelTable, instant: Instant) -> bytes | None:
    found = table.storage.files.get(table.meta.path_of(instant))
    return None if found is None else found[0]


# Version 8 and later.


def _write_history(table: ModelTable, instants: list[Instant]) -> None:
    folder = table.meta.config.archive_folder
    rows = []
    for instant in instants:
        plans = (_content(table, asked) for asked in _as_requested(table, instant))
        rows.append(
            {
                "instantTime": instant.requested_time,
                "completionTime": instant.completion_time,
                "action": instant.action,
                "metadata": _content(table, instant),
                "plan": next((plan for plan in plans if plan), None),
                "version": 1,
            }
        )
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA), stream)
    name = f"{instants[0].requested_time}_{instants[-1].requested_time}_0.parquet"
    table.storage.create(f"{folder}/{name}", stream.getvalue())
    version = _numbers(table.storage, folder, "manifest_")
    before = json.loads(table.storage.read(f"{folder}/manifest_{version}")) if version else {}
    listed = [*before.get("files", []), {"fileName": name, "fileLen": len(stream.getvalue())}]
    manifest = json.dumps({"files": listed}).encode()
    table.storage.create(f"{folder}/manifest_{version + 1}", manifest)
    table.storage.replace(f"{folder}/_version_", str(version + 1).encode())


def _numbers(storage: Storage, folder: str, prefix: str) -> int:
    """Return the highest number of the files with a prefix, 0 if there is none."""
    names = [info.name for info in storage.list(folder) if info.name.startswith(prefix)]
    return max((int(name.removeprefix(prefix).partition("_")[0]) for name in names), default=0)


# Version 6.

_BODIES = {
    "CommitMetadata": "hoodieCommitMetadata",
    "CleanMetadata": "hoodieCleanMetadata",
    "CleanerPlan": "hoodieCleanerPlan",
    "RollbackMetadata": "hoodieRollbackMetadata",
    "CompactionPlan": "hoodieCompactionPlan",
    "RequestedReplaceMetadata": "hoodieRequestedReplaceMetadata",
}


def _write_log(table: ModelTable, instants: list[Instant]) -> None:
    folder = table.meta.config.archive_folder
    records = [record for instant in instants for record in _records(table, instant)]
    number = _numbers(table.storage, folder, ".commits_.archive.") + 1
    path = f"{folder}/.commits_.archive.{number}_1-0-1"
    table.storage.create(path, _block(records))


def _records(table: ModelTable, instant: Instant) -> Iterable[dict[str, Any]]:
    for asked in _as_requested(table, instant):
        for state in (State.REQUESTED, State.INFLIGHT):
            now = Instant(asked.requested_time, asked.action, state)
            data = _content(table, now)
            if data is not None:
                yield _record(now, data)
    data = _content(table, instant)
    assert data is not None
    yield _record(instant, data)


def _record(instant: Instant, data: bytes) -> dict[str, Any]:
    record: dict[str, Any] = {
        "commitTime": instant.requested_time,
        "actionType": instant.action,
        "actionState": instant.state.value,
        "stateTransitionTime": instant.completion_time or instant.requested_time,
        "version": 1,
    }
    kind = codec.metadata_type(instant.action, instant.state)
    body = _BODIES.get(kind.__name__)
    if data and body is not None:
        value = codec.decode(kind, data)
        replaces = instant.action == REPLACE_COMMIT and instant.is_completed
        if replaces:
            body = "hoodieReplaceCommitMetadata"
        container = codec.encode(value, 9, replace=replaces)
        record[body] = avro.read_container(container)
    return record


@lru_cache(maxsize=1)
def _entry_schema() -> str:
    text = files("timeline").joinpath("avsc", "HoodieArchivedMetaEntry-0.15.avsc").read_text()
    return json.dumps(json.loads(text))


def _block(records: list[dict[str, Any]]) -> bytes:
    """Return one block of Avro records as ``timeline.archive.log_archive`` has the form."""
    schema = _entry_schema()
    header = _int(1) + _int(2) + _int(len(schema.encode())) + schema.encode()
    content = _int(3) + _int(len(records))
    for record in records:
        data = avro.write_record(schema, record)
        content += _int(len(data)) + data
    body = _int(1) + _int(3) + header + _long(len(content)) + content + _int(0)
    size = len(body) + 8
    return b"#HUDI#" + _long(size) + body + _long(size + 6)


def _int(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _long(number: int) -> bytes:
    return number.to_bytes(8, "big")

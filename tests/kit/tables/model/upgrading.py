"""Upgrade and downgrade of the table version, including the timeline's layout.

As in Hudi, nothing may be pending and no newest slice may have logs, because version 8 changed the
meaning of the instant in a log's name. Names of logs don't change.
"""

from __future__ import annotations

from dataclasses import replace

from tests.kit.tables.model import services, writes
from tests.kit.tables.model.table import ModelTable
from timeline.instant import CLUSTERING, REPLACE_COMMIT, WRITE_ACTIONS, Instant
from timeline.layout import TimelineLayout
from timeline.meta_client import TableMetaClient
from timeline.metadata import codec
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config


def may_move(table: ModelTable, version: int) -> bool:
    """Whether the table may be brought to a version: to another layout only before its archive
    begins, and without savepoints."""
    if table.writes or table.under_way is not None or version == table.meta.config.version:
        return False
    archive = f"{table.meta.config.archive_folder}/"
    archived = any(path.startswith(archive) for path in table.storage.files)
    return not _moves_layout(table, version) or not (archived or table.saved)


def move(table: ModelTable, version: int) -> None:
    """Move the table to a version."""
    if _moves_layout(table, version):
        _compact_all(table)
        _move_layout(table, version)
        _read_logs_as(table, by_completion=version >= 8)
    else:
        write_table_config(table.storage, table.config(version), create=False)
        table.meta = TableMetaClient.open(table.storage)
    table.versions += 1


def _moves_layout(table: ModelTable, version: int) -> bool:
    return (version < 8) != (table.meta.config.version < 8)


def _compact_all(table: ModelTable) -> None:
    if not table.merges_on_read:
        return
    partitions = sorted({file.partition for file in table.truth.files.values()})
    groups = [group for partition in partitions for group in table.live_groups(partition)]
    groups = [group for group in groups if services.may_compact(table, group)]
    if groups:
        compaction = services.request_compaction(table, groups, logs_only=False)
        services.start(table, compaction)
        writes.complete(table, compaction)


def _move_layout(table: ModelTable, version: int) -> None:
    """Give every instant the name and content of the other layout, then write the properties."""
    before, config = table.meta.layout, table.config(version)
    after = TimelineLayout.of(config)
    clusterings = {w.time for w in table.done.values() if w.operation == "CLUSTER"}
    found = table.storage.files
    for path in [path for path in found if path.rpartition("/")[0] == before.folder]:
        data, mtime = found[path]
        instant = before.parse(path.rpartition("/")[2], mtime)
        if instant is None:
            continue
        del found[path]
        if instant.action == REPLACE_COMMIT and instant.requested_time in clusterings:
            instant = _as_clustering(instant)
        name = after.file_name(instant)
        # Completion times of the older layout are modification times.
        found[f"{after.folder}/{name}"] = _converted(instant, data, config), mtime
    write_table_config(table.storage, config, create=False)
    table.meta = TableMetaClient.open(table.storage)
    table.done.clear()  # what was done before isn't undone any more


def _as_clustering(instant: Instant) -> Instant:
    return instant if instant.is_completed else replace(instant, action=CLUSTERING)


def _converted(instant: Instant, data: bytes, config: TableConfig) -> bytes:
    if not (instant.is_completed and instant.action in WRITE_ACTIONS):
        return data
    said = codec.decode(codec.metadata_type(instant.action, instant.state), data)
    return codec.encode(said, config.version, replace=instant.action == REPLACE_COMMIT)


def _read_logs_as(table: ModelTable, *, by_completion: bool) -> None:
    """Let the instant in a log's name be its writer; before version 8 the log is in the slice of
    this name, else in the newest before."""
    truth = table.truth
    truth.logs_by_completion = by_completion
    starts = {(f.group, f.writer) for f in table.files.values() if f.order is None}
    for path, log in sorted(table.files.items(), key=lambda item: item[1].order or ()):
        if log.order is None:
            continue
        named = log.order[0]
        begun = [time for group, time in starts if group == log.group and time <= named]
        onto = max(begun, default=named)
        starts.add((log.group, onto))
        table.files[path] = replace(log, writer=named, appended_to=onto)
    truth.files = {path: table.files[path] for path in truth.files}
    for instant in table.meta.active_timeline().completed():
        if instant.requested_time in truth.completed and instant.action in WRITE_ACTIONS:
            truth.completed[instant.requested_time] = instant.completion_time or ""
    truth.moves += 1

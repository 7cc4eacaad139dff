"""``open_target``: opens the table of a write, or describes the one to be created.

The checks that need no rows are called here, before anything is written: the table's type and
version, features that this writer would break, options that contradict its properties, unreadable
metadata.
"""

from __future__ import annotations

from itertools import islice

from strandline.commit.settings import conflict_strategy
from strandline.records.commit_history import CommitHistory
from strandline.records.merge_properties import MergeProperties
from strandline.settings.setting import Refusals, Settings
from strandline.write.last_timeline import LastTimeline
from strandline.write.options import settings
from strandline.write.options.client_options import merge_mode
from strandline.write.options.index_settings import (
    BLOOM_UPDATES_PARTITION,
    GLOBAL_BLOOM,
    GLOBAL_SIMPLE,
    SIMPLE_UPDATES_PARTITION,
    IndexOptions,
)
from strandline.write.options.table_keys import generator_of
from strandline.write.options.table_options import new_config, refuse_disagreement
from strandline.write.options.unsupported import refuse_metadata_table, refuse_unsupported
from strandline.write.target import Target, generator_as_stored
from timeline.errors import (
    CorruptMetadataError,
    TableNotFoundError,
    UnsupportedTableError,
)
from timeline.instant import RESTORE
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.table.config import CONFIG_PATH, TableConfig
from timeline.table.config_file import read_table_config
from timeline.table.property_name import PARTIAL_UPDATE_MODE
from timeline.timeline import Timeline


def open_target(
    storage: Storage,
    values: Settings,
    history: CommitHistory,
    *,
    create: bool,
    last: LastTimeline | None = None,
) -> Target:
    """Open a table for writing, or describe the one to be created.

    Args:
        storage: Storage at the table's base path.
        values: The client's settings.
        history: The client's facts of the table's commits.
        create: Whether the write may create the table.
        last: What the client's last write has left, if the caller looks afterwards whether another
            writer has been here since.

    Raises:
        TableNotFoundError: There is no table, and ``create`` is false.
        UnsupportedTableError: The table has a version, type or feature that can't be written.
        ConfigError: The options contradict the table, or lack what a new table requires.
        CorruptMetadataError: The properties or a commit can't be read, or instants exist without
            properties.

    Cost: one read, one list if the timeline isn't known (two without a table); a read for each of
        the newest commits that isn't in ``history``.
    """
    try:
        config = read_table_config(storage.for_cause("table"))
    except TableNotFoundError:
        if not create:
            raise
        return _new_target(storage, values)
    refuse_unsupported(config, storage.base_path)
    if not values.is_set(settings.METADATA_TABLE):
        refuse_metadata_table(config, storage.base_path)
    refusals = Refusals()
    with refusals.kept():
        refuse_disagreement(config, values)
    with refusals.kept():
        index = _index(values, config)
    with refusals.kept():
        generator = generator_of(config, values)
    refusals.raise_any()
    _refuse_moves(config, index, storage.base_path)
    meta = TableMetaClient(storage, config)
    left = None if last is None else last.take(config)
    timeline = meta.active_timeline() if left is None else left
    _refuse_restore(timeline, storage.base_path)
    # An unreadable commit must fail here, before anything is written.
    list(islice(history.newest_first(meta, timeline), values.get(settings.RECORD_SIZE_COMMITS)))
    avro_schema = history.avro_schema(meta, timeline)
    generator = generator_as_stored(generator, meta, timeline, history)
    mode = None if config.names_merge_mode else merge_mode(values)
    mode = mode or config.record_merge_mode
    is_left = left is not None
    return Target(meta, True, timeline, avro_schema, generator, mode, index, is_left)


def _new_target(storage: Storage, values: Settings) -> Target:
    """Describe the table that the options ask for."""
    _refuse_remains(storage)
    config, refusals = new_config(values), Refusals()
    with refusals.kept():
        index = _index(values, config)
    with refusals.kept():
        generator = generator_of(config, values)
    refusals.raise_any()
    meta = TableMetaClient(storage, config.with_properties(index.properties))
    return Target(meta, False, Timeline(), None, generator, config.record_merge_mode, index)


def _refuse_restore(timeline: Timeline, base_path: str) -> None:
    """Refuse a table with an unfinished restore, which deletes what was written since."""
    for instant in timeline.pending():
        if instant.action == RESTORE:
            raise UnsupportedTableError(
                f"{base_path} has an unfinished restore, {instant.requested_time}, which must be"
                " finished in Hudi first"
            )


def _refuse_moves(config: TableConfig, index: IndexOptions, base_path: str) -> None:
    """Refuse to move rows that may lack values, which are in the partition that they leave."""
    mode = MergeProperties.of(config, None).mode
    if mode and index.moves_rows and index.type in (GLOBAL_SIMPLE, GLOBAL_BLOOM):
        updates = (SIMPLE_UPDATES_PARTITION, BLOOM_UPDATES_PARTITION)
        setting = updates[index.type == GLOBAL_BLOOM]
        raise UnsupportedTableError(
            f"{base_path} has {PARTIAL_UPDATE_MODE}={mode}: {setting.name}=true moves rows without"
            " the stored values that they lack; allowed: false"
        )


def _index(values: Settings, config: TableConfig) -> IndexOptions:
    """Return a table's index, for which the options' conflict strategy must be allowed."""
    index = IndexOptions.of(values, config)
    conflict_strategy(values, by_bucket=index.is_bucket)
    return index


def _refuse_remains(storage: Storage) -> None:
    """Refuse to create a table where a timeline exists: a table that lost its properties."""
    for version in (6, 9):  # one of each timeline layout
        meta = TableMetaClient(storage, TableConfig.create(name="t", version=version))
        if instants := meta.active_timeline().instants:
            raise CorruptMetadataError(
                f"{storage.base_path} has instants, such as {meta.path_of(instants[-1])}, but its"
                f" {CONFIG_PATH} is missing",
                hint="restore that file; a new table needs another base path",
            )

"""Refuses unsupported file slices by file names and table properties, before a file is opened.

Logs may need merge rules that this release doesn't have, and base files may have other formats.

A table's merge mode defines the rule; in version 6 the payload class does. From version 8 on mode,
payload class and merge strategy must agree, otherwise Hudi refuses the table, too.

Source: Hudi 1.2.0 ``HoodieTableConfig.inferMergingConfigsForPreV9Table``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fsview.model.file_group import FileSlice
from strandline.read.logs.log_blocks import needs_merge
from strandline.records.file.base_file import EXTENSION
from strandline.records.merge_rule import unknown_merge_properties
from timeline.errors import UnsupportedTableError
from timeline.table.config import TableConfig
from timeline.table.property_name import (
    CUSTOM,
    MERGE_MODE,
    MERGE_STRATEGY_ID,
    MODE_OF_PAYLOAD,
    PAYLOAD_CLASS,
    POPULATE_META_FIELDS,
    STRATEGY_OF_MODE,
    listed,
)

_OLD_STRATEGY_ID: Final = "hoodie.compaction.record.merger.strategy"
_BY_PAYLOAD: Final = "00000000-0000-0000-0000-000000000000"
"""The strategy that leaves the merge to the payload class."""
_MODE_OF_STRATEGY: Final = {
    **{strategy: mode for mode, strategy in STRATEGY_OF_MODE.items()},
    _BY_PAYLOAD: CUSTOM,
}
_OTHER_FORMATS: Final = (".hfile", ".lance", ".orc")


def refuse_other_formats(slices: Sequence[FileSlice]) -> None:
    """Refuse base files that aren't Parquet.

    Raises:
        UnsupportedTableError: The message names the first of them.
    """
    for found in slices:
        base = found.base_file
        if base is not None and base.name.endswith(_OTHER_FORMATS):
            raise UnsupportedTableError(
                f"base file {base.path} isn't Parquet: this release can't read it;"
                f" allowed: {EXTENSION}"
            )


def refuse_unmergeable_slices(slices: Sequence[FileSlice], config: TableConfig) -> None:
    """Refuse slices with logs that this release can't merge; errors of ``refuse_unmergeable``."""
    if any(map(needs_merge, slices)):
        refuse_unmergeable(config)


def refuse_unmergeable(config: TableConfig) -> None:
    """Refuse a table's logs if this release can't merge them.

    Raises:
        UnsupportedTableError: The message names the first unsupported property, its value and what
            is allowed.
    """
    for reason in _reasons(config):
        raise UnsupportedTableError(
            f"table {config.name} has {reason}: this release can't merge its logs"
        )


def _reasons(config: TableConfig) -> Iterator[str]:
    properties, mode = config.properties, config.record_merge_mode
    yield from unknown_merge_properties(config)
    payload = properties.get(PAYLOAD_CLASS)
    if payload is not None and MODE_OF_PAYLOAD.get(payload) != mode:
        yield _disallowed(config, PAYLOAD_CLASS, payload, MODE_OF_PAYLOAD)
    if mode not in STRATEGY_OF_MODE:
        yield _disallowed(config, MERGE_MODE, mode, STRATEGY_OF_MODE)
    for name in (MERGE_STRATEGY_ID, _OLD_STRATEGY_ID):
        strategy = properties.get(name)
        if strategy is None:
            continue
        implied = _MODE_OF_STRATEGY.get(strategy.lower())
        # Hudi 0.15 stores the same strategy whatever the payload class.
        if implied is None or (config.version > 6 and implied != mode):
            yield _disallowed(config, name, strategy, _MODE_OF_STRATEGY)
    if not config.populate_meta_fields:
        yield f"{POPULATE_META_FIELDS}=false; logs are merged by the record keys in meta columns"
    if config.base_file_extension != EXTENSION:
        yield f"{config.base_file_extension} files; allowed: {EXTENSION}"


def _disallowed(config: TableConfig, name: str, value: str, allowed: dict[str, str]) -> str:
    """Return a property's value and what is allowed in its place, as text."""
    mode = config.properties.get(MERGE_MODE)
    beside = "" if mode is None or name == MERGE_MODE else f" beside {MERGE_MODE}={mode:.100}"
    return f"{name}={value:.100}{beside}; allowed: {listed(allowed)}"

"""Refuses tables with properties that this writer can't honour, before anything is written."""

from __future__ import annotations

from typing import Final

from strandline.commit.lock.settings import PROVIDER
from strandline.records.file.base_file import EXTENSION
from strandline.records.incomplete_files import refuse_dropped_columns, refuse_incomplete_files
from strandline.records.key.generator import TYPES
from strandline.records.merge_properties import unknown_merge_properties
from strandline.write.options.settings import METADATA_TABLE
from timeline.errors import UnsupportedTableError
from timeline.table.config import TableConfig
from timeline.table.property_name import COPY_ON_WRITE, CUSTOM, METADATA_PARTITIONS

_FALSE_PROPERTIES: Final = (
    "hoodie.table.cdc.enabled",
    "hoodie.table.multiple.base.file.formats.enable",
)
"""Properties that this writer requires to be false."""


def refuse_unsupported(config: TableConfig, base_path: str) -> None:
    """Refuse a table that this writer can't write or would damage.

    Raises:
        UnsupportedTableError: The message names the property.
    """
    refuse_incomplete_files(config, base_path)
    for reason in unknown_merge_properties(config):
        raise UnsupportedTableError(f"{base_path} has {reason}")
    refuse_dropped_columns(config, base_path)
    refusals = [
        (config.table_type != COPY_ON_WRITE, f"is {config.table_type}; allowed: {COPY_ON_WRITE}"),
        (
            config.key_generator_type not in TYPES,
            f"has key generator {config.key_generator_type}; allowed: {', '.join(TYPES)}",
        ),
        (not config.record_key_fields, "has no record key columns; its keys are generated"),
        (not config.populate_meta_fields, "has no meta columns (hoodie.populate.meta.fields)"),
        (config.record_merge_mode == CUSTOM, "merges records by a custom class"),
        (
            config.base_file_extension != EXTENSION,
            f"has {config.base_file_extension} files; allowed: {EXTENSION}",
        ),
    ]
    refusals += [
        (config.properties.get(name, "false").lower() == "true", f"has {name}=true; allowed: false")
        for name in _FALSE_PROPERTIES
    ]
    for refused, reason in refusals:
        if refused:
            raise UnsupportedTableError(f"{base_path} {reason}")


def refuse_metadata_table(config: TableConfig, base_path: str) -> None:
    """Refuse a table with a metadata table, which a write would have to drop.

    Raises:
        UnsupportedTableError: It has one; the hint says which options let a write drop it.
    """
    partitions = config.named_metadata_partitions
    if partitions:
        raise UnsupportedTableError(
            f"{base_path} has a metadata table ({METADATA_PARTITIONS}={','.join(partitions)}),"
            " which this writer doesn't maintain",
            hint=f"set {METADATA_TABLE.name}=false in all writers of the table: the next write then"
            f" drops it; if several write at a time, set {PROVIDER.name} as well",
        )

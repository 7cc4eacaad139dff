"""Configurations of a table of trips."""

from timeline.table.config import TableConfig


def trips(version: int = 9, **more: object) -> TableConfig:
    options = {
        "name": "trips",
        "record_key_fields": ("id",),
        "partition_fields": ("day",),
        "ordering_fields": ("ts",),
        "hive_style": True,
    }
    return TableConfig.create(version=version, **{**options, **more})

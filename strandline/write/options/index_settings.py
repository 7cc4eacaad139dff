"""Settings of the indexes, and ``IndexOptions``: the index of one table.

Names and defaults are Hudi's. Hudi's data source stores none of them in a table, but reads each
property of a table as the default of the option with that name. A bucket index is part of a table's
layout: a writer with another index, or another number of buckets, would write rows to buckets where
the next writer doesn't search. So this writer stores the options of a bucket index in the tables
that it creates, and refuses options that contradict them.

Source: Hudi 1.2.0 ``HoodieIndexConfig``, ``HoodieWriterUtils``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from strandline.settings.setting import (
    ClientSetting,
    Refusals,
    Setting,
    Settings,
    TableSetting,
    as_text,
)
from timeline.errors import ConfigError, UnsupportedTableError
from timeline.table.config import TableConfig

SIMPLE: Final = "SIMPLE"
GLOBAL_SIMPLE: Final = "GLOBAL_SIMPLE"
BLOOM: Final = "BLOOM"
GLOBAL_BLOOM: Final = "GLOBAL_BLOOM"
BUCKET: Final = "BUCKET"

INDEX_TYPE: Final = TableSetting(
    "hoodie.index.type",
    SIMPLE,
    "How stored keys are found. `SIMPLE`: in those files of the row's partition whose key range may"
    " hold them. `BLOOM`: also only where the file's Bloom filter may hold them. `GLOBAL_SIMPLE`,"
    " `GLOBAL_BLOOM`: in all partitions. `BUCKET`: a hash of the key names the file group.",
    allowed=(SIMPLE, GLOBAL_SIMPLE, BLOOM, GLOBAL_BLOOM, BUCKET),
)
SIMPLE_UPDATES_PARTITION: Final = TableSetting(
    "hoodie.simple.index.update.partition.path",
    True,
    "With `GLOBAL_SIMPLE`: whether a row whose key is stored in another partition moves to its own;"
    " otherwise it updates the stored row in the other partition.",
)
BLOOM_UPDATES_PARTITION: Final = TableSetting(
    "hoodie.bloom.index.update.partition.path",
    True,
    "With `GLOBAL_BLOOM`: what hoodie.simple.index.update.partition.path is with `GLOBAL_SIMPLE`.",
)
BLOOM_PRUNES_BY_RANGES: Final = ClientSetting(
    "hoodie.bloom.index.prune.by.ranges",
    True,
    "With `BLOOM` and `GLOBAL_BLOOM`: whether a file's filter is asked only about keys within the"
    " file's key range.",
)
BUCKET_ENGINE: Final = TableSetting(
    "hoodie.index.bucket.engine",
    "SIMPLE",
    "How a bucket index numbers its buckets: their number is fixed. Hudi's `CONSISTENT_HASHING`,"
    " which resizes them by clustering, isn't supported.",
    allowed=("SIMPLE",),
)
BUCKETS: Final = TableSetting(
    "hoodie.bucket.index.num.buckets",
    256,
    "Number of buckets, and so of file groups, in each partition of a bucket index; fixed for the"
    " life of the table.",
    minimum=1,
    maximum=99_999_999,
)
HASH_FIELDS: Final = TableSetting(
    "hoodie.bucket.index.hash.field",
    "",
    "Columns whose values are hashed, some of the record key's; empty: all of them.",
)

_STORED: Final[tuple[Setting[Any], ...]] = (INDEX_TYPE, BUCKET_ENGINE, BUCKETS, HASH_FIELDS)
"""Settings of a bucket index that are properties of the table."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The index of one table.

    Attributes:
        type: The index type.
        moves_rows: Whether a global index moves rows to the partition of the write's row.
        prunes_by_ranges: Whether a Bloom index compares keys with key ranges first.
        buckets: Number of buckets of a partition.
        hash_fields: Columns that a bucket index hashes.
    """

    type: str = INDEX_TYPE.field()
    moves_rows: bool = SIMPLE_UPDATES_PARTITION.field()
    prunes_by_ranges: bool = BLOOM_PRUNES_BY_RANGES.field()
    buckets: int = BUCKETS.field()
    hash_fields: tuple[str, ...] = HASH_FIELDS.field(_names)

    @classmethod
    def of(cls, values: Settings, config: TableConfig) -> IndexOptions:
        """Return the index that options and the table's properties define.

        Raises:
            ConfigError: They contradict each other, or a hash field isn't a column of the record
                key.
            UnsupportedTableError: The table has a bucket index that isn't supported.
        """
        stored, refusals = _stored(config), Refusals()
        refusals.add(*_disagreements(values, stored, config.record_key_fields))

        found, keys = values.overridden(stored).read(cls), config.record_key_fields
        refusals.add(*bucket_contradictions(values, found.type))
        refusals.raise_any()
        if found.is_bucket and not set(found.hash_fields) <= set(keys):
            raise ConfigError(
                f"{HASH_FIELDS.name} is {','.join(found.hash_fields)!r}; allowed: columns of the"
                f" record key, {', '.join(keys)}"
            )
        is_bloom = found.type == GLOBAL_BLOOM
        moves = values.get(BLOOM_UPDATES_PARTITION) if is_bloom else found.moves_rows
        return replace(
            found,
            moves_rows=moves and bool(config.partition_fields),
            hash_fields=found.hash_fields or keys,
        )

    @property
    def is_bucket(self) -> bool:
        """Whether it is a bucket index."""
        return self.type == BUCKET

    @property
    def is_global(self) -> bool:
        """Whether keys are looked up in all partitions."""
        return self.type in (GLOBAL_SIMPLE, GLOBAL_BLOOM)

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of a bucket index, for a new table; empty for other indexes."""
        if not self.is_bucket:
            return {}
        return {
            INDEX_TYPE.name: BUCKET,
            BUCKET_ENGINE.name: BUCKET_ENGINE.default,
            BUCKETS.name: str(self.buckets),
            HASH_FIELDS.name: ",".join(self.hash_fields),
        }


def bucket_contradictions(values: Settings, index_type: str) -> Iterator[ConfigError]:
    """Yield the error of each option of a bucket index that is set for another index."""
    ours: tuple[Setting[Any], ...] = (BUCKETS, HASH_FIELDS)
    for setting in ours:
        if index_type != BUCKET and values.is_set(setting) and values.get(setting):
            yield ConfigError(
                f"{values.called(setting)} is {values.get(setting)} and {INDEX_TYPE.name} is"
                f" {index_type}; allowed: only with {BUCKET}"
            )


def stored_index(config: TableConfig) -> Mapping[str, str]:
    """Return the properties that describe a table's bucket index; empty if it has none."""
    properties = config.properties
    if properties.get(INDEX_TYPE.name, "").strip().upper() != BUCKET:
        return {}
    return {each.name: properties[each.name] for each in _STORED if each.name in properties}


def _stored(config: TableConfig) -> Settings:
    """Return the settings of a table's bucket index; empty for other indexes.

    Raises:
        UnsupportedTableError: A setting's value isn't allowed, such as consistent hashing.
    """
    try:
        return Settings.parse(stored_index(config), _STORED)
    except ConfigError as exc:
        raise UnsupportedTableError(f"of the table's properties, {exc.message}") from exc


def _disagreements(
    values: Settings, stored: Settings, keys: tuple[str, ...]
) -> Iterator[ConfigError]:
    """Yield the error of each option that contradicts a stored one; column order is ignored.

    Args:
        values: The options. Empty ones aren't compared.
        stored: The stored ones. Empty hash fields mean all columns of the record key.
        keys: The columns of the record key.
    """
    for setting in _STORED:
        if not values.is_set(setting) or not stored.is_set(setting):
            continue
        asked, has = as_text(values.get(setting)), as_text(stored.get(setting)) or ",".join(keys)
        asked_names, stored_names = sorted(_names(asked)), sorted(_names(has))
        if asked_names and asked_names != stored_names:
            yield ConfigError(
                f"{values.called(setting)} is {asked!r}, but the table has {has!r}",
                hint="leave the option out, or write to another base path",
            )

"""``tagging_by``: the way to tag rows that a table's index asks for."""

from __future__ import annotations

from typing import Any

from strandline.records.merge_properties import MergeProperties
from strandline.write.engine.base import EngineContext, Tally
from strandline.write.index.bucket_tagging import BucketTagging
from strandline.write.index.search_index import SearchIndex
from strandline.write.index.search_tagging import SearchTagging
from strandline.write.index.tagging import Tagging
from strandline.write.operation import Operation
from strandline.write.options.index_settings import (
    BLOOM,
    GLOBAL_BLOOM,
    IndexOptions,
)
from timeline.storage.base import Storage


def tagging_by(
    options: IndexOptions,
    *,
    engine: EngineContext[Any],
    operation: Operation,
    storage: Storage,
    tally: Tally,
    combine_inserts: bool,
    ordering_fields: tuple[str, ...],
    properties: MergeProperties,
) -> Tagging[Any]:
    """Return the tagging of one write; arguments as of ``SearchTagging``."""
    if options.is_bucket:
        buckets, fields = options.buckets, options.hash_fields
        return BucketTagging(engine, buckets, fields, operation, tally, combine_inserts, properties)
    return SearchTagging(
        engine,
        search_index(options),
        operation,
        storage,
        tally,
        combine_inserts,
        ordering_fields,
        properties,
    )


def search_index(options: IndexOptions) -> SearchIndex:
    """Return the index that searches base files as the options say."""
    by_filter = options.type in (BLOOM, GLOBAL_BLOOM)
    return SearchIndex(
        by_range=options.prunes_by_ranges or not by_filter,
        by_filter=by_filter,
        is_global=options.is_global,
        moves_rows=options.is_global and options.moves_rows,
    )

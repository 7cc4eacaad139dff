"""``QUERIES``: which query answers each method of a view, and over which partitions.

This is the one place where a method's name meets its query. ``FileSystemView`` gives the methods
their types, ``fsview.wire.routes`` their form on the wire; a test holds the three to the same
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from fsview.query import queries as query


class QueryScope(Enum):
    """The partitions over which a query runs, and whether they count as loaded afterwards."""

    PARTITION = auto()
    """One partition, which counts as loaded afterwards."""
    STATELESS = auto()
    """One partition, which doesn't count as loaded by this."""
    REPLACED = auto()
    """One partition, as ``PARTITION``, but not even loaded if no group in it was replaced."""
    LOADED = auto()
    """The partitions that count as loaded, as in Hudi: their answers joined in one tuple."""
    TABLE = auto()
    """All partitions of the table: partition → answer."""


@dataclass(frozen=True, slots=True)
class Query:
    """The query behind a method of a view.

    Attributes:
        function: Takes snapshot, version, and the method's own arguments by name.
        scope: The partitions over which it runs.
        more: Further arguments, which the method doesn't have.
    """

    function: Callable[..., Any]
    scope: QueryScope = QueryScope.PARTITION
    more: Mapping[str, Any] = field(default_factory=dict)


QUERIES: Final[Mapping[str, Query]] = {
    "latest_base_files": Query(query.latest_base_files),
    "latest_base_file": Query(query.latest_base_file),
    "all_latest_base_files": Query(query.latest_base_files, QueryScope.LOADED),
    "latest_base_files_before_or_on": Query(query.latest_base_files_before_or_on),
    "all_latest_base_files_before_or_on": Query(
        query.latest_base_files_before_or_on, QueryScope.TABLE
    ),
    "base_file_on": Query(query.base_file_on),
    "all_base_files": Query(query.all_base_files),
    "latest_base_files_in_range": Query(query.latest_base_files_in_range, QueryScope.LOADED),
    "latest_file_slices": Query(query.latest_file_slices),
    "latest_file_slices_stateless": Query(query.latest_file_slices, QueryScope.STATELESS),
    "latest_file_slice": Query(query.latest_file_slice),
    "latest_file_slices_including_inflight": Query(query.latest_file_slices_including_inflight),
    "latest_uncompacted_file_slices": Query(query.latest_uncompacted_file_slices),
    "latest_file_slices_before_or_on": Query(query.latest_file_slices_before_or_on),
    "all_latest_file_slices_before_or_on": Query(
        query.latest_file_slices_before_or_on,
        QueryScope.TABLE,
        {"include_pending_compaction": True},
    ),
    "latest_merged_file_slices_before_or_on": Query(query.latest_merged_file_slices_before_or_on),
    "latest_merged_file_slice_before_or_on": Query(query.latest_merged_file_slice_before_or_on),
    "latest_merged_file_slices_before_or_on_including_inflight": Query(
        query.latest_merged_file_slices_before_or_on_including_inflight
    ),
    "latest_file_slices_in_range": Query(query.latest_file_slices_in_range, QueryScope.LOADED),
    "all_file_slices": Query(query.all_file_slices),
    "all_file_groups": Query(query.all_file_groups),
    "all_file_groups_stateless": Query(query.all_file_groups, QueryScope.STATELESS),
    "replaced_file_groups_before_or_on": Query(
        query.replaced_file_groups_before_or_on, QueryScope.REPLACED
    ),
    "replaced_file_groups_before": Query(query.replaced_file_groups_before, QueryScope.REPLACED),
    "replaced_file_groups_after_or_on": Query(
        query.replaced_file_groups_after_or_on, QueryScope.REPLACED
    ),
    "all_replaced_file_groups": Query(query.all_replaced_file_groups, QueryScope.REPLACED),
}
"""The view's method → its query. Methods that aren't listed concern the view itself."""

"""The route table: every view endpoint with its parameters, the view's method and the JSON form.

The service serves these routes, hot path included, and ``executor_proxy.remote_view`` calls them.
Both read this table, so their paths, parameters and forms can't differ.

Source: Hudi 1.2.0 ``RequestHandler``, ``RemoteHoodieTableFileSystemView``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from fsview.wire.param import (
    CURRENT_INSTANT,
    FILE_ID,
    INSTANT,
    INSTANTS,
    MAX_INSTANT,
    MAX_INSTANT_OPTIONAL,
    MIN_INSTANT_OPTIONAL,
    PARTITION,
    PARTITIONS,
    PENDING_COMPACTION,
    Param,
)
from fsview.wire.route import (
    BASE_FILE,
    BASE_FILES,
    CLUSTERINGS,
    COMPACTIONS,
    DONE,
    FILE_GROUPS,
    FILE_SLICE,
    FILE_SLICES,
    ONE_BASE_FILE,
    ONE_FILE_SLICE,
    ONE_INSTANT,
    TIMELINE,
    AnswerForm,
    Route,
)

PREFIX: Final = "/v1/hoodie/view"


def _get(name: str, path: str, form: AnswerForm, *params: Param, hot: bool = False) -> Route:
    return Route(name, "GET", f"{PREFIX}/{path}", params, form, synced=True, hot=hot)


def _partition(name: str, path: str, form: AnswerForm, *params: Param, hot: bool = False) -> Route:
    """Return the route of a query of one partition."""
    return _get(name, path, form, PARTITION, *params, hot=hot)


def _table(name: str, path: str, of_item: AnswerForm, *params: Param) -> Route:
    """Return the route of a query of the whole table that answers with one list."""
    many = of_item.many()
    return replace(_get(name, path, many, *params), part_form=many)


def _by_partition(name: str, path: str, of_item: AnswerForm, *params: Param) -> Route:
    """Return the route of a query of the whole table that answers with a list by partition."""
    route = _get(name, path, of_item.by_partition(), *params)
    return replace(route, part_form=of_item.many(), by_partition=True)


def _timeline(name: str, path: str, form: AnswerForm, ask: Callable[..., Any]) -> Route:
    return Route(name, "GET", f"{PREFIX}/{path}", (), form, ask=ask)


def _post(name: str, path: str, *params: Param, ask: Callable[..., Any] | None = None) -> Route:
    return Route(name, "POST", f"{PREFIX}/{path}", params, DONE, ask=ask)


ROUTES: Final[tuple[Route, ...]] = (
    _partition("latest_base_files", "datafiles/latest/partition", BASE_FILES, hot=True),
    _partition("latest_base_file", "datafile/latest/partition", ONE_BASE_FILE, FILE_ID, hot=True),
    _table("all_latest_base_files", "datafiles/all/latest/", BASE_FILE),
    _partition(
        "latest_base_files_before_or_on",
        "datafiles/beforeoron/latest/",
        BASE_FILES,
        MAX_INSTANT,
        hot=True,
    ),
    _by_partition(
        "all_latest_base_files_before_or_on", "basefiles/all/beforeoron/", BASE_FILE, MAX_INSTANT
    ),
    _partition("base_file_on", "datafile/on/latest/", ONE_BASE_FILE, INSTANT, FILE_ID),
    _partition("all_base_files", "datafiles/all", BASE_FILES),
    _table("latest_base_files_in_range", "datafiles/range/latest/", BASE_FILE, INSTANTS),
    _partition("latest_file_slices", "slices/partition/latest/", FILE_SLICES, hot=True),
    _partition(
        "latest_file_slices_including_inflight", "slices/partition/latest/inflight/", FILE_SLICES
    ),
    _partition(
        "latest_file_slices_stateless", "slices/partition/latest/stateless/", FILE_SLICES, hot=True
    ),
    _partition("latest_file_slice", "slices/file/latest/", ONE_FILE_SLICE, FILE_ID, hot=True),
    _partition(
        "latest_uncompacted_file_slices", "slices/uncompacted/partition/latest/", FILE_SLICES
    ),
    _partition("all_file_slices", "slices/all", FILE_SLICES),
    _partition(
        "latest_merged_file_slices_before_or_on",
        "slices/merged/beforeoron/latest/",
        FILE_SLICES,
        MAX_INSTANT,
        hot=True,
    ),
    _partition(
        "latest_merged_file_slices_before_or_on_including_inflight",
        "slices/merged/beforeoron/inflight/latest/",
        FILE_SLICES,
        MAX_INSTANT,
        CURRENT_INSTANT,
    ),
    _partition(
        "latest_merged_file_slice_before_or_on",
        "slice/merged/beforeoron/latest/",
        ONE_FILE_SLICE,
        MAX_INSTANT,
        FILE_ID,
    ),
    _table("latest_file_slices_in_range", "slices/range/latest/", FILE_SLICE, INSTANTS),
    _partition(
        "latest_file_slices_before_or_on",
        "slices/beforeoron/latest/",
        FILE_SLICES,
        MAX_INSTANT,
        PENDING_COMPACTION,
        hot=True,
    ),
    _by_partition(
        "all_latest_file_slices_before_or_on",
        "slices/all/beforeoron/latest/",
        FILE_SLICE,
        MAX_INSTANT,
    ),
    _get("pending_compaction_operations", "compactions/pending/", COMPACTIONS),
    _get("pending_log_compaction_operations", "logcompactions/pending/", COMPACTIONS),
    _partition("all_file_groups", "filegroups/all/partition/", FILE_GROUPS),
    _partition("all_file_groups_stateless", "filegroups/all/partition/stateless/", FILE_GROUPS),
    _partition(
        "replaced_file_groups_before_or_on",
        "filegroups/replaced/beforeoron/",
        FILE_GROUPS,
        MAX_INSTANT_OPTIONAL,
    ),
    _partition(
        "replaced_file_groups_before",
        "filegroups/replaced/before/",
        FILE_GROUPS,
        MAX_INSTANT_OPTIONAL,
    ),
    _partition(
        "replaced_file_groups_after_or_on",
        "filegroups/replaced/afteroron/",
        FILE_GROUPS,
        MIN_INSTANT_OPTIONAL,
    ),
    _partition("all_replaced_file_groups", "filegroups/replaced/partition/", FILE_GROUPS),
    _get("file_groups_in_pending_clustering", "clustering/pending/", CLUSTERINGS),
    _timeline(
        "last_instant", "timeline/instant/last", ONE_INSTANT, lambda view: view.last_instant()
    ),
    _timeline("timeline", "timeline/instants/all", TIMELINE, lambda view: view.timeline),
    _post("sync", "refresh/", ask=lambda view: view.refresh()),
    _post("load_partitions", "loadpartitions/", PARTITIONS),
    _post("load_all_partitions", "loadallpartitions/"),
)

BY_NAME: Final[Mapping[str, Route]] = {route.name: route for route in ROUTES}

FIXED_BY_TIMELINE: Final = frozenset(
    {
        "base_file_on",
        "latest_base_file",
        "latest_base_files",
        "latest_base_files_before_or_on",
        "latest_file_slice",
        "latest_file_slices",
        "latest_file_slices_before_or_on",
        "latest_merged_file_slice_before_or_on",
        "latest_merged_file_slices_before_or_on",
    }
)
"""Names of routes whose answers the timeline's hash and the arguments determine.

The hash covers completed instants and pending compactions, but neither plans of clustering and log
compaction nor files in flight, so routes that show these are excluded; and so are routes that cover
the partitions loaded so far.
"""

"""The route table: every view endpoint with its parameters, the view's method and the JSON form.

The service serves these routes, hot path included, and ``executor_proxy.remote`` calls them. Both
read this table, so their paths, parameters and forms can't differ.

Source: Hudi 1.2.0 ``RequestHandler``, ``RemoteHoodieTableFileSystemView``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from fsview.wire import answer_form as form
from fsview.wire.answer_form import AnswerForm
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
from fsview.wire.route import Route

PREFIX: Final = "/v1/hoodie/view"


def _get(name: str, path: str, of_answer: AnswerForm, *params: Param, hot: bool = False) -> Route:
    return Route(name, "GET", f"{PREFIX}/{path}", params, of_answer, synced=True, hot=hot)


def _whole(name: str, path: str, of_item: AnswerForm, *params: Param, by_partition: bool) -> Route:
    """Return the route of a query of the whole table."""
    many = of_item.many()
    route = _get(name, path, of_item.by_partition() if by_partition else many, *params)
    return replace(route, part_form=many, by_partition=by_partition)


def _timeline_get(name: str, path: str, of_answer: AnswerForm, ask: Callable[..., Any]) -> Route:
    return Route(name, "GET", f"{PREFIX}/{path}", (), of_answer, ask=ask)


def _post(name: str, path: str, *params: Param, ask: Callable[..., Any] | None = None) -> Route:
    return Route(name, "POST", f"{PREFIX}/{path}", params, form.DONE, ask=ask)


ROUTES: Final[tuple[Route, ...]] = (
    _get(
        "latest_base_files",
        "datafiles/latest/partition",
        form.BASE_FILE.many(),
        PARTITION,
        hot=True,
    ),
    _get(
        "latest_base_file",
        "datafile/latest/partition",
        form.BASE_FILE.optional(),
        PARTITION,
        FILE_ID,
        hot=True,
    ),
    _whole("all_latest_base_files", "datafiles/all/latest/", form.BASE_FILE, by_partition=False),
    _get(
        "latest_base_files_before_or_on",
        "datafiles/beforeoron/latest/",
        form.BASE_FILE.many(),
        PARTITION,
        MAX_INSTANT,
        hot=True,
    ),
    _whole(
        "all_latest_base_files_before_or_on",
        "basefiles/all/beforeoron/",
        form.BASE_FILE,
        MAX_INSTANT,
        by_partition=True,
    ),
    _get(
        "base_file_on",
        "datafile/on/latest/",
        form.BASE_FILE.optional(),
        PARTITION,
        INSTANT,
        FILE_ID,
    ),
    _get("all_base_files", "datafiles/all", form.BASE_FILE.many(), PARTITION),
    _whole(
        "latest_base_files_in_range",
        "datafiles/range/latest/",
        form.BASE_FILE,
        INSTANTS,
        by_partition=False,
    ),
    _get(
        "latest_file_slices",
        "slices/partition/latest/",
        form.FILE_SLICE.many(),
        PARTITION,
        hot=True,
    ),
    _get(
        "latest_file_slices_including_inflight",
        "slices/partition/latest/inflight/",
        form.FILE_SLICE.many(),
        PARTITION,
    ),
    _get(
        "latest_file_slices_stateless",
        "slices/partition/latest/stateless/",
        form.FILE_SLICE.many(),
        PARTITION,
        hot=True,
    ),
    _get(
        "latest_file_slice",
        "slices/file/latest/",
        form.FILE_SLICE.optional(),
        PARTITION,
        FILE_ID,
        hot=True,
    ),
    _get(
        "latest_uncompacted_file_slices",
        "slices/uncompacted/partition/latest/",
        form.FILE_SLICE.many(),
        PARTITION,
    ),
    _get("all_file_slices", "slices/all", form.FILE_SLICE.many(), PARTITION),
    _get(
        "latest_merged_file_slices_before_or_on",
        "slices/merged/beforeoron/latest/",
        form.FILE_SLICE.many(),
        PARTITION,
        MAX_INSTANT,
        hot=True,
    ),
    _get(
        "latest_merged_file_slices_before_or_on_including_inflight",
        "slices/merged/beforeoron/inflight/latest/",
        form.FILE_SLICE.many(),
        PARTITION,
        MAX_INSTANT,
        CURRENT_INSTANT,
    ),
    _get(
        "latest_merged_file_slice_before_or_on",
        "slice/merged/beforeoron/latest/",
        form.FILE_SLICE.optional(),
        PARTITION,
        MAX_INSTANT,
        FILE_ID,
    ),
    _whole(
        "latest_file_slices_in_range",
        "slices/range/latest/",
        form.FILE_SLICE,
        INSTANTS,
        by_partition=False,
    ),
    _get(
        "latest_file_slices_before_or_on",
        "slices/beforeoron/latest/",
        form.FILE_SLICE.many(),
        PARTITION,
        MAX_INSTANT,
        PENDING_COMPACTION,
        hot=True,
    ),
    _whole(
        "all_latest_file_slices_before_or_on",
        "slices/all/beforeoron/latest/",
        form.FILE_SLICE,
        MAX_INSTANT,
        by_partition=True,
    ),
    _get("pending_compaction_operations", "compactions/pending/", form.COMPACTIONS),
    _get("pending_log_compaction_operations", "logcompactions/pending/", form.COMPACTIONS),
    _get("all_file_groups", "filegroups/all/partition/", form.FILE_GROUPS, PARTITION),
    _get(
        "all_file_groups_stateless",
        "filegroups/all/partition/stateless/",
        form.FILE_GROUPS,
        PARTITION,
    ),
    _get(
        "replaced_file_groups_before_or_on",
        "filegroups/replaced/beforeoron/",
        form.FILE_GROUPS,
        PARTITION,
        MAX_INSTANT_OPTIONAL,
    ),
    _get(
        "replaced_file_groups_before",
        "filegroups/replaced/before/",
        form.FILE_GROUPS,
        PARTITION,
        MAX_INSTANT_OPTIONAL,
    ),
    _get(
        "replaced_file_groups_after_or_on",
        "filegroups/replaced/afteroron/",
        form.FILE_GROUPS,
        PARTITION,
        MIN_INSTANT_OPTIONAL,
    ),
    _get("all_replaced_file_groups", "filegroups/replaced/partition/", form.FILE_GROUPS, PARTITION),
    _get("file_groups_in_pending_clustering", "clustering/pending/", form.CLUSTERINGS),
    _timeline_get(
        "last_instant",
        "timeline/instant/last",
        form.INSTANT.optional(),
        lambda view: view.last_instant(),
    ),
    _timeline_get("timeline", "timeline/instants/all", form.TIMELINE, lambda view: view.timeline),
    _post("sync", "refresh/", ask=lambda view: view.refresh()),
    _post("load_partitions", "loadpartitions/", PARTITIONS),
    _post("load_all_partitions", "loadallpartitions/"),
)

BY_NAME: Final[Mapping[str, Route]] = {route.name: route for route in ROUTES}
BY_PATH: Final[Mapping[tuple[str, str], Route]] = {
    (route.method, route.path.rstrip("/")): route for route in ROUTES
}
"""(method, path without trailing slash) → route."""

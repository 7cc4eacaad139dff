"""The route table: every view endpoint with its parameters, the view's method and the JSON form.

A ``Route`` has what an endpoint takes, what it asks of a view, and what it answers: its
``AnswerForm``, made of the JSON forms of the values in the answer.

The service serves these routes, hot path included, and ``executor_proxy.remote_view`` calls them.
Both read this table, so their paths, parameters and forms can't differ.

Source: Hudi 1.2.0 ``RequestHandler``, ``RemoteHoodieTableFileSystemView``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fsview.model.file_system_view import OF_PARTITIONS
from fsview.wire import json_form as wire
from fsview.wire.column_form import COLUMNS, is_in_columns, read_columns, write_columns
from fsview.wire.json_form import PathForms, check_partition, checked
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
from timeline.encoding.json_text import bounded_loads, dumps
from timeline.errors import BadAnswerError, InputError
from timeline.storage.base import checked_path

Dto = Callable[[Any, PathForms], Any]


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The conversion of an answer to a JSON value and back.

    Attributes:
        to_dto: Converts a view's answer to a JSON value.
        from_dto: Converts a JSON value to what the view's method returns.
    """

    to_dto: Dto
    from_dto: Dto

    def many(self) -> AnswerForm:
        """Return the form of a list of these."""
        return AnswerForm(
            lambda answer, paths: [self.to_dto(item, paths) for item in answer],
            lambda dto, paths: tuple(self.from_dto(item, paths) for item in checked(dto, list)),
        )

    def optional(self) -> AnswerForm:
        """Return the form of at most one of these: a list that may be empty."""
        return AnswerForm(
            lambda answer, paths: [] if answer is None else [self.to_dto(answer, paths)],
            lambda dto, paths: self.from_dto(dto[0], paths) if checked(dto, list) else None,
        )

    def by_partition(self) -> AnswerForm:
        """Return the form of a map from partition to a list of these."""
        many = self.many()

        def read(dto: Any, paths: PathForms) -> dict[str, Any]:
            answer = {}
            for key, items in checked(dto, dict).items():
                answer[checked_path(key)] = found = many.from_dto(items, paths)
                check_partition(found, key)
            return answer

        return AnswerForm(
            lambda answer, paths: {key: many.to_dto(found, paths) for key, found in answer.items()},
            read,
        )


BASE_FILE: Final = AnswerForm(wire.base_file_dto, wire.read_base_file)
BASE_FILES: Final = BASE_FILE.many()
ONE_BASE_FILE: Final = BASE_FILE.optional()
FILE_SLICE: Final = AnswerForm(wire.file_slice_dto, wire.read_file_slice)
FILE_SLICES: Final = FILE_SLICE.many()
ONE_FILE_SLICE: Final = FILE_SLICE.optional()
FILE_GROUPS: Final = AnswerForm(
    wire.file_groups_dto,
    lambda dto, paths: wire.read_file_groups(checked(dto, list), paths),
)
COMPACTIONS: Final = AnswerForm(wire.compaction_dto, wire.read_compaction).many()
CLUSTERINGS: Final = AnswerForm(wire.clustering_dto, wire.read_clustering).many()
ONE_INSTANT: Final = AnswerForm(wire.instant_dto, wire.read_instant).optional()
TIMELINE: Final = AnswerForm(wire.timeline_dto, wire.read_timeline)
DONE: Final = AnswerForm(lambda _, __: True, lambda _, __: None)
"""The answer ``true`` of routes that return nothing."""


JSON: Final = "application/json"
"""Media type of errors with codes, in the ``Accept`` header. Answers in Hudi's form are sent as
``text/plain`` whatever it says."""


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint.

    Attributes:
        name: The view's method (or property) that answers.
        method: ``GET`` or ``POST``.
        path: The whole path as Java's client writes it; a trailing slash makes no difference.
        params: Parameters beyond ``basepath``, ``lastinstantts`` and ``timelinehash``.
        form: The answer's JSON form.
        synced: Whether the answer must be at the caller's timeline.
        hot: Whether writers ask it in their inner loops, so that ready bytes pay.
        ask: Asks the view, where that isn't calling the method ``name``.
        part_form: JSON form, always a list, of one partition's part in an answer about the whole
            table; ``None`` for other answers.
        by_partition: Whether such an answer is an object keyed by partition; else it is one list.
    """

    name: str
    method: str
    path: str
    params: tuple[Param, ...]
    form: AnswerForm
    synced: bool = False
    hot: bool = False
    ask: Callable[..., Any] | None = None
    part_form: AnswerForm | None = None
    by_partition: bool = False

    @property
    def of_partition(self) -> bool:
        """Whether the answer is about the one partition in the request."""
        return bool(self.params) and self.params[0] is PARTITION

    @property
    def has_columns(self) -> bool:
        """Whether its answer has a form in columns, too (``fsview.wire.column_form``)."""
        return self.name in OF_PARTITIONS

    @property
    def accept(self) -> str:
        """The ``Accept`` header of a request: the media types of answers, and of errors."""
        return f"{COLUMNS}, {JSON}" if self.has_columns else JSON

    def arguments(self, params: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments of the view's method that a query string holds.

        Raises:
            InputError: A parameter is missing or can't be read.
        """
        arguments = {}
        for param in self.params:
            text = params.get(param.name)
            if text is None:
                if param.required:
                    raise InputError(
                        f"{self.path} needs the parameter {param.name!r}, which is missing"
                    )
                text = ""
            arguments[param.argument] = param.read(text)
        return arguments

    def query(self, **arguments: Any) -> dict[str, str]:
        """Return the parameters that carry these arguments; the inverse of ``arguments``."""
        return {param.name: param.write(arguments[param.argument]) for param in self.params}

    def answer(self, view: Any, arguments: Mapping[str, Any]) -> Any:
        """Return the view's answer to a request with these arguments."""
        if self.ask is not None:
            return self.ask(view, **arguments)
        return view.ask(self.name, **arguments)

    def encode(self, answer: Any, paths: PathForms) -> bytes:
        """Return the body for an answer, with paths in the form of the caller's base path."""
        return dumps(self.form.to_dto(answer, paths))

    def encode_parts(self, parts: Iterable[tuple[str, Any]], paths: PathForms) -> Iterator[bytes]:
        """Yield the body that ``encode`` makes of a whole table's answer, partition by partition.

        Args:
            parts: (partition, its part of the answer), in the answer's order.
            paths: As in ``encode``.
        """
        assert self.part_form is not None, f"{self.name} isn't about the whole table"
        first, last = (b"{", b"}") if self.by_partition else (b"[", b"]")
        before = first
        for partition, answer in parts:
            part = dumps(self.part_form.to_dto(answer, paths))
            if self.by_partition:
                yield before + dumps(partition) + b":" + part
            elif len(part) > len(b"[]"):
                yield before + part[1:-1]
            else:
                continue
            before = b","
        yield last if before == b"," else first + last

    def encode_columns(self, answer: Any) -> bytes:
        """Return the body for an answer in columns, of a route that has them."""
        return write_columns(self.name, answer)

    def decode(self, body: bytes, paths: PathForms, *, partition: str | None = None) -> Any:
        """Return the answer that a body holds, in whichever form.

        Args:
            body: The body.
            paths: The forms of the caller's base path.
            partition: The partition that was asked for, which columns don't name; ``None`` if none
                was.

        Raises:
            BadAnswerError: The body isn't an answer of this route.
        """
        try:
            return self._decoded(body, paths, partition)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            start = body[:200].decode("utf-8", "replace")
            raise BadAnswerError(
                f"{self.path} answered {start!r} ({len(body)} bytes): {type(exc).__name__}: {exc}"
            ) from exc

    def _decoded(self, body: bytes, paths: PathForms, partition: str | None) -> Any:
        if self.has_columns and is_in_columns(body):
            return read_columns(self.name, partition or "", bounded_loads(body))
        answer = self.form.from_dto(bounded_loads(body), paths)
        if partition is not None:
            check_partition(answer, partition.removesuffix("/"))
        return answer


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

"""The one route table: every view endpoint, what it takes, what it asks of a view, what it answers.

The service serves these routes, its hot path included, and ``executor_proxy.remote`` calls them:
both read this table, so neither can have a path, a parameter or a form that the other hasn't.

Source: Hudi 1.2.0 ``RequestHandler``, ``RemoteHoodieTableFileSystemView``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fsview.wire import json_form as wire
from fsview.wire.json_form import PathForms
from timeline.encoding.json_text import dumps, loads
from timeline.errors import BadAnswerError, InputError

PREFIX: Final = "/v1/hoodie/view"

BASE_PATH: Final = "basepath"
LAST_INSTANT: Final = "lastinstantts"
TIMELINE_HASH: Final = "timelinehash"
REFRESH_OFF: Final = "refreshoff"
NO_INSTANT: Final = "0"
"""What ``lastinstantts`` is when a caller with an empty timeline leaves it out."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter in the query string.

    Attributes:
        name: Its name there.
        argument: Its name as an argument of the view's method.
        required: Whether it must be there; an empty value counts as being there.
        read: Text to value.
        write: Value to text.
    """

    name: str
    argument: str
    required: bool = True
    read: Callable[[str], Any] = str
    write: Callable[[Any], str] = str


Dto = Callable[[Any, PathForms], Any]


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint.

    Attributes:
        name: The view's method (or property) that it asks.
        method: ``GET`` or ``POST``.
        path: The whole path as Java's client writes it; a trailing slash more or less is the same.
        params: Beyond ``basepath``, ``lastinstantts`` and ``timelinehash``.
        synced: Whether the answer must be at the caller's timeline (rest.md section 4.3).
        hot: Whether writers ask it in their inner loops, so that ready bytes pay.
        to_dto: The view's answer to a JSON value.
        from_dto: A JSON value to what the view's method returns.
        ask: Asks the view, where that isn't calling the method ``name``.
        part_to_dto: Of an answer about the whole table, what one partition has to it, which is a
            JSON list.
        by_partition: Whether such an answer names the partitions; else it is one list.
    """

    name: str
    method: str
    path: str
    params: tuple[Param, ...]
    synced: bool
    hot: bool
    to_dto: Dto
    from_dto: Dto
    ask: Callable[..., Any] | None = None
    part_to_dto: Dto | None = None
    by_partition: bool = False

    @property
    def of_partition(self) -> bool:
        """Whether the answer speaks of the one partition in the request."""
        return bool(self.params) and self.params[0] is PARTITION

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
        """Return the parameters that carry these arguments."""
        return {param.name: param.write(arguments[param.argument]) for param in self.params}

    def answer(self, view: Any, params: Mapping[str, str]) -> Any:
        """Ask a view what a request with these parameters asks."""
        arguments = self.arguments(params)
        if self.ask is not None:
            return self.ask(view, **arguments)
        return view.ask(self.name, **arguments)

    def encode(self, answer: Any, paths: PathForms) -> bytes:
        """Return the body that says ``answer`` to a caller who spells the base path so."""
        return dumps(self.to_dto(answer, paths))

    def encode_parts(self, parts: Iterable[tuple[str, Any]], paths: PathForms) -> Iterator[bytes]:
        """Yield the body that ``encode`` makes of a whole table, a partition at a time.

        Args:
            parts: Partition and what it has to the answer, in order.
            paths: As in ``encode``.
        """
        assert self.part_to_dto is not None, f"{self.name} isn't of the whole table"
        first, last = (b"{", b"}") if self.by_partition else (b"[", b"]")
        before = first
        for partition, answer in parts:
            said = dumps(self.part_to_dto(answer, paths))
            if self.by_partition:
                yield before + dumps(partition) + b":" + said
            elif len(said) > len(b"[]"):
                yield before + said[1:-1]
            else:
                continue
            before = b","
        yield last if before == b"," else first + last

    def decode(self, body: bytes, paths: PathForms) -> Any:
        """Return what a body says.

        Raises:
            BadAnswerError: It isn't what this route answers.
        """
        try:
            return self.from_dto(loads(body), paths)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            said = body[:200].decode("utf-8", "replace")
            raise BadAnswerError(
                f"{self.path} answered {said!r} ({len(body)} bytes): {type(exc).__name__}: {exc}"
            ) from exc


_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs, which JSON can escape and no path can hold."""


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


MOST_PARTITIONS: Final = 100_000
"""Partitions of one ``loadpartitions/``; each may cost a listing."""


def _json_words(text: str) -> tuple[str, ...]:
    try:
        # As integers, long numbers would take long to read.
        words = json.loads(text, parse_int=float)
    except (ValueError, RecursionError) as exc:  # not JSON, or nested too deep
        raise InputError(f"partitions={text[:200]!r} is not a JSON list of strings: {exc}") from exc
    if (
        not isinstance(words, list)
        or not all(isinstance(word, str) for word in words)
        or any(_HALF_PAIR.search(word) for word in words)
    ):
        raise InputError(f"partitions={text[:200]!r} is not a JSON list of strings")
    if len(words) > MOST_PARTITIONS:
        raise InputError(
            f"partitions={text[:100]!r}... names {len(words)} partitions; allowed: at most"
            f" {MOST_PARTITIONS}",
            hint="loadallpartitions/ loads all of a table",
        )
    return tuple(words)


PARTITION: Final = Param("partition", "partition", required=False)
_FILE_ID: Final = Param("fileid", "file_id")
_MAX: Final = Param("maxinstant", "max_instant")
_MAX_OPTIONAL: Final = Param("maxinstant", "max_instant", required=False)
_MIN_OPTIONAL: Final = Param("mininstant", "min_instant", required=False)
_INSTANT: Final = Param("instant", "instant")
_CURRENT: Final = Param("currentinstant", "current_instant")
_INSTANTS: Final = Param("instants", "instants", read=_words, write=",".join)
_PENDING: Final = Param(
    "includependingcompaction",
    "include_pending_compaction",
    read=_boolean,
    write=lambda value: str(value).lower(),
)
_PARTITIONS: Final = Param(
    "partitions",
    "partitions",
    read=_json_words,
    write=lambda words: json.dumps(list(words), ensure_ascii=False),
)


def _checked(dto: Any, kind: type) -> Any:
    """Return a JSON value that must be of a kind: an empty object is not an empty list of files."""
    if not isinstance(dto, kind):
        raise TypeError(f"a {type(dto).__name__} where a {kind.__name__} belongs")
    return dto


@dataclass(frozen=True, slots=True)
class _Form:
    """An answer's form, there and back."""

    to_dto: Dto
    from_dto: Dto

    def many(self) -> _Form:
        """Return the form of a list of these."""
        return _Form(
            lambda answer, paths: [self.to_dto(item, paths) for item in answer],
            lambda dto, paths: tuple(self.from_dto(item, paths) for item in _checked(dto, list)),
        )

    def optional(self) -> _Form:
        """Return the form of at most one of these: a list that may be empty."""
        return _Form(
            lambda answer, paths: [] if answer is None else [self.to_dto(answer, paths)],
            lambda dto, paths: self.from_dto(dto[0], paths) if _checked(dto, list) else None,
        )

    def by_partition(self) -> _Form:
        """Return the form of a map from partition to a list of these."""
        many = self.many()
        return _Form(
            lambda answer, paths: {key: many.to_dto(found, paths) for key, found in answer.items()},
            lambda dto, paths: {
                key: many.from_dto(found, paths) for key, found in _checked(dto, dict).items()
            },
        )


_BASE: Final = _Form(wire.base_file_dto, wire.read_base_file)
_SLICE: Final = _Form(wire.file_slice_dto, wire.read_file_slice)
_GROUPS: Final = _Form(
    wire.file_groups_dto,
    lambda dto, paths: wire.read_file_groups(_checked(dto, list), paths),
)
_COMPACTIONS: Final = _Form(wire.compaction_dto, wire.read_compaction).many()
_CLUSTERINGS: Final = _Form(wire.clustering_dto, wire.read_clustering).many()
_ONE_INSTANT: Final = _Form(wire.instant_dto, wire.read_instant).optional()
_TIMELINE: Final = _Form(wire.timeline_dto, wire.read_timeline)
_DONE: Final = _Form(lambda _, __: True, lambda _, __: None)


def _get(name: str, path: str, form: _Form, *params: Param, hot: bool = False) -> Route:
    return Route(name, "GET", f"{PREFIX}/{path}", params, True, hot, form.to_dto, form.from_dto)


def _whole(name: str, path: str, form: _Form, *params: Param, by_partition: bool) -> Route:
    """Return the route of a query of the whole table; ``form`` is that of an item."""
    whole = form.by_partition() if by_partition else form.many()
    route = _get(name, path, whole, *params)
    return replace(route, part_to_dto=form.many().to_dto, by_partition=by_partition)


def _timeline_get(name: str, path: str, form: _Form, ask: Callable[..., Any]) -> Route:
    return Route(name, "GET", f"{PREFIX}/{path}", (), False, False, form.to_dto, form.from_dto, ask)


def _post(name: str, path: str, *params: Param, ask: Callable[..., Any] | None = None) -> Route:
    return Route(
        name, "POST", f"{PREFIX}/{path}", params, False, False, _DONE.to_dto, _DONE.from_dto, ask
    )


ROUTES: Final[tuple[Route, ...]] = (
    _get("latest_base_files", "datafiles/latest/partition", _BASE.many(), PARTITION, hot=True),
    _get(
        "latest_base_file",
        "datafile/latest/partition",
        _BASE.optional(),
        PARTITION,
        _FILE_ID,
        hot=True,
    ),
    _whole("all_latest_base_files", "datafiles/all/latest/", _BASE, by_partition=False),
    _get(
        "latest_base_files_before_or_on",
        "datafiles/beforeoron/latest/",
        _BASE.many(),
        PARTITION,
        _MAX,
        hot=True,
    ),
    _whole(
        "all_latest_base_files_before_or_on",
        "basefiles/all/beforeoron/",
        _BASE,
        _MAX,
        by_partition=True,
    ),
    _get("base_file_on", "datafile/on/latest/", _BASE.optional(), PARTITION, _INSTANT, _FILE_ID),
    _get("all_base_files", "datafiles/all", _BASE.many(), PARTITION),
    _whole(
        "latest_base_files_in_range",
        "datafiles/range/latest/",
        _BASE,
        _INSTANTS,
        by_partition=False,
    ),
    _get("latest_file_slices", "slices/partition/latest/", _SLICE.many(), PARTITION, hot=True),
    _get(
        "latest_file_slices_including_inflight",
        "slices/partition/latest/inflight/",
        _SLICE.many(),
        PARTITION,
    ),
    _get(
        "latest_file_slices_stateless",
        "slices/partition/latest/stateless/",
        _SLICE.many(),
        PARTITION,
        hot=True,
    ),
    _get(
        "latest_file_slice",
        "slices/file/latest/",
        _SLICE.optional(),
        PARTITION,
        _FILE_ID,
        hot=True,
    ),
    _get(
        "latest_uncompacted_file_slices",
        "slices/uncompacted/partition/latest/",
        _SLICE.many(),
        PARTITION,
    ),
    _get("all_file_slices", "slices/all", _SLICE.many(), PARTITION),
    _get(
        "latest_merged_file_slices_before_or_on",
        "slices/merged/beforeoron/latest/",
        _SLICE.many(),
        PARTITION,
        _MAX,
        hot=True,
    ),
    _get(
        "latest_merged_file_slices_before_or_on_including_inflight",
        "slices/merged/beforeoron/inflight/latest/",
        _SLICE.many(),
        PARTITION,
        _MAX,
        _CURRENT,
    ),
    _get(
        "latest_merged_file_slice_before_or_on",
        "slice/merged/beforeoron/latest/",
        _SLICE.optional(),
        PARTITION,
        _MAX,
        _FILE_ID,
    ),
    _whole(
        "latest_file_slices_in_range",
        "slices/range/latest/",
        _SLICE,
        _INSTANTS,
        by_partition=False,
    ),
    _get(
        "latest_file_slices_before_or_on",
        "slices/beforeoron/latest/",
        _SLICE.many(),
        PARTITION,
        _MAX,
        _PENDING,
        hot=True,
    ),
    _whole(
        "all_latest_file_slices_before_or_on",
        "slices/all/beforeoron/latest/",
        _SLICE,
        _MAX,
        by_partition=True,
    ),
    _get("pending_compaction_operations", "compactions/pending/", _COMPACTIONS),
    _get("pending_log_compaction_operations", "logcompactions/pending/", _COMPACTIONS),
    _get("all_file_groups", "filegroups/all/partition/", _GROUPS, PARTITION),
    _get("all_file_groups_stateless", "filegroups/all/partition/stateless/", _GROUPS, PARTITION),
    _get(
        "replaced_file_groups_before_or_on",
        "filegroups/replaced/beforeoron/",
        _GROUPS,
        PARTITION,
        _MAX_OPTIONAL,
    ),
    _get(
        "replaced_file_groups_before",
        "filegroups/replaced/before/",
        _GROUPS,
        PARTITION,
        _MAX_OPTIONAL,
    ),
    _get(
        "replaced_file_groups_after_or_on",
        "filegroups/replaced/afteroron/",
        _GROUPS,
        PARTITION,
        _MIN_OPTIONAL,
    ),
    _get("all_replaced_file_groups", "filegroups/replaced/partition/", _GROUPS, PARTITION),
    _get("file_groups_in_pending_clustering", "clustering/pending/", _CLUSTERINGS),
    _timeline_get(
        "last_instant", "timeline/instant/last", _ONE_INSTANT, lambda view: view.last_instant()
    ),
    _timeline_get("timeline", "timeline/instants/all", _TIMELINE, lambda view: view.timeline),
    _post("sync", "refresh/", ask=lambda view: view.refresh()),
    _post("load_partitions", "loadpartitions/", _PARTITIONS),
    _post("load_all_partitions", "loadallpartitions/"),
)

BY_NAME: Final[Mapping[str, Route]] = {route.name: route for route in ROUTES}
BY_PATH: Final[Mapping[tuple[str, str], Route]] = {
    (route.method, route.path.rstrip("/")): route for route in ROUTES
}
"""(method, path without trailing slash) → route."""

"""``Route``: one endpoint of a view: what it takes, what it asks of a view, what it answers.

Its ``AnswerForm`` is made of the JSON forms of the values in the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fsview.model.file_system_view import OF_PARTITIONS
from fsview.wire import json_form as wire
from fsview.wire.column_form import COLUMNS, is_in_columns, read_columns, write_columns
from fsview.wire.json_form import PathForms, check_partition, checked
from fsview.wire.param import PARTITION, Param
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

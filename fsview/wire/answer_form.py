"""The JSON form of each kind of answer, made of the forms of the values in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fsview.wire import json_form as wire
from fsview.wire.json_form import PathForms, check_partition, checked
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

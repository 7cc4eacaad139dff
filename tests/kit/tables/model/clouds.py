"""Rules for the answers about a group of which files in flight were listed.

In such a group files in flight may be shown or not, and a log that is being appended to may have
any size. Everything else is determined:

* questions for all slices show every other file, and none that isn't there; in version 6, where
  a log's name has its slice, each in its slice. From version 8 on a base file in flight begins a
  slice that takes later logs in;
* questions for one slice of each group may be answered with a slice in flight. Else it has, in
  version 6, exactly the known files of that slice; later, only files of the group, as logs may be
  in a slice in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.kit.tables.model.truth import Group, SliceShown, Truth, shown

ALL: Final = frozenset({"all_file_slices", "all_replaced_file_groups"})
SHOW_IN_FLIGHT: Final = ALL | {
    "latest_uncompacted_file_slices",
    "latest_merged_file_slices_before_or_on",
    "latest_file_slices_before_or_on",
}
"""Questions whose answers may contain files in flight in every version."""

Known = dict[str, frozenset[tuple[str, int]]]
"""Base instant → (name, size) of the files of its slice."""


def may_show_in_flight(name: str, truth: Truth) -> bool:
    """Return whether the answer to a question may contain files in flight."""
    return name in SHOW_IN_FLIGHT or ("slices" in name and not truth.logs_by_completion)


def without(answer: list[Any], file_ids: Collection[str]) -> list[Any]:
    """Return an answer without the slices of some groups; base files are kept."""
    return [item for item in answer if len(item) == 2 or item[0] not in file_ids]


@dataclass
class Cloud:
    """Files of a group that were seen in flight and aren't settled as of a truth.

    Attributes:
        truth: The truth.
        group: The group.
        times: Requested times of the writes.
        names: Of their files.
    """

    truth: Truth
    group: Group
    times: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def allows(self, question: str, answer: list[SliceShown], right: list[SliceShown]) -> bool:
        """Return whether an answer is right for this group, by the module's rules."""
        said, due = self._known(answer), self._known(right)
        if said == due:
            return True
        there = self._known([shown(self.group[1], s) for s in self.truth.slices(self.group)])
        by_name = not self.truth.logs_by_completion
        if question in ALL:
            return not by_name and _files(said) == _files(due)
        if by_name:
            return all(files == there.get(start, frozenset()) for start, files in said.items())
        return _files(said) <= _files(there)

    def _known(self, answer: Iterable[SliceShown]) -> Known:
        """Return the files of this group's slices that aren't in flight; slices without are left
        out."""
        truly = {file.name for file in self.truth.files.values() if file.group == self.group}
        found: Known = {}
        for file_id, start, base, logs in answer:
            if file_id != self.group[1]:
                continue
            files = [*([] if base is None else [base]), *logs]
            known = [
                (name, 0 if name in self.names else size)
                for name, size in files
                if name in truly or name not in self.names
            ]
            if known:
                found[start] = frozenset(known)
        return found


def _files(known: Known) -> frozenset[tuple[str, int]]:
    return frozenset(file for files in known.values() for file in files)

"""Compares a view's answers with the truth, in the truth's form.

Whether a view shows files in flight depends on whether it listed the partition while they existed,
which no instant tells. A ``Watcher`` therefore records which files were in flight at each listing.
Until their writes settle, a group with such files is *clouded*: questions that may show them (in
version 6 any question about slices) are compared by the rules of ``clouds`` beside this module. All
other groups and questions must match in every field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fsview.check.partition_checker import CAUSE as CHECK
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.model.file_group import BaseFile, CompactionOperation, FileGroup, FileSlice
from fsview.table_view import TableView
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.model.clouds import Cloud, may_show_in_flight, without
from tests.kit.tables.model.table import ModelTable
from tests.kit.tables.model.truth import FileShown, Group, Operation, SliceShown, Truth
from timeline.errors import ViewBehindError
from timeline.storage.base import FileInfo

NOW = (
    "latest_base_files",
    "all_base_files",
    "latest_file_slices",
    "all_file_slices",
    "latest_uncompacted_file_slices",
    "all_replaced_file_groups",
)
Question = tuple[str, tuple[Any, ...]]


def questions(as_of: str) -> list[Question]:
    """Return the questions about a partition: (method name, arguments after the partition)."""
    return [
        *((name, ()) for name in NOW),
        ("latest_base_files_before_or_on", (as_of,)),
        ("latest_merged_file_slices_before_or_on", (as_of,)),
        ("latest_file_slices_before_or_on", (as_of, True)),
        ("latest_file_slices_before_or_on", (as_of, False)),
    ]


class NotedStorage(MemoryStorage):
    """A table's storage with counters of its own; records what is in flight at each listing.

    Attributes:
        table: The table.
        listed: How often each directory was listed, without checks.
        seen_in_flight: Group, requested time and name of the files that were in flight when their
            partition was listed.
        then: Path → action to run after its next listing.
        calls_until_then: Calls between the listing and the action.
    """

    def __init__(self, table: ModelTable) -> None:
        super().__init__(now_ms=table.clock.now_ms)
        self.base_path, self.files = table.storage.base_path, table.storage.files
        self.table = table
        self.listed: Counter[str] = Counter()
        self.seen_in_flight: set[tuple[Group, str, str]] = set()
        self.then: dict[str, Callable[[], None]] = {}
        self.calls_until_then = 0

    def for_cause(self, cause: str) -> NotedStorage:
        other = object.__new__(NotedStorage)
        other.__dict__.update(self.__dict__)
        other._cause = cause
        return other

    def list(self, path: str) -> tuple[FileInfo, ...]:
        self.listed[path] += self._cause != CHECK
        self.note(path)
        found = super().list(path)
        then = self.then.pop(path, None)
        if then is not None:
            self._happens(then)
        return found

    def _happens(self, then: Callable[[], None]) -> None:
        """Run the action now, or before a later call."""
        if self.calls_until_then == 0:
            then()
            return
        left = iter(range(self.calls_until_then))

        def before_call(_kind: str, _path: str) -> None:
            if next(left, None) is None:
                self.fail.remove(before_call)
                then()

        self.fail.append(before_call)

    def nothing_more(self) -> None:
        """Cancel the actions that haven't run."""
        self.then.clear()
        self.fail.clear()
        self.calls_until_then = 0

    def note(self, path: str | None = None) -> None:
        """Record what is in flight now, in one partition or in all."""
        for group, time, name in self.table.in_flight():
            if path is None or group[0] == path:
                self.seen_in_flight.add((group, time, name))


class Watcher:
    """A view that follows a table, as in a server."""

    def __init__(self, table: ModelTable, retained: int = 64) -> None:
        self.storage = NotedStorage(table)
        self.metrics = Metrics()
        self.view = TableView(self.storage, metrics=self.metrics, retained_snapshots=retained)

    def clouds(self, truth: Truth, partition: str) -> dict[str, Cloud]:
        """Return the clouded groups as of a truth."""
        found: dict[str, Cloud] = {}
        for (place, file_id), time, name in self.storage.seen_in_flight:
            if place == partition and time not in truth.settled:
                cloud = found.setdefault(file_id, Cloud(truth, (partition, file_id)))
                cloud.times.add(time)
                cloud.names.add(name)
        return found

    def differences(
        self, view: LocalView, truth: Truth, partition: str, as_of: str
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yield (question, answer, expected) for each wrong answer of a view.

        The answer is ``None`` where the view refuses.
        """
        for name, arguments in questions(as_of):
            right = getattr(truth, name)(partition, *arguments)
            try:
                answer = shape(getattr(view, name)(partition, *arguments))
            except ViewBehindError:
                yield name, None, right
                continue
            if not self._is_right(name, answer, right, truth, partition):
                yield f"{name}{arguments} of {partition}", answer, right

    def _is_right(
        self, name: str, answer: list[Any], right: list[Any], truth: Truth, partition: str
    ) -> bool:
        if answer == right:
            return True
        if not may_show_in_flight(name, truth):
            return False
        clouds = self.clouds(truth, partition)
        return without(answer, clouds) == without(right, clouds) and all(
            cloud.allows(name, answer, right) for cloud in clouds.values()
        )


def said(view: LocalView, partition: str, as_of: str, which: slice = slice(None)) -> dict[str, Any]:
    """Return a view's answers by question, of all or of some; ``None`` for a refusal."""
    answers: dict[str, Any] = {}
    for name, arguments in questions(as_of)[which]:
        asked = f"{name}{arguments} of {partition}"
        try:
            answers[asked] = shape(getattr(view, name)(partition, *arguments))
        except ViewBehindError:
            answers[asked] = None
    return answers


def shape(answer: Any) -> list[FileShown] | list[SliceShown]:
    """Return a view's answer in the truth's form."""
    found: list[Any] = []
    for item in answer:
        if isinstance(item, BaseFile):
            found.append((item.name, item.size))
        elif isinstance(item, FileSlice):
            found.append(_shape_of_slice(item))
        elif isinstance(item, FileGroup):
            found += map(_shape_of_slice, item.slices)
        else:
            raise TypeError(f"{item!r} is nothing that a truth knows")
    return found


def _shape_of_slice(found: FileSlice) -> SliceShown:
    base = found.base_file
    logs = tuple((log.name, log.size) for log in found.log_files)
    return found.file_id, found.base_instant, base and (base.name, base.size), logs


def operations(found: tuple[CompactionOperation, ...]) -> set[tuple[str, Operation]]:
    """Return pending operations in the truth's form."""
    return {
        (
            op.compaction_instant,
            Operation((op.partition, op.file_id), op.base_instant, op.base_file, op.delta_files),
        )
        for op in found
    }


def plan_differences(view: LocalView, truth: Truth) -> Iterator[tuple[str, Any, Any]]:
    """Yield (question, answer, expected) for each wrong answer about plans at the newest state."""
    for name in ("pending_compaction_operations", "pending_log_compaction_operations"):
        answer, right = operations(getattr(view, name)()), getattr(truth, name)()
        if answer != right:
            yield name, answer, right
    clustering = {
        (op.instant.requested_time, (op.partition, op.file_id))
        for op in view.file_groups_in_pending_clustering()
    }
    if clustering != truth.file_groups_in_pending_clustering():
        yield "clustering", clustering, truth.file_groups_in_pending_clustering()


@dataclass
class Pin:
    """A client that stays where it is."""

    last_instant: str
    timeline_hash: str
    truth: Truth
    generation: int
    versions: int

    @classmethod
    def of(cls, table: ModelTable) -> Pin:
        """Return a client that reads the timeline now."""
        timeline = table.meta.active_timeline().client_timeline()
        last = "0" if timeline.last is None else timeline.last.requested_time
        truth = table.truth.copy()
        return cls(last, timeline.hash, truth, table.generation, table.versions)

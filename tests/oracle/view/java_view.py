"""Hudi's own file-system view, in the JVM of a Spark session, asked what our view is asked.

The questions go to the handlers of Hudi's timeline server, without HTTP: they answer with the DTO
classes that the server writes out, which the JVM turns into JSON here, all answers of a table in
one piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from fsview.wire.routes import BY_NAME
from tests.oracle.hudi import Hudi

BASE_FILES, SLICES, TIMELINE = "BaseFileHandler", "FileSliceHandler", "TimelineHandler"

METHODS = {
    "latest_base_files": (BASE_FILES, "getLatestDataFiles"),
    "latest_base_file": (BASE_FILES, "getLatestDataFile"),
    "all_latest_base_files": (BASE_FILES, "getLatestDataFiles"),
    "latest_base_files_before_or_on": (BASE_FILES, "getLatestDataFilesBeforeOrOn"),
    "all_latest_base_files_before_or_on": (BASE_FILES, "getAllLatestDataFilesBeforeOrOn"),
    "base_file_on": (BASE_FILES, "getLatestDataFileOn"),
    "all_base_files": (BASE_FILES, "getAllDataFiles"),
    "latest_base_files_in_range": (BASE_FILES, "getLatestDataFilesInRange"),
    "latest_file_slices": (SLICES, "getLatestFileSlices"),
    "latest_file_slices_including_inflight": (SLICES, "getLatestFileSlicesIncludingInflight"),
    "latest_file_slices_stateless": (SLICES, "getLatestFileSlicesStateless"),
    "latest_file_slice": (SLICES, "getLatestFileSlice"),
    "latest_uncompacted_file_slices": (SLICES, "getLatestUnCompactedFileSlices"),
    "all_file_slices": (SLICES, "getAllFileSlices"),
    "latest_merged_file_slices_before_or_on": (SLICES, "getLatestMergedFileSlicesBeforeOrOn"),
    "latest_merged_file_slices_before_or_on_including_inflight": (
        SLICES,
        "getLatestMergedFileSlicesBeforeOrOnIncludingInflight",
    ),
    "latest_merged_file_slice_before_or_on": (SLICES, "getLatestMergedFileSliceBeforeOrOn"),
    "latest_file_slices_in_range": (SLICES, "getLatestFileSliceInRange"),
    "latest_file_slices_before_or_on": (SLICES, "getLatestFileSlicesBeforeOrOn"),
    "all_latest_file_slices_before_or_on": (SLICES, "getAllLatestFileSlicesBeforeOrOn"),
    "pending_compaction_operations": (SLICES, "getPendingCompactionOperations"),
    "pending_log_compaction_operations": (SLICES, "getPendingLogCompactionOperations"),
    "all_file_groups": (SLICES, "getAllFileGroups"),
    "all_file_groups_stateless": (SLICES, "getAllFileGroupsStateless"),
    "replaced_file_groups_before_or_on": (SLICES, "getReplacedFileGroupsBeforeOrOn"),
    "replaced_file_groups_before": (SLICES, "getReplacedFileGroupsBefore"),
    "replaced_file_groups_after_or_on": (SLICES, "getReplacedFileGroupsAfterOrOn"),
    "all_replaced_file_groups": (SLICES, "getAllReplacedFileGroups"),
    "file_groups_in_pending_clustering": (SLICES, "getFileGroupsInPendingClustering"),
    "last_instant": (TIMELINE, "getLastInstant"),
    "timeline": (TIMELINE, "getTimeline"),
}
"""Method of our view → handler and method of Hudi's."""

INSTANT_FIRST = frozenset(
    {
        "replaced_file_groups_before_or_on",
        "replaced_file_groups_before",
        "replaced_file_groups_after_or_on",
    }
)
"""Methods of Hudi's that take the instant before the partition."""

ONLY_SINCE_1 = frozenset(
    {
        "latest_file_slices_including_inflight",
        "latest_merged_file_slices_before_or_on_including_inflight",
        "latest_merged_file_slice_before_or_on",
        # Release 0.15 answers these of tables with a metadata table only.
        "all_latest_base_files_before_or_on",
        "all_latest_file_slices_before_or_on",
    }
)
"""Questions that release 0.15 doesn't answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """A method of the view and its parameters, by the names that they have in requests."""

    name: str
    params: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.params)})"

    @property
    def arguments(self) -> list[Any]:
        """The arguments as Hudi's handlers take them, after the base path."""
        taken = BY_NAME[self.name].arguments(dict(self.params))
        values = [list(value) if isinstance(value, tuple) else value for value in taken.values()]
        return values[::-1] if self.name in INSTANT_FIRST else values


@dataclass(frozen=True, slots=True)
class Client:
    """What a client of Hudi's knows that reads a table's timeline.

    Attributes:
        partitions: Every partition, in order.
        last_instant: Requested time of the last instant that it sees, ``"0"`` if none.
        timeline_hash: Of what it sees.
    """

    partitions: tuple[str, ...]
    last_instant: str
    timeline_hash: str


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a view of Hudi's.

    Attributes:
        bodies: Question → the JSON value that Hudi's server would answer.
        failures: Question → what Hudi threw instead.
    """

    bodies: Mapping[Question, Any]
    failures: Mapping[Question, str]


def meta_client(hudi: Hudi, base_path: object) -> Any:
    """Return a ``HoodieTableMetaClient`` that has read the table's timeline now."""
    builder = hudi.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
    return builder.setConf(hudi.storage_conf).setBasePath(str(base_path)).build()


class JavaView:
    """Hudi's classes over the table at one path; nothing is kept from one call to the next."""

    def __init__(self, hudi: Hudi, base_path: str) -> None:
        self._hudi: Any = hudi.jvm.org.apache.hudi
        self._java = hudi
        self._path = base_path
        self._is_1 = hudi.is_1
        self._conf = hudi.storage_conf
        self._context = self._hudi.common.engine.HoodieLocalEngineContext(self._conf)
        self._mapper = hudi.jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self._new_map = hudi.jvm.java.util.HashMap

    def client(self) -> Client:
        """Return what a client knows that comes now."""
        reader = meta_client(self._java, self._path)
        timeline = reader.getActiveTimeline().filterCompletedAndCompactionInstants()
        last = timeline.lastInstant()
        time = "0"
        if last.isPresent():
            time = last.get().requestedTime() if self._is_1 else last.get().getTimestamp()
        where = [reader] if self._is_1 else [reader.getStorage(), self._path, False]
        partitions = self._hudi.common.fs.FSUtils.getAllPartitionPaths(self._context, *where, False)
        return Client(tuple(sorted(partitions)), time, timeline.getTimelineHash())

    def ask(self, questions: Iterable[Question], loaded: Iterable[str]) -> Answers:
        """Ask a view that is made for this, from nothing, with these partitions loaded first."""
        asked = list(questions)
        manager = self._manager()
        handlers = self._handlers(manager)
        answers, failures = self._new_map(), {}
        try:
            manager.getFileSystemView(self._path).loadPartitions(list(loaded))
            for number, question in enumerate(asked):
                handler, method = METHODS[question.name]
                try:
                    found = getattr(handlers[handler], method)(self._path, *question.arguments)
                except Py4JJavaError as error:
                    failures[question] = str(error.java_exception)
                else:
                    answers.put(str(number), found)
            bodies = json.loads(self._mapper.writeValueAsString(answers))
        finally:
            manager.close()
        return Answers({asked[int(number)]: body for number, body in bodies.items()}, failures)

    def _manager(self) -> Any:
        config = self._hudi.common.config
        view = self._hudi.common.table.view
        without_metadata = config.HoodieMetadataConfig.newBuilder().enable(False).build()
        return view.FileSystemViewManager.createViewManagerWithTableMetadata(
            self._context,
            without_metadata,
            view.FileSystemViewStorageConfig.newBuilder().build(),
            config.HoodieCommonConfig.newBuilder().build(),
        )

    def _handlers(self, manager: Any) -> dict[str, Any]:
        made = self._hudi.timeline.service.handlers
        storage = [] if self._is_1 else [meta_client(self._java, self._path).getStorage()]
        return {
            name: getattr(made, name)(self._conf, None, *storage, manager)
            for name in (BASE_FILES, SLICES, TIMELINE)
        }

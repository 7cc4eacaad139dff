"""``UnnamedFiles``: files that no instant names, which only a listing can show.

A snapshot and a listing may rightly differ in:

* a base file, and from table version 8 on a log, whose name has an instant that isn't completed
  (nor older than the timeline): it may be new, missing, or of another size;
* before version 8, a log that is new or has grown while a delta commit or a log compaction pends;
  and a new one that no instant of the timeline names;
* a base file that isn't held, of a completed instant whose metadata names another base file of its
  group (``fsview.load.duplicate_files``), whether that still exists or was cleaned;
* a partition that isn't known and has only such files.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from fsview.load.duplicate_files import Written
from fsview.model.file_group import BaseFile
from fsview.model.file_name import parse_data_file
from fsview.snapshot.delta import NO_CHANGE, delta_of
from fsview.snapshot.plans import base_extensions
from fsview.snapshot.snapshot import Snapshot
from timeline.instant import DELTA_COMMIT, LOG_COMPACTION, RESTORE, ROLLBACK
from timeline.meta_client import TableMetaClient

_APPENDING: Final = (DELTA_COMMIT, LOG_COMPACTION)
_NAMING_LOGS: Final = (DELTA_COMMIT, ROLLBACK, RESTORE)


class UnnamedFiles:
    """The files of one partition that no instant names; see the module's docstring."""

    def __init__(self, client: TableMetaClient, snapshot: Snapshot, partition: str) -> None:
        self._client = client
        self._snapshot = snapshot
        self._partition = partition
        self._extensions = base_extensions(snapshot.config)

    def covers(self, name: str, held: int | None, listed: int | None) -> bool:
        """Whether a file may have these two sizes; ``None`` where it is missing."""
        file = parse_data_file(self._partition, name, 0, 0, self._extensions)
        if file is None:
            return False
        if isinstance(file, BaseFile) or self._snapshot.logs_by_completion:
            if not self._snapshot.completion.is_completed(file.instant):
                return True
            return held is None and isinstance(file, BaseFile) and self._is_duplicate(file)
        # Before version 8 a log's name has the instant of its slice, not of its writer.
        if listed is None or (held is not None and listed < held):
            return False
        if self._appends_pend:
            return True
        # Not all rollbacks name the logs that they leave.
        return held is None and name not in self._names_written

    def _is_duplicate(self, file: BaseFile) -> bool:
        """Whether its commit names another base file of its group."""
        named = self._committed.by(file.instant).get(self._partition, ())
        return file.name not in named and any(n.startswith(f"{file.file_id}_") for n in named)

    @cached_property
    def _committed(self) -> Written:
        return Written(self._client, self._snapshot)

    @cached_property
    def _appends_pend(self) -> bool:
        active = self._snapshot.active
        return any(i.action in _APPENDING and not i.is_completed for i in active)

    @cached_property
    def _names_written(self) -> frozenset[str]:
        """Names of the files that the timeline's instants say they wrote."""
        names: set[str] = set()
        for instant in self._snapshot.active.completed():
            if instant.action in _NAMING_LOGS:
                delta = delta_of(self._client.read(instant), self._extensions)
                change = delta.partitions.get(self._partition, NO_CHANGE)
                names.update(file.name for file in change.added)
        return frozenset(names)

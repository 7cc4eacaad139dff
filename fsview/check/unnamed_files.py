"""``Judge``: files that no instant names, which only a listing can show.

What is held and what lies there may differ in these without being different:

* a base file, and from table version 8 on a log, whose name has an instant that isn't completed
  (nor older than the timeline), be it there, gone or of another size;
* before version 8, where a log's name has its slice's instant, whoever wrote it: a log that is new
  or has grown while a delta commit or a log compaction pends; and one that is new and that no
  instant of the timeline says it wrote (not all rollbacks name the logs that they leave);
* a base file that isn't held, of a completed instant whose metadata names another of its group
  (``fsview.load.duplicate_files``), be that still there or cleaned;
* a partition that isn't known and has no file but such.
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


class Judge:
    """Says of files of one partition whether no instant names them; see the module's docstring."""

    def __init__(self, client: TableMetaClient, snapshot: Snapshot, partition: str) -> None:
        self._client = client
        self._snapshot = snapshot
        self._partition = partition
        self._extensions = base_extensions(snapshot.config)

    def is_unnamed(self, name: str, held: int | None, there: int | None) -> bool:
        """Whether that explains a file's two sizes; ``None``: it isn't held, or isn't there."""
        file = parse_data_file(self._partition, name, 0, 0, self._extensions)
        if file is None:
            return False
        if isinstance(file, BaseFile) or self._snapshot.logs_by_completion:
            if not self._snapshot.completion.is_completed(file.instant):
                return True
            return held is None and isinstance(file, BaseFile) and self._is_double(file)
        if there is None or (held is not None and there < held):
            return False
        if self._appends_pend:
            return True
        return held is None and name not in self._written

    def _is_double(self, file: BaseFile) -> bool:
        """Whether its commit wrote another base file of its group."""
        named = self._told.by(file.instant).get(self._partition, ())
        return file.name not in named and any(n.startswith(f"{file.file_id}_") for n in named)

    @cached_property
    def _told(self) -> Written:
        return Written(self._client, self._snapshot)

    @cached_property
    def _appends_pend(self) -> bool:
        active = self._snapshot.active
        return any(i.action in _APPENDING and not i.is_completed for i in active)

    @cached_property
    def _written(self) -> frozenset[str]:
        """The names that the timeline's instants say they wrote to."""
        names: set[str] = set()
        for instant in self._snapshot.active.completed():
            if instant.action in _NAMING_LOGS:
                delta = delta_of(self._client.read(instant), self._extensions)
                change = delta.partitions.get(self._partition, NO_CHANGE)
                names.update(file.name for file in change.added)
        return frozenset(names)

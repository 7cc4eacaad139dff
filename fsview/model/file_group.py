"""The values that a view answers with: base files, log files, slices, groups, pending operations.

They are made when a query is answered; snapshots hold files packed (``fsview.files.partition``).

Source: Hudi 1.2.0 ``HoodieBaseFile``, ``HoodieLogFile``, ``FileSlice``, ``HoodieFileGroup``,
``CompactionOperation``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import Any, Final

from timeline.instant import Instant
from timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class BaseFile:
    """One version of a file group's base file.

    Attributes:
        partition: Path under the base path; ``""`` when the table has no partitions.
        name: File name, ``<file_id>_<write_token>_<instant><extension>``.
        size: Bytes.
        mtime_ms: Modification time, ms since the epoch; 0 if known from metadata only.
        file_id: The group's id.
        instant: Requested time of the instant that wrote it.
    """

    partition: str
    name: str
    size: int
    mtime_ms: int
    file_id: str
    instant: str

    @property
    def path(self) -> str:
        """Path under the base path."""
        return f"{self.partition}/{self.name}" if self.partition else self.name

    @classmethod
    def of_columns(cls, partition: str, *columns: Sequence[Any]) -> tuple[BaseFile, ...]:
        """Return the base files of a partition from columns of their other attributes, in order.

        Raises:
            ValueError: The columns aren't equally long.
        """
        if len(set(map(len, columns))) > 1:
            raise ValueError(
                f"columns of different lengths: {', '.join(map(str, map(len, columns)))}"
            )
        # Filled attribute by attribute in C, which takes a third of the time of calling the class.
        files = tuple(map(object.__new__, repeat(cls, len(columns[0]))))
        for fill, column in zip(_FILL, (repeat(partition), *columns), strict=True):
            deque(map(fill, files, column), maxlen=0)
        return files


_FILL: Final = tuple(vars(BaseFile)[attribute.name].__set__ for attribute in fields(BaseFile))
"""Setters of the attributes' slots, in order."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log file of a slice.

    Attributes:
        instant: The time in the name: the slice's base instant in table version 6, the delta
            commit's requested time from version 8 on.
        version: Number of the log among those of its instant, from 1.
        write_token: ``None`` in names of very old releases.
        suffix: ``".cdc"`` or empty.
    """

    partition: str
    name: str
    size: int
    mtime_ms: int
    file_id: str
    instant: str
    version: int
    write_token: str | None = None
    suffix: str = ""

    @property
    def path(self) -> str:
        """Path under the base path."""
        return f"{self.partition}/{self.name}" if self.partition else self.name

    @property
    def order(self) -> tuple[str, int, str, str]:
        """Hudi's sort key of logs: instant, version, write token (absent first), suffix."""
        return (self.instant, self.version, self.write_token or "", self.suffix)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A base file and the logs on top of it.

    Attributes:
        base_instant: Requested time of the instant at which the slice begins.
        log_files: In descending ``LogFile.order``.
    """

    partition: str
    file_id: str
    base_instant: str
    base_file: BaseFile | None = None
    log_files: tuple[LogFile, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has neither base file nor log."""
        return self.base_file is None and not self.log_files

    @property
    def sizes(self) -> dict[str, int]:
        """Name → size in bytes of each file."""
        sizes = {log.name: log.size for log in self.log_files}
        if self.base_file is not None:
            sizes[self.base_file.name] = self.base_file.size
        return sizes


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All slices of one file id, newest first, whether committed on ``timeline`` or not."""

    partition: str
    file_id: str
    slices: tuple[FileSlice, ...]
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """A pending (log) compaction of one file group.

    Attributes:
        base_instant: Base instant of the slice to be compacted.
        compaction_instant: The compaction's requested time.
        data_file_instant: Instant in the base file's name; ``None`` for a slice of logs only.
        delta_files: Names of the logs.
        base_file: Name of the base file.
    """

    partition: str
    file_id: str
    base_instant: str
    compaction_instant: str
    data_file_instant: str | None = None
    delta_files: tuple[str, ...] = ()
    base_file: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusteringOperation:
    """A file group in a pending clustering, and the instant of that clustering."""

    partition: str
    file_id: str
    instant: Instant

"""Limits on the size of metadata files, one for each kind of file, and their settings.

Metadata files are read whole, so a file's size is checked before it is read. Data files are read in
parts and have no limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from timeline.errors import CorruptMetadataError

_MIB: Final = 1 << 20


class FileKind(Enum):
    """The kind of a file that is read whole; the value is part of its setting's name."""

    PROPERTIES = "properties"
    INSTANT = "instant"
    ARCHIVE = "archive"
    MARKERS = "markers"
    METADATA_TABLE = "metadata.table"

    @property
    def setting(self) -> str:
        """The name of the setting that limits such files."""
        return f"strandline.read.{self.value}.max.bytes"


_FIELDS: Final = {kind: f"{kind.name.lower()}_bytes" for kind in FileKind}


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The most bytes that a file of each kind may have.

    Attributes:
        properties_bytes: ``hoodie.properties`` and ``.hoodie_partition_metadata``, which have a few
            thousand.
        instant_bytes: An instant's file. Commits of more than 100 MB exist; the default suffices
            for a commit of a million files in Avro, or of a quarter of a million in JSON.
        archive_bytes: A file of the archived timeline.
        markers_bytes: The ``MARKERS<n>`` files of one write in total, as they are in memory; a
            write of a million files has 150 MB in some twenty files and takes 250 MB.
        metadata_table_bytes: A file of the metadata table; for larger ones partitions are listed.
    """

    properties_bytes: int = _MIB
    instant_bytes: int = 256 * _MIB
    archive_bytes: int = 256 * _MIB
    markers_bytes: int = 256 * _MIB
    metadata_table_bytes: int = 256 * _MIB

    def of(self, kind: FileKind) -> int:
        """Return the most bytes that a file of a kind may have."""
        limit: int = getattr(self, _FIELDS[kind])
        return limit

    def check(self, kind: FileKind, path: str, size: int) -> None:
        """Refuse a file that is too large.

        Args:
            kind: The file's kind.
            path: Its path, for the error.
            size: Its bytes, or those that were read before the reader gave up.

        Raises:
            CorruptMetadataError: The file is larger than its kind may be.
        """
        if size > self.of(kind):
            raise CorruptMetadataError(
                f"{path} has {size} bytes or more; {kind.setting} allows {self.of(kind)}",
                hint="raise the setting if the file is sound",
            )


DEFAULT_LIMITS: Final = ReadLimits()

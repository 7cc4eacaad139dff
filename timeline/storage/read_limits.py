"""How much of a table's metadata is read at most: a bound for each kind of file, and its setting.

A file is read whole, so it must fit into memory before anything looks at it. Data files are read in
parts and have no bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from timeline.errors import CorruptMetadataError

_MIB: Final = 1 << 20


class FileKind(Enum):
    """What a file is that is read whole; the value is how its setting calls it."""

    PROPERTIES = "properties"
    INSTANT = "instant"
    ARCHIVE = "archive"
    MARKERS = "markers"
    METADATA_TABLE = "metadata.table"

    @property
    def setting(self) -> str:
        """The name of the setting that says how large such a file may be."""
        return f"strandline.read.{self.value}.max.bytes"


_FIELDS: Final = {kind: f"{kind.name.lower()}_bytes" for kind in FileKind}


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How many bytes a file of each kind may have.

    Attributes:
        properties_bytes: Of ``hoodie.properties`` and ``.hoodie_partition_metadata``, which have a
            few thousand.
        instant_bytes: Of an instant's file. Commits of more than 100 MB exist; this is one that
            wrote a million files in Avro, a quarter of a million in JSON.
        archive_bytes: Of a file of the archived timeline.
        markers_bytes: Of the ``MARKERS<n>`` of a write together, with what each marker takes in
            memory; a write of a million files has 150 MB in some twenty, and takes 250 MB.
        metadata_table_bytes: Of a file of the metadata table; beyond it partitions are listed.
    """

    properties_bytes: int = _MIB
    instant_bytes: int = 256 * _MIB
    archive_bytes: int = 256 * _MIB
    markers_bytes: int = 256 * _MIB
    metadata_table_bytes: int = 256 * _MIB

    def of(self, kind: FileKind) -> int:
        """Return how many bytes a file of a kind may have."""
        limit: int = getattr(self, _FIELDS[kind])
        return limit

    def check(self, kind: FileKind, path: str, size: int) -> None:
        """Refuse a file that is too large.

        Args:
            kind: What it is.
            path: Where it is, for the error.
            size: How many bytes it has, or how many were read of it before the reader gave up.

        Raises:
            CorruptMetadataError: It has more than its kind may.
        """
        if size > self.of(kind):
            raise CorruptMetadataError(
                f"{path} has {size} bytes or more; {kind.setting} allows {self.of(kind)}",
                hint="raise the setting if the file is sound",
            )


DEFAULT_LIMITS: Final = ReadLimits()

"""Settings that bound how much of a table's metadata the service and the writer read."""

from __future__ import annotations

from typing import Final

from strandline.settings.setting import Setting, Settings
from timeline.storage.base import DEFAULT_LIMITS, FileKind, ReadLimits


def _limit(kind: FileKind, doc: str) -> Setting[int]:
    default = DEFAULT_LIMITS.of(kind)
    return Setting(kind.setting, default, doc, "service", unit="bytes", minimum=1024)


PROPERTIES_BYTES: Final = _limit(
    FileKind.PROPERTIES,
    "Largest hoodie.properties or .hoodie_partition_metadata that is read. Usual sizes are a few"
    " kB.",
)
INSTANT_BYTES: Final = _limit(
    FileKind.INSTANT,
    "Largest file of an instant that is read. In JSON a commit of a quarter of a million files has"
    " this size, in Avro one of a million. The writer keeps to this limit too.",
)
ARCHIVE_BYTES: Final = _limit(
    FileKind.ARCHIVE, "Largest file of the archived timeline that is read."
)
MARKERS_BYTES: Final = _limit(
    FileKind.MARKERS,
    "Most bytes of the MARKERS files of one write together, each marker counting 100 bytes more"
    " than its name. A write of a million files takes 250 MB.",
)
METADATA_TABLE_BYTES: Final = _limit(
    FileKind.METADATA_TABLE,
    "Largest file of a metadata table that is read. If one is larger, partitions are listed"
    " instead.",
)


def read_limits(settings: Settings) -> ReadLimits:
    """Return the limits that the settings give."""
    return ReadLimits(
        properties_bytes=settings.get(PROPERTIES_BYTES),
        instant_bytes=settings.get(INSTANT_BYTES),
        archive_bytes=settings.get(ARCHIVE_BYTES),
        markers_bytes=settings.get(MARKERS_BYTES),
        metadata_table_bytes=settings.get(METADATA_TABLE_BYTES),
    )

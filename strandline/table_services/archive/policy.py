"""Settings of the archiver.

Source: Hudi 1.2.0 ``HoodieArchivalConfig``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.settings.setting import ClientSetting, Settings, settings_of
from strandline.table_services.compact import policy as compactions
from timeline.errors import ConfigError

AUTOMATIC: Final = ClientSetting(
    "hoodie.archive.automatic",
    True,
    "Whether each write is followed by an archival if enough write instants are there.",
)
KEEP_MIN: Final = ClientSetting(
    "hoodie.keep.min.commits",
    20,
    "Number of completed write instants that an archival leaves on the active timeline. If the"
    " cleaner's policy retains as many or more, it is raised.",
    minimum=1,
)
KEEP_MAX: Final = ClientSetting(
    "hoodie.keep.max.commits",
    30,
    "Number of completed write instants from which on the older ones are archived; raised with"
    " hoodie.keep.min.commits, which must be less.",
    minimum=2,
)
BEYOND_SAVEPOINT: Final = ClientSetting(
    "hoodie.archive.beyond.savepoint",
    False,
    "Whether write instants after a savepoint are archived. This writer refuses look-ups in such a"
    " table until the savepoint is deleted and its commit archived, too.",
)
LOG_BATCH: Final = ClientSetting(
    "hoodie.commits.archival.batch",
    10,
    "Number of records in a block of the archive of version 6.",
    minimum=1,
)
MERGED_FILES: Final = ClientSetting(
    "hoodie.timeline.compaction.batch.size",
    10,
    "Number of files of a level of the archive, from version 8 on, that are merged into one of the"
    " next level.",
    minimum=2,
)
MERGED_BYTES: Final = ClientSetting(
    "hoodie.timeline.compaction.target.file.max.bytes",
    1000 << 20,
    "Size from which on no more files of the archive are added to a merge.",
    unit="bytes",
    minimum=1,
)
MANIFESTS: Final = ClientSetting(
    "hoodie.timeline.manifest.retained.versions",
    3,
    "Number of manifests of the archive that stay, besides those of the merges just made.",
    minimum=1,
)
ARCHIVE_PARALLELISM: Final = ClientSetting(
    "hoodie.archive.delete.parallelism",
    8,
    "Number of instants' files read, or of pending instants' files deleted, at a time, by threads"
    " of the driver; always 1 on a local disk. Hudi's default is 100 tasks of the cluster.",
    unit="threads",
    minimum=1,
    maximum=256,
)


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """Values of the archiver's settings.

    Attributes:
        automatic: Whether each write is followed by an archival.
        keep_min: Number of completed writes that an archival leaves.
        keep_max: Number of completed writes that may be there without one, more than ``keep_min``.
        beyond_savepoint: Whether writes after a savepoint are archived.
        log_batch: Records in a block of a version 6 archive.
        merged_files: Files of a level that are merged into one.
        merged_bytes: Size from which on a merge takes no more files.
        manifests: Manifests that stay.
        parallelism: Threads that read and delete.
        delta_commits: Delta commits that stay until a compaction.
    """

    automatic: bool = AUTOMATIC.field()
    keep_min: int = KEEP_MIN.field()
    keep_max: int = KEEP_MAX.field()
    beyond_savepoint: bool = BEYOND_SAVEPOINT.field()
    log_batch: int = LOG_BATCH.field()
    merged_files: int = MERGED_FILES.field()
    merged_bytes: int = MERGED_BYTES.field()
    manifests: int = MANIFESTS.field()
    parallelism: int = ARCHIVE_PARALLELISM.field()
    delta_commits: int = compactions.DELTA_COMMITS.field()

    @classmethod
    def of(cls, values: Settings) -> ArchiveSettings:
        """Return the archiver's part of parsed options.

        Raises:
            ConfigError: The minimum isn't less than the maximum.
        """
        read = values.read(cls)
        if read.keep_min >= read.keep_max:
            raise ConfigError(
                f"{KEEP_MAX.name} is {read.keep_max}, {KEEP_MIN.name} {read.keep_min}; allowed: a"
                " maximum greater than the minimum"
            )
        return read


def archive_settings(keep_min: int | None, keep_max: int | None) -> ArchiveSettings:
    """Return settings with these numbers of writes; ``None`` for Hudi's defaults.

    Raises:
        ConfigError: A number is too small, or the minimum isn't less than the maximum.
    """
    given = {KEEP_MIN.name: keep_min, KEEP_MAX.name: keep_max}
    options = {name: str(value) for name, value in given.items() if value is not None}
    return ArchiveSettings.of(Settings.parse(options, settings_of(ArchiveSettings)))

"""Archives of tables."""

from timeline.archive.archived_timeline import HistoryArchive
from timeline.instant import Instant
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata, CommitMetadata

PLAN = CleanerPlan(policy="KEEP_LATEST_FILE_VERSIONS")


def said(archive: HistoryArchive, instant: Instant) -> str | None:
    """Return the time in an archived instant's metadata."""
    found = archive.read(instant)
    if isinstance(found, CleanMetadata):
        assert archive.read_plan(instant) == PLAN
        return found.start_clean_time
    assert isinstance(found, CommitMetadata)
    return found.operation_type

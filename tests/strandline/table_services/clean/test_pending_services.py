"""File groups that are replaced while a compaction, log compaction or clustering of them pends."""

from __future__ import annotations

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import Archiver
from strandline.table_services.clean.plan import NEEDED_FROM
from strandline.table_services.clean.policy import (
    KEEP_LATEST_FILE_VERSIONS,
    POLICIES,
    CleanSettings,
)
from strandline.table_services.clean.preview import why
from strandline.table_services.clean.run import Cleaner
from tests.kit.short_runs import quick_runs
from tests.kit.tables.model import services, writes
from tests.kit.tables.model.table import ModelTable, Write
from tests.strandline.table_services.clean import naive
from timeline.instant import CLEAN
from timeline.metadata.instant_metadata import CleanMetadata

GROUP, OTHER = ("a", 0), ("p/b", 0)
SERVICES = ["COMPACT", "LOG_COMPACT", "CLUSTER"]
HOUR_MS = 3_600_000
KEEPING = ArchiveSettings(keep_min=1, keep_max=2, merged_files=2, manifests=1, parallelism=1)


class Replaced:
    """A table in which a group was replaced while a service of it pends; all has aged since."""

    def __init__(self, version: int, policy: str, service: str) -> None:
        self.table = ModelTable(version, "MERGE_ON_READ")
        self.settings = CleanSettings(policy=policy, retained=1, hours=1, versions=1, parallelism=1)
        self.view = LocalView.newest(TableView(self.table.storage))
        self.cleaner = Cleaner(self.table.meta, self.view, self.table.times, self.settings)
        group = self.table.group(*GROUP)
        self.write(GROUP, "base")
        self.write(OTHER, "base")
        self.write(GROUP, "log")
        self.service = self.request(group, service)
        self.read = naive.planned(self.table)
        assert self.read
        overwrite = writes.begin_overwrite(self.table, [group], [], "DELETE_PARTITION")
        self.replacing = overwrite.time
        writes.complete(self.table, overwrite)
        self.grow_old()

    def request(self, group, service: str) -> Write:
        if service == "CLUSTER":
            return services.request_clustering(self.table, [group])
        return services.request_compaction(self.table, [group], logs_only=service == "LOG_COMPACT")

    def write(self, slot, how: str) -> None:
        writes.complete(self.table, writes.begin(self.table, [(self.table.group(*slot), how)]))

    def grow_old(self) -> None:
        self.table.clock.advance(2 * HOUR_MS)
        for _ in range(4):
            self.write(OTHER, "log")

    def clean(self) -> CleanMetadata | None:
        self.table.clock.advance(1000)
        self.view.sync()
        self.cleaner.run()
        timeline = self.table.meta.active_timeline().completed()
        found = [i for i in timeline if i.action == CLEAN]
        if not found:
            return None
        metadata = self.table.meta.read(found[-1])
        assert isinstance(metadata, CleanMetadata)
        return metadata

    def archive(self) -> None:
        Archiver(self.table.meta, self.table.times, KEEPING, self.settings, None).run()

    @property
    def is_replaced(self) -> bool:
        """Whether the replacecommit is on the timeline, so that the group's rows aren't live."""
        timeline = self.table.meta.active_timeline().completed()
        return any(i.requested_time == self.replacing for i in timeline)


@pytest.mark.parametrize("version", quick_runs([9], [6, 9]))
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_pending_service_reads_stays_in_replaced_groups_until_it_ends(
    version, service, policy
):
    subject = Replaced(version, policy, service)
    table = subject.table
    for _ in range(2):
        cleaned = subject.clean()
        subject.archive()
        assert subject.read <= set(table.storage.files)
        assert subject.is_replaced
        if policy == KEEP_LATEST_FILE_VERSIONS and cleaned is not None:
            assert cleaned.extra_metadata[NEEDED_FROM] == subject.replacing
        elif cleaned is not None:
            assert cleaned.earliest_commit_to_retain <= subject.replacing
        for path in subject.read:
            timeline = table.meta.active_timeline()
            assert not why(subject.cleaner.planner, timeline, path).goes
        subject.grow_old()
    if service == "CLUSTER":
        services.start(table, subject.service)
        writes.complete(table, subject.service)
    else:
        services.drop(table, subject.service)
    subject.grow_old()
    subject.clean()
    assert not subject.read & set(table.storage.files)
    for _ in range(2):
        subject.grow_old()
        subject.archive()
        subject.clean()
    assert not subject.is_replaced

"""Which instants count for a read, and how often the archive is read for it."""

from __future__ import annotations

import pytest

from strandline.read.instants import Archive, CommittedInstants, first_write_time
from tests.kit.tables import golden
from timeline.errors import InstantNotFoundError
from timeline.instant import COMMIT, DELTA_COMMIT, RESTORE, SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.timeline import Timeline


def completed(time, action=COMMIT):
    return Instant(time, action, State.COMPLETED, time)


class Archived:
    """An archive with some writes, which counts how often it is asked."""

    def __init__(self, times):
        self.times = times
        self.asked = 0

    @property
    def write_times(self):
        self.asked += 1
        return self.times


SAVED = [completed("5"), completed("5", SAVEPOINT)]


@pytest.mark.parametrize(
    ("instants", "archived", "counting"),
    [
        ([completed("5"), completed("7")], "3", {"3": True, "6": False}),
        # Between the commit of a savepoint and the next one others are archived. What isn't in the
        # archive was rolled back.
        ([*SAVED, completed("9")], "37", {"3": True, "7": True, "8": False}),
        # The savepoint was deleted since.
        ([completed("5"), completed("9")], "37", {"3": True, "7": True, "8": False}),
        # A restore to the savepoint has left no other commit.
        ([*SAVED, completed("9", RESTORE)], "3", {"3": True, "7": False}),
        # Archiving copies an instant before it deletes it; the timeline decides while it has it.
        ([completed("5"), Instant("7", COMMIT, State.INFLIGHT), completed("9")], "7", {"7": False}),
        # The archive is of now, the timeline may be of an earlier instant.
        ([completed("5")], "37", {"3": True, "7": False}),
        ([], "", {"3": False}),
    ],
)
def test_archived_instants_count(instants, archived, counting):
    committed = CommittedInstants(Timeline.of(instants), Archived(archived))
    assert {time: committed.has(time) for time in counting} == counting
    writes = [each for each in instants if each.action == COMMIT and each.is_completed]
    assert all(committed.has(each.requested_time) for each in writes)


def test_the_archive_is_asked_only_for_times_within_the_timeline():
    archive = Archived("37")
    committed = CommittedInstants(Timeline.of([*SAVED, completed("9")]), archive)
    assert [committed.has(time) for time in "3599"] == [True] * 4
    assert not committed.has("99")
    assert archive.asked == 0
    assert committed.has("7")
    assert archive.asked == 1


def test_the_first_write_is_one_without_a_savepoint():
    assert first_write_time(Timeline.of([*SAVED, completed("9")])) == "9"
    assert first_write_time(Timeline.of(SAVED)) == "5"
    assert first_write_time(Timeline.of([])) == ""


class CountedMeta(TableMetaClient):
    """Counts how often the archive is opened; the first time it is still empty, if asked for."""

    opened = 0
    late = False

    def archived_timeline(self):
        self.opened += 1
        return Empty() if self.late and self.opened == 1 else super().archived_timeline()


class Empty:
    timeline = Timeline.of([])

    def read(self, instant):
        raise InstantNotFoundError(f"{instant} is not in the archive")


@pytest.mark.parametrize("scenario", ["archival_cow_v6", "archival_mor_v9"])
def test_the_archive_is_read_once(scenario, tmp_path):
    base = golden.build(scenario, golden.steps(scenario)[-1], tmp_path)
    meta = CountedMeta.open(LocalStorage(str(base)))
    archive, active = Archive(meta), meta.active_timeline()
    moved = [i for i in archive.timeline if i.is_completed and not active.contains(i)]
    writes = [i for i in moved if i.action in (COMMIT, DELTA_COMMIT)]
    assert len(writes) > 3
    assert {i.requested_time for i in writes} <= archive.write_times
    assert all(archive.read(instant).partition_to_write_stats for instant in writes)
    assert meta.opened == 1


def test_the_archive_is_read_again_for_what_was_archived_since(tmp_path):
    meta = CountedMeta.open(LocalStorage(str(golden.build_final("archival_mor_v9", tmp_path))))
    found = next(i for i in meta.archived_timeline().timeline if i.action == DELTA_COMMIT)
    meta.opened, meta.late = 0, True
    archive = Archive(meta)
    assert not archive.write_times
    assert archive.read(found).partition_to_write_stats
    assert archive.read(found).partition_to_write_stats
    assert meta.opened == 2
    with pytest.raises(InstantNotFoundError):
        archive.read(completed("1"))

"""Early conflict detection: which markers and commits of other writes conflict."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from strandline.server.marker.conflict import ConflictOptions, candidates, changed_by
from strandline.server.marker.file import directory_path
from strandline.server.marker.heartbeat import HEARTBEAT_FOLDER, alive
from strandline.server.marker.name import file_group_of
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import create
from tests.kit.storage.memory_storage import MemoryStorage
from tests.strandline.server.marker.conflict_site import (
    COMMITS_TOO,
    GROUP,
    ON,
    OTHER,
    Site,
    heartbeat,
    marker,
    other_writer,
)
from timeline.instant import CLUSTERING, COMMIT, COMPACTION, REPLACE_COMMIT, Instant, State
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat
from timeline.timeline import Timeline


def test_a_marker_names_partition_and_file_id(subtests: pytest.Subtests) -> None:
    for name, group in [
        ("p/f1-0_1-2-3_2024.parquet.marker.MERGE", ("p", "f1-0")),
        ("f1-0_1-2-3_2024.parquet.marker.CREATE", ("", "f1-0")),
        ("a_b/c_d/f1-0_1-2-3_2024.parquet.marker.CREATE", ("a_b/c_d", "f1-0")),
        ("p/.f1-0_2024.log.1_1-2-3.marker.APPEND", ("p", "f1-0")),
        (".f1-0_2024.log.1_1-2-3.marker.CREATE", ("", "f1-0")),
    ]:
        with subtests.test(name=name):
            assert file_group_of(name) == group


@pytest.mark.parametrize(
    ("age_ms", "lives"),
    [(0, True), (120_000, True), (120_001, False), (-120_000, True), (-120_001, False)],
)
def test_a_heartbeat_is_as_old_as_its_file(age_ms: int, lives: bool) -> None:
    now = 1_700_000_000_000
    storage = MemoryStorage(now_ms=lambda: now - age_ms)
    storage.create(f"{HEARTBEAT_FOLDER}/1")
    assert alive(storage, ("1", "2"), now, 120_000) == (("1",) if lives else ())
    assert alive(MemoryStorage(), (), now, 1) == ()


def test_the_timeline_tells_the_pending_writes() -> None:
    def pending(time: str, action: str) -> Instant:
        return Instant(time, action, State.INFLIGHT)

    done = Instant("5", COMMIT, State.COMPLETED)
    timeline = Timeline.of(
        [
            pending("1", COMPACTION),
            pending("2", CLUSTERING),
            pending("3", REPLACE_COMMIT),
            pending("4", COMMIT),
            done,
            Instant("6", COMMIT, State.COMPLETED),
        ]
    )
    older = ("1", "2", "3", "4", "5", "6", "7")
    assert candidates(older, timeline, {done}) == ("4", "6", "7")


def test_a_compaction_changes_nothing() -> None:
    commit = CommitMetadata(
        {"p": (WriteStat(file_id="f1"), WriteStat(file_id=None))},
        partition_to_replace_file_ids={"q": ("f2",)},
    )
    assert list(changed_by(commit)) == [("p", "f1"), ("q", "f2")]
    assert not list(changed_by(replace(commit, compacted=True)))
    assert not list(changed_by(replace(commit, operation_type="COMPACT")))


def test_the_later_of_two_writes_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    first = other_writer(site)
    second = site.table.tick()
    assert site.announce(second)
    with caplog.at_level(logging.WARNING):
        site.look()
    (record,) = caplog.records
    assert record.message == (
        f"file:///memory/t/.hoodie/.temp/{second}: early conflict, its markers are refused:"
        f" file group f1 of partition '2024-01-01' is also being written by {first}"
    )
    assert not site.announce(second, number=1)
    assert not site.announce(second, OTHER)
    assert site.markers.names(f"/memory/t/{directory_path(second)}") == (marker(GROUP, second),)
    # To who doesn't ask for early conflicts, ``false`` would say that the marker is there.
    assert site.announce(second, OTHER, refusable=False)
    assert site.announce(first, number=2), "the older one goes on"
    assert site.markers.status() == {"directories": 2, "watched": 1, "conflicts": 1}


def test_a_log_and_a_base_file_of_one_group_meet() -> None:
    site = Site()
    first = other_writer(site)
    second = site.table.tick()
    log = f"{GROUP[0]}/.{GROUP[1]}_{first}.log.1_0-1-1.marker.APPEND"
    directory = f"/memory/t/{directory_path(second)}"
    assert create(site.markers, directory, log, refusable=True).result(PATIENCE_S)
    site.look()
    assert not site.announce(second, OTHER)


def test_partitions_with_underscores_are_kept_apart() -> None:
    site = Site()
    other_writer(site, ("a_b", "f1"))
    second = site.table.tick()
    assert site.announce(second, ("a_c", "f1"))
    site.look()
    assert site.announce(second, OTHER)


def dead(site: Site) -> None:
    other_writer(site)
    site.clock.advance(121_000)


def never_alive(site: Site) -> None:
    site.table.storage.delete(f"{HEARTBEAT_FOLDER}/{other_writer(site)}")


def of_the_future(site: Site) -> None:
    other_writer(site)
    site.clock.advance(-600_000)  # the machine's clock is set back


def completed(site: Site) -> None:
    pending = site.table.begin([GROUP])
    heartbeat(site.table, pending.instant.requested_time)
    site.announce(pending.instant.requested_time)
    site.table.complete(pending)


def compaction(site: Site) -> None:
    time = site.table.tick()
    site.table.meta.create_requested(COMPACTION, time)
    heartbeat(site.table, time)
    site.announce(time)


def test_what_is_no_write_under_way_does_not_count(subtests: pytest.Subtests) -> None:
    for make in [dead, never_alive, of_the_future, completed, compaction]:
        with subtests.test(make=make.__name__):
            site = Site()
            make(site)
            second = f"{site.table.times.next()[:-3]}999"
            assert site.announce(second)
            site.look()
            assert site.announce(second, OTHER)


def test_a_newer_write_does_not_count() -> None:
    site = Site()
    first = site.table.tick()
    second = other_writer(site)
    assert second > first
    assert site.announce(first)
    site.look()
    assert site.announce(first, OTHER)


@pytest.mark.parametrize("options", [ON, COMMITS_TOO])
def test_commits_count_if_they_are_looked_at(options: ConflictOptions) -> None:
    site = Site(options)
    site.table.write(GROUP)  # before: the write has seen it
    pending = site.table.begin([GROUP])
    second = site.table.tick()
    assert site.announce(second)
    site.look()
    assert site.announce(second, number=1)
    site.table.complete(pending)
    site.look_later()
    assert site.announce(second, number=2) is not options.checks_commits


def test_commits_of_other_groups_do_not_count() -> None:
    site = Site(COMMITS_TOO)
    second = site.table.begin([GROUP])
    time = second.instant.requested_time
    assert site.announce(time)
    site.look()
    site.table.write(OTHER, ("2024-01-02", GROUP[1]))
    site.table.complete(second)  # its own
    site.look_later()
    assert site.announce(time, number=1)
